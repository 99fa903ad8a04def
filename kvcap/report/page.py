"""One self-contained page: words, charts in two widths, tables to read and to download."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from kvcap.report.charts import Chart
from kvcap.report.theme import chart_css, page_css
from kvcap.writing import write_csv

_WIDTHS: Final = {"full": (350, 740), "half": (350, 490)}
"""Drawn for phones and for screens; between, an image is scaled."""

_SIZES: Final = ("narrow", "wide")
_SHOWN_ROWS: Final = 200
_BEFORE_UNIT: Final = re.compile(r"(?<=[0-9]) (?=%|[KMGTP]?i?B\b|min\b|s\b|h\b|d\b)")


@dataclass(frozen=True)
class Table:
    """Rows to read and to download.

    Parameters
    ----------
    name
        File name of the download, without its ending.
    columns
        Names for the download.
    rows
        Plain values.
    headers, cells
        What is shown; None shows the plain values.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    headers: Sequence[str] | None = None
    cells: Sequence[Sequence[str]] | None = None


@dataclass(frozen=True)
class Section:
    """A chart or a table with what it says.

    Parameters
    ----------
    title
        A short heading.
    words
        One or two sentences that say what to see.
    charts
        Drawn one under the other.
    table
        The numbers behind it; ``open_table`` shows it, else it unfolds.
    half
        Whether it stands beside another one on a wide screen.
    """

    title: str
    words: str
    charts: Sequence[Chart] = ()
    table: Table | None = None
    open_table: bool = False
    half: bool = False


@dataclass(frozen=True)
class Page:
    """A report.

    Parameters
    ----------
    title, subtitle
        What was replayed.
    answer
        The answer in sentences, the first one large.
    figures
        Name and value of the headline numbers.
    sections
        Everything else, in order.
    footnotes
        Heading and lines: definitions, provenance.
    """

    title: str
    subtitle: str
    answer: Sequence[str]
    figures: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    footnotes: Sequence[tuple[str, Sequence[tuple[str, str]]]]


def render(page: Page) -> str:
    """Return the page as one HTML document that needs nothing else."""
    body = [
        f"<header><p class=over>{escape(page.subtitle)}</p><h1>{escape(page.title)}</h1>",
        "".join(
            f"<p class={'lead' if i == 0 else 'answer'}>{_words(words)}</p>"
            for i, words in enumerate(page.answer)
        ),
        "<dl class=figures>",
        "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in page.figures),
        "</dl></header><main>",
        "".join(_section(section) for section in page.sections),
        "</main><footer>",
        "".join(_footnote(title, lines) for title, lines in page.footnotes),
        "</footer><div id=tip role=status hidden></div>",
    ]
    script = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        '<meta name=color-scheme content="light dark">'
        f'<link rel=icon href="data:,"><title>{escape(page.title)}</title>'
        f"<style>{page_css()}{chart_css()}</style></head>\n"
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def _words(words: str) -> str:
    """Return a sentence as markup that does not break between a number and its unit."""
    return _BEFORE_UNIT.sub("\u00a0", escape(words))


def _section(section: Section) -> str:
    charts = "".join(_chart(chart, half=section.half) for chart in section.charts)
    table = "" if section.table is None else _table(section.table, is_open=section.open_table)
    return (
        f"<section class={'half' if section.half else 'full'}><h2>{escape(section.title)}</h2>"
        f"<p>{_words(section.words)}</p>{charts}{table}</section>\n"
    )


def _chart(chart: Chart, *, half: bool) -> str:
    widths = _WIDTHS["half" if half else "full"]
    images = "".join(
        f"<div class={size}>{chart.svg(width)}</div>" for size, width in zip(_SIZES, widths, strict=True)
    )
    return f"<figure>{images}</figure>"


def _table(table: Table, *, is_open: bool) -> str:
    headers = table.headers or table.columns
    cells = table.cells or [[_plain(value) for value in row] for row in table.rows]
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in headers)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells[:_SHOWN_ROWS]
    )
    left_out = len(cells) - _SHOWN_ROWS
    more = f"<p>{left_out:,} further rows are in the download.</p>" if left_out > 0 else ""
    data = b64encode(table_csv(table).encode()).decode()
    link = f'<a download="{escape(table.name)}.csv" href="data:text/csv;base64,{data}">Download CSV</a>'
    body = f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}"
    if is_open:
        return f"{body}<p class=download>{link}</p>"
    return f"<details><summary>Numbers</summary>{body}<p class=download>{link}</p></details>"


def table_csv(table: Table) -> str:
    """Return a table's plain values as CSV."""
    stream = io.StringIO()
    write_csv(table.columns, table.rows, stream)
    return stream.getvalue()


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _footnote(title: str, lines: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in lines)
    return f"<section><h2>{escape(title)}</h2><dl>{items}</dl></section>"

"""The one writer: an answer as text, JSON, CSV or HTML, all from one :class:`Layout` of it.

On a terminal nothing is wider than it is: text wraps between words, and a number stays with its unit; a
table breaks its headers and texts over lines, then into several tables that each begin with what names the
rows, then into one block a row. A number is never cut, nor a word of a line, such as an address. In a
pipe or a file everything is as wide as it is. What a terminal cannot show (control characters, marks that
turn text around) is escaped.
"""

from __future__ import annotations

import html
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TextIO

from kvcap.cli.fitting import escaped, fitted, wrapped
from kvcap.writing import write_csv, written_beside

FALLBACK_WIDTH: Final = 80
"""Of a terminal that does not say."""

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em}p{margin:.2em 0}table{border-collapse:collapse;"
    "margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}"
    ".text{text-align:left}"
)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    header
        What stands above it.
    value
        The attribute of a row that it shows, or what makes a value of a row; None shows as ``-``.
    say
        The value in words, with its unit.
    is_text
        Whether it is flush left and may wrap: not for numbers.
    """

    header: str
    value: str | Callable[[Any], Any]
    say: Callable[[Any], str] = str
    is_text: bool = False

    def cell(self, row: Any) -> str:
        """Return what a row shows."""
        value = getattr(row, self.value) if isinstance(self.value, str) else self.value(row)
        return "-" if value is None else self.say(value)


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column names the row."""

    columns: Sequence[Column]
    rows: Sequence[Any]


Records = tuple[Sequence[str], Iterable[Iterable[Any]]]


@dataclass(frozen=True)
class Layout:
    """How one kind of answer is written.

    Parameters
    ----------
    document
        The answer as JSON takes it.
    parts
        Lines and tables for people.
    records
        The names and the rows of CSV; None where the answer is no list.
    """

    document: Callable[[Any], Any]
    parts: Callable[[Any], Iterable[str | Table]]
    records: Callable[[Any], Records] | None = None


def write(layout: Layout, answer: Any, form: str, stream: TextIO, *, raw: bool = False) -> None:
    """Write an answer in one of the forms of its layout.

    Parameters
    ----------
    layout, answer
        What to write, and how it is laid out.
    form
        ``table``, ``json``, ``csv`` or ``html``.
    stream
        Where to.
    raw
        Write texts in CSV as they are, also those that a spreadsheet would run as formulas.
    """
    if form == "json":
        json.dump(layout.document(answer), stream, indent=2, default=str)
        stream.write("\n")
    elif form == "csv":
        assert layout.records is not None
        names, rows = layout.records(answer)
        if stream.isatty():
            rows = ([escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
        write_csv(names, rows, stream, raw=raw)
    elif form == "html":
        stream.write(_as_html(layout.parts(answer)))
    else:
        print_parts(layout.parts(answer), stream)


@contextmanager
def text_output(path: str | None, *, force: bool) -> Iterator[TextIO]:
    """Yield a text stream: stdout for None and ``-``, else a file that appears when it is complete.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    with (
        written_beside(path, force=force) as beside,
        beside.open("w", encoding="utf-8", newline="") as stream,
    ):
        yield stream


def as_document(schema: str, answer: Any, **beside: Any) -> dict[str, Any]:
    """Return the fields of a dataclass under the name of their schema; of a run its summary."""
    from kvcap.queries import RunInfo

    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    runs = {name: value.summary() for name, value in values.items() if isinstance(value, RunInfo)}
    return {"schema": schema, **beside, **asdict(answer), **runs}


def records_of(rows: Sequence[Any], *, without: Sequence[str] = ()) -> Records:
    """Return the fields of dataclasses of one kind, all but some."""
    names = [field.name for field in fields(rows[0]) if field.name not in without] if rows else []
    return names, ([getattr(row, name) for name in names] for row in rows)


def print_parts(parts: Iterable[str | Table], stream: TextIO) -> None:
    """Print lines and tables for people, as wide as the terminal at most."""
    width = terminal_width(stream)
    for part in parts:
        lines = wrapped(escaped(part), width) if isinstance(part, str) else table_lines(part, width)
        for line in lines:
            print(line, file=stream)


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a terminal, as it or ``COLUMNS`` says; None where the stream is none."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or FALLBACK_WIDTH
    except OSError:
        return FALLBACK_WIDTH


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """Return a table as lines, of at most ``width`` columns where that can be."""
    headers = [escaped(column.header) for column in table.columns]
    rows = [[escaped(column.cell(row)) for column in table.columns] for row in table.rows]
    return fitted(headers, rows, [column.is_text for column in table.columns], width)


def _as_html(parts: Iterable[str | Table]) -> str:
    """Return lines and tables as one page that needs nothing else."""
    body = []
    for part in parts:
        if isinstance(part, str):
            body.append(f"<p>{html.escape(escaped(part))}</p>" if part else "")
            continue
        kinds = [' class="text"' if column.is_text else "" for column in part.columns]
        head = [column.header for column in part.columns]
        body.append("<table>")
        for tag, cells in (("th", head), *(("td", [c.cell(row) for c in part.columns]) for row in part.rows)):
            row = (
                f"<{tag}{kind}>{html.escape(escaped(cell))}</{tag}>"
                for kind, cell in zip(kinds, cells, strict=True)
            )
            body.append(f"<tr>{''.join(row)}</tr>")
        body.append("</table>")
    content = "\n".join(line for line in body if line)
    head_html = f'<meta charset="utf-8"><title>kvcap</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head_html}</head><body>\n{content}\n</body></html>\n'

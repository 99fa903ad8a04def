"""The one writer: an answer as text, JSON, CSV or HTML, all from one :class:`Layout` of it.

On a terminal nothing is wider than it is: text wraps between words, and a number stays with its unit; a
table breaks its headers and texts over lines, then into several tables that each begin with the first
column, then into one block a row. A number is never cut, nor a word of a line, such as an address. In a
pipe or a file everything is as wide as it is. What a terminal cannot show (control characters, marks that
turn text around) is escaped.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from typing import Any, Final, TextIO

from kvcap.writing import write_csv, written_beside

FALLBACK_WIDTH: Final = 80
"""Of a terminal that does not say."""

_GAP: Final = 2
_NARROWEST_TEXT: Final = 12
_LONGEST_WORD: Final = 24
"""A longer word, such as a path, may be broken over lines."""

_NUMBER: Final = re.compile(r"(?<=\d) (?=\S)")
_GLUE: Final = "\u00a0"
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
        lines = _wrapped(escaped(part), width) if isinstance(part, str) else table_lines(part, width)
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


def escaped(text: str) -> str:
    """Return text with escapes for what a terminal cannot show, or would obey."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """Return a table as lines, of at most ``width`` columns where that can be."""
    headers = [escaped(column.header) for column in table.columns]
    rows = [[escaped(column.cell(row)) for column in table.columns] for row in table.rows]
    return _fitted(headers, rows, [column.is_text for column in table.columns], width)


def _fitted(headers: list[str], rows: list[list[str]], is_text: list[bool], width: int | None) -> list[str]:
    columns = range(len(headers))
    natural = [max(map(cell_width, (headers[c], *(row[c] for row in rows)))) for c in columns]
    if width is None or _total(natural) <= width:
        return _grid(headers, rows, is_text, natural)
    least = [_least_width(headers[c], [row[c] for row in rows], is_text[c]) for c in columns]
    if _total(least) <= width:
        spare = width - _total(least)
        for c in columns:
            more = min(spare, natural[c] - least[c])
            least[c] += more
            spare -= more
        return _grid(headers, rows, is_text, least)
    if len(headers) < 3 or any(_total([least[0], least[c]]) > width for c in columns[1:]):
        return _stacked(headers, rows, width)
    first = 1
    while first + 1 < len(headers) and _total([least[0], *least[1 : first + 2]]) <= width:
        first += 1
    begun, others = [*columns[: first + 1]], [0, *columns[first + 1 :]]
    lines = []
    for chosen in (begun, others):
        part = [[row[c] for c in chosen] for row in rows]
        lines += ["", *_fitted([headers[c] for c in chosen], part, [is_text[c] for c in chosen], width)]
    return lines[1:]


def _least_width(header: str, cells: Sequence[str], is_text: bool) -> int:
    """Return how narrow a column can be: headers and texts break between words, numbers not at all."""
    longest = max(map(cell_width, cells), default=0)
    if is_text:
        longest = min(
            longest, max(_NARROWEST_TEXT, min(_LONGEST_WORD, max(map(_longest_word, cells), default=0)))
        )
    return max(_longest_word(header), longest)


def _longest_word(text: str) -> int:
    return max(map(cell_width, _glued(text).split(" ")))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool], widths: Sequence[int]
) -> list[str]:
    lines = []
    for row in [headers, *rows] if any(headers) else rows:
        broken = [
            _broken(cell, width) if text or row is headers else [cell]
            for cell, text, width in zip(row, is_text, widths, strict=True)
        ]
        for parts in zip_longest(*broken, fillvalue=""):
            padded = (
                part + _blank(width - cell_width(part)) if text else _blank(width - cell_width(part)) + part
                for part, text, width in zip(parts, is_text, widths, strict=True)
            )
            lines.append((" " * _GAP).join(padded).rstrip())
    return lines


def _stacked(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a block a row, each cell behind its header."""
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for header, cell in zip(headers, row, strict=True):
            lines += _wrapped(f"{header}: {cell}" if header else cell, width)
    return lines


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text
    )


def _blank(width: int) -> str:
    return " " * width


def _wrapped(line: str, width: int | None) -> list[str]:
    """Return a line in lines of at most ``width`` columns, further ones under its beginning."""
    if width is None or cell_width(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    broken = textwrap.wrap(
        _glued(text),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(_GLUE, " ") for part in broken]


def _broken(cell: str, width: int) -> list[str]:
    if cell_width(cell) <= width:
        return [cell]
    return [part.replace(_GLUE, " ") for part in textwrap.wrap(_glued(cell), width, break_on_hyphens=False)]


def _glued(text: str) -> str:
    """Return text in which a number and the word behind it are one word."""
    return _NUMBER.sub(_GLUE, text)


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

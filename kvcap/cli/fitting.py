"""Text in the width of a terminal: escapes, lines that wrap, tables that break without cutting a number."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

_GAP: Final = 2
_NARROWEST_TEXT: Final = 12
_LONGEST_WORD: Final = 24
"""A longer word, such as a path, may be broken over lines."""

_NUMBER: Final = re.compile(r"(?<=\d) (?=\S)|(?<=%) (?=\d)")
"""Between a number and its unit, and between a share and what it is of."""

_GLUE: Final = "\u00a0"


def escaped(text: str) -> str:
    """Return text with escapes for what a terminal cannot show, or would obey."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def fitted(headers: list[str], rows: list[list[str]], is_text: list[bool], width: int | None) -> list[str]:
    """Return a table as lines of at most ``width`` columns, where that can be; None is any width.

    Parameters
    ----------
    headers, rows
        Text without control characters; without any header there is no line of headers.
    is_text
        Which columns are flush left and may wrap.
    width
        Columns of the terminal.
    """
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
    keys = _key_columns(is_text)
    others = [*columns[len(keys) :]]
    if not others or any(_total([least[k] for k in (*keys, c)]) > width for c in others):
        return _stacked(headers, rows, width)
    fitting = 1
    while _total([least[c] for c in (*keys, *others[: fitting + 1])]) <= width:
        fitting += 1
    lines: list[str] = []
    for chosen in ((*keys, *others[:fitting]), (*keys, *others[fitting:])):
        part = [[row[c] for c in chosen] for row in rows]
        lines += ["", *fitted([headers[c] for c in chosen], part, [is_text[c] for c in chosen], width)]
    return lines[1:]


def _key_columns(is_text: Sequence[bool]) -> list[int]:
    """Return the columns that name a row: the first, and a second of text behind one of text."""
    return [0, 1] if all(is_text[:2]) and len(is_text) > 2 else [0]


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
            lines += wrapped(f"{header}: {cell}" if header else cell, width)
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


def wrapped(line: str, width: int | None) -> list[str]:
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

"""Tables for people: rich on a terminal, plain and aligned in a pipe or a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, *, left: int = 1
) -> None:
    """Print rows under headers, the first ``left`` columns flush left and the others flush right."""
    if stream.isatty():
        _print_rich(headers, rows, stream, left)
    else:
        print("\n".join(aligned(headers, rows, left=left)), file=stream)


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return a header line and a line per row, in columns two spaces apart."""
    table = [headers, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(headers))]
    lines = []
    for row in table:
        cells = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _print_rich(headers: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, left: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, header in enumerate(headers):
        table.add_column(header, justify="left" if column < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(file=stream, highlight=False, markup=False).print(table)

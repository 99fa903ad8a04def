"""Tables of text that is laid out already."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TextIO

from kvcap.cli.writer import Column, Table, print_parts


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, *, left: int = 1
) -> None:
    """Print rows under headers, the first ``left`` columns flush left and the others flush right."""
    columns = [Column(header, itemgetter(at), is_text=at < left) for at, header in enumerate(headers)]
    print_parts([Table(columns, rows)], stream)

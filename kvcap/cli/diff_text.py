"""Two replays side by side as text, JSON or CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Final, TextIO

from kvcap.analysis.diff import DiffRow
from kvcap.cli.tables import print_table
from kvcap.units import format_percent, format_size

if TYPE_CHECKING:
    from kvcap.analysis.diff import Diff

MANY_TIMES: Final = 10
"""From here on a change is said as a multiple."""


def write_diff_json(found: Diff, stream: TextIO) -> None:
    """Write the comparison as one JSON document."""
    json.dump({"schema": "kvcap.diff/1", **asdict(found)}, stream, indent=2)
    stream.write("\n")


def write_diff_csv(found: Diff, stream: TextIO) -> None:
    """Write a line per number."""
    writer = csv.DictWriter(stream, [field.name for field in fields(DiffRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in found.rows)


def write_diff_text(found: Diff, stream: TextIO) -> None:
    """Write the comparison for people."""
    for name, run in (("A", found.a), ("B", found.b)):
        print(f"{name}: {', '.join(run.reading.sources)}, replayed {run.created_at}", file=stream)
    if found.definitions:
        differing = (f"{name} {_text(a)} / {_text(b)}" for name, (a, b) in found.definitions.items())
        print(f"not the same in both: {'; '.join(differing)}", file=stream)
    print(file=stream)
    print_table(["", "A", "B", "Change"], [_cells(row) for row in found.rows], stream)


def _cells(row: DiffRow) -> list[str]:
    return [row.name, _value(row.a, row), _value(row.b, row), _change(row)]


def _value(value: float | None, row: DiffRow) -> str:
    if value is None:
        return "-"
    if row.kind == "rate":
        return format_percent(value)
    if row.kind == "bytes":
        return format_size(value)
    return f"{value:,.0f}{' tokens' if row.kind == 'tokens' else ''}"


def _change(row: DiffRow) -> str:
    """Return percentage points between rates, and per cent between everything else."""
    if row.a is None or row.b is None:
        return "-"
    if row.kind == "rate":
        return f"{100 * (row.b - row.a):+.2f} pt"
    if row.a == row.b:
        return "="
    if not row.a:
        return "new"
    ratio = row.b / row.a
    return f"{100 * (ratio - 1):+.1f} %" if ratio < MANY_TIMES else f"{ratio:,.0f} times"


def _text(value: object) -> str:
    return "none" if value is None else str(value)

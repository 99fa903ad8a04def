"""Rows of an Arrow table as text."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, TextIO

from kvcap.cli.tables import print_table

if TYPE_CHECKING:
    import pyarrow as pa


def write_rows(table: pa.Table, form: str, stream: TextIO) -> None:
    """Write rows as an aligned ``table``, as ``csv``, or as one ``json`` array of objects."""
    if form == "json":
        json.dump(table.to_pylist(), stream, indent=2, default=str)
        stream.write("\n")
    elif form == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.column_names)
        for row in table.to_pylist():
            writer.writerow(row.values())
    else:
        rows = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
        print_table(table.column_names, rows, stream, left=0)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    return str(value)

"""Parquet files with kvcap's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from os import PathLike


class TableWriter:
    """Write record batches to one Parquet file."""

    def __init__(self, path: str | PathLike[str], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Finish the file; may be called again."""
        self._writer.close()


def write_table(table: pa.Table, path: str | PathLike[str]) -> None:
    """Write a table to one Parquet file."""
    pq.write_table(table, path, compression="zstd")

"""Parquet files out: written beside and renamed, with provenance, in encodings chosen by measurement.

Ids of real traces mostly count up, so that DELTA_BINARY_PACKED leaves a hundredth of them; random 64-bit
hashes do not, and plain or dictionary pages are smaller and faster there. So a sample of the first batch is
encoded each way, and what is smallest is used for the file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.errors import UsageError
from kvcap.schema import PROVENANCE_KEY

if TYPE_CHECKING:
    from os import PathLike

Encoding = Literal["DELTA_BINARY_PACKED", "PLAIN", "dictionary"]

COMPRESSION: Final = "zstd"
_ENCODINGS: Final[tuple[Encoding, ...]] = ("DELTA_BINARY_PACKED", "PLAIN", "dictionary")
_SAMPLE_VALUES: Final = 1 << 18


class TableWriter:
    """Write record batches to one Parquet file, each as a row group of its own.

    Parameters
    ----------
    path
        The file to write.
    schema
        Schema of every batch.
    """

    def __init__(self, path: str | PathLike[str], schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; the first one decides the encodings."""
        if self._writer is None:
            self._writer = _writer(self._path, self._schema, _choose_encodings(batch))
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def close(self, provenance: Mapping[str, Any] | None = None) -> None:
        """Finish the file; may be called again.

        Parameters
        ----------
        provenance
            How the file came about: JSON in its metadata, under :data:`kvcap.schema.PROVENANCE_KEY`.
        """
        if self._writer is None:
            self._writer = _writer(self._path, self._schema, {})
        if provenance is not None:
            self._writer.add_key_value_metadata({PROVENANCE_KEY: json.dumps(provenance)})
        self._writer.close()


@contextmanager
def written_beside(path: str | PathLike[str], *, force: bool) -> Iterator[Path]:
    """Yield a path beside ``path``; what is there takes its place when the block ends without an error.

    Raises
    ------
    UsageError
        If ``path`` is a directory, or exists and ``force`` is false.
    """
    check_new(path, force=force)
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield beside
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_table(table: pa.Table, path: str | PathLike[str]) -> None:
    """Write a table to one Parquet file."""
    pq.write_table(table, path, compression=COMPRESSION)


def write_table_atomically(table: pa.Table, path: str | PathLike[str] | None, *, force: bool) -> None:
    """Write a table to a Parquet file that appears when it is complete, or to stdout (None or ``-``).

    Raises
    ------
    UsageError
        If the file exists and ``force`` is false.
    """
    if path is None or path == "-":
        pq.write_table(table, pa.PythonFile(sys.stdout.buffer, mode="w"), compression=COMPRESSION)
        return
    with written_beside(path, force=force) as beside:
        write_table(table, beside)


def check_new(path: str | PathLike[str], *, force: bool) -> None:
    """Refuse to overwrite a file.

    Raises
    ------
    UsageError
        If ``path`` is a directory, or exists and ``force`` is false.
    """
    if Path(path).is_dir():
        raise UsageError(f"{path} is a directory, expected a file to write")
    if not force and Path(path).exists():
        raise UsageError(f"{path} exists, expected a new file (--force overwrites it)")


def _writer(where: Any, schema: pa.Schema, encodings: Mapping[str, Encoding]) -> pq.ParquetWriter:
    lists = [_element(field.name) for field in schema if _is_integer_list(field.type)]
    scalars = [field.name for field in schema if not pa.types.is_nested(field.type)]
    others = [column for column in lists if encodings.get(column, "dictionary") == "dictionary"]
    return pq.ParquetWriter(
        where,
        schema,
        compression=COMPRESSION,
        use_dictionary=[*scalars, *others],
        column_encoding={column: value for column, value in encodings.items() if value != "dictionary"}
        or None,
    )


def _choose_encodings(batch: pa.RecordBatch) -> dict[str, Encoding]:
    """Return the encoding of each list of integers that makes a sample of it smallest."""
    chosen: dict[str, Encoding] = {}
    for field in batch.schema:
        if _is_integer_list(field.type):
            values = batch.column(field.name).flatten()[:_SAMPLE_VALUES]
            sizes = {encoding: _encoded_size(values, encoding) for encoding in _ENCODINGS}
            chosen[_element(field.name)] = min(_ENCODINGS, key=sizes.__getitem__)
    return chosen


def _encoded_size(values: pa.Array, encoding: Encoding) -> int:
    sink = pa.BufferOutputStream()
    table = pa.table({"values": values})
    pq.write_table(
        table,
        sink,
        compression=COMPRESSION,
        use_dictionary=encoding == "dictionary",
        column_encoding=None if encoding == "dictionary" else {"values": encoding},
    )
    return int(sink.getvalue().size)


def _is_integer_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_integer(kind.value_type))


def _element(column: str) -> str:
    return f"{column}.list.element"

"""Parquet files out: written beside and renamed, with provenance, in encodings chosen by measurement.

Ids of real traces mostly count up, so that DELTA_BINARY_PACKED leaves a hundredth of them; random 64-bit
hashes do not, and plain or dictionary pages are smaller and faster there. So a sample of the first batch is
encoded each way, and what is smallest is used for the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.schema import PROVENANCE_KEY
from kvcap.writing import check_ending, written_beside

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

Encoding = Literal["DELTA_BINARY_PACKED", "PLAIN", "dictionary"]

COMPRESSION: Final = "zstd"
_ENCODINGS: Final[tuple[Encoding, ...]] = ("DELTA_BINARY_PACKED", "PLAIN", "dictionary")
_SAMPLE_VALUES: Final = 1 << 18
_TABLE_ROW_GROUP: Final = 1 << 20


class ParquetSink:
    """Write one Parquet file, batch by batch.

    Parameters
    ----------
    where
        A path, or an Arrow stream.
    schema
        Schema of every batch.
    """

    def __init__(self, where: Path | pa.NativeFile, schema: pa.Schema) -> None:
        self._where = where
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._provenance: dict[str, Any] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group of its own; the first one decides the encodings."""
        if self._writer is None:
            self._writer = _writer(self._where, self._schema, _choose_encodings(batch))
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def set_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Say how the file came about: JSON in its metadata, under :data:`kvcap.schema.PROVENANCE_KEY`."""
        self._provenance = dict(provenance)

    def close(self) -> None:
        """Write what ends the file."""
        writer = self._writer or _writer(self._where, self._schema, {})
        if self._provenance is not None:
            writer.add_key_value_metadata({PROVENANCE_KEY: json.dumps(self._provenance)})
        writer.close()


class BufferSink(ParquetSink):
    """Write one Parquet file in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._stream = pa.BufferOutputStream()
        super().__init__(self._stream, schema)

    def whole(self) -> pa.Buffer:
        """End the file, and return it."""
        self.close()
        return self._stream.getvalue()


@contextmanager
def parquet_file(
    path: str | PathLike[str], schema: pa.Schema, *, force: bool = False
) -> Iterator[ParquetSink]:
    """Yield the sink of a file that appears when the block ends without an error.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`, or if the name says another format.
    """
    check_ending(path, "Parquet", ".parquet")
    with written_beside(path, force=force) as beside:
        sink = ParquetSink(beside, schema)
        try:
            yield sink
        finally:
            sink.close()


def write_table(table: pa.Table, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a table to one Parquet file, beside and then renamed.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    """
    with parquet_file(path, table.schema, force=force) as sink:
        for batch in table.to_batches(max_chunksize=_TABLE_ROW_GROUP):
            sink.write(batch)


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

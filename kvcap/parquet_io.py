"""Parquet files out: written beside and renamed, with provenance, in encodings chosen by measurement.

Ids of real traces mostly count up, so that DELTA_BINARY_PACKED leaves a hundredth of them; random 64-bit
hashes do not, and plain or dictionary pages are smaller and faster there. So a sample of the first batch is
encoded each way, and what is smallest is used for the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.errors import OutputExistsError, UsageError
from kvcap.schema import PROVENANCE_KEY

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

Encoding = Literal["DELTA_BINARY_PACKED", "PLAIN", "dictionary"]

COMPRESSION: Final = "zstd"
_ENCODINGS: Final[tuple[Encoding, ...]] = ("DELTA_BINARY_PACKED", "PLAIN", "dictionary")
_SAMPLE_VALUES: Final = 1 << 18
_TABLE_ROW_GROUP: Final = 1 << 20


class ParquetSink:
    """Write one Parquet file beside its final path, and rename it when all of it is there.

    Parameters
    ----------
    path
        The file to write.
    schema
        Schema of every batch.
    force
        Whether to overwrite an existing file.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is false.
    """

    def __init__(self, path: str | PathLike[str], schema: pa.Schema, *, force: bool = False) -> None:
        check_new(path, force=force)
        self._path = Path(path)
        self._beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._provenance: dict[str, Any] | None = None

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._writer = self._writer or _writer(self._beside, self._schema, {})
                if self._provenance is not None:
                    self._writer.add_key_value_metadata({PROVENANCE_KEY: json.dumps(self._provenance)})
            if self._writer is not None:
                self._writer.close()
            if kind is None:
                self._beside.replace(self._path)
        finally:
            self._beside.unlink(missing_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group of its own; the first one decides the encodings."""
        if self._writer is None:
            self._writer = _writer(self._beside, self._schema, _choose_encodings(batch))
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def set_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Say how the file came about: JSON in its metadata, under :data:`kvcap.schema.PROVENANCE_KEY`."""
        self._provenance = dict(provenance)


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


class BufferSink:
    """Write one Parquet file in memory, encoded as :class:`ParquetSink` does.

    Parameters
    ----------
    schema
        Schema of every batch.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._stream = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group of its own; the first one decides the encodings."""
        if self._writer is None:
            self._writer = _writer(self._stream, self._schema, _choose_encodings(batch))
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def close(self) -> pa.Buffer:
        """Return the whole file."""
        (self._writer or _writer(self._stream, self._schema, {})).close()
        return self._stream.getvalue()


def write_table(table: pa.Table, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a table to one Parquet file, beside and then renamed.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is false.
    """
    with ParquetSink(path, table.schema, force=force) as sink:
        for batch in table.to_batches(max_chunksize=_TABLE_ROW_GROUP):
            sink.write(batch)


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
        raise OutputExistsError(path)


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

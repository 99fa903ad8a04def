"""Parquet files in and out: written beside and renamed, with provenance, in encodings chosen by measurement.

Ids of real traces mostly count up, so that DELTA_BINARY_PACKED leaves a hundredth of them; random 64-bit hashes do
not, and plain or dictionary pages are smaller and faster there. So the first batch is encoded each way, and the
smallest one is used for the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.errors import SchemaError, UsageError
from kvcap.schema import PROVENANCE_KEY, SCHEMA_KEY

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

    def __init__(self, path: str, schema: pa.Schema, *, force: bool = False) -> None:
        check_new(path, force=force)
        self._path = Path(path)
        self._beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._metadata: dict[str, Any] = {}

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._writer is None:
                self._open({})
            if self._writer is not None:
                if kind is None:
                    self._writer.add_key_value_metadata({PROVENANCE_KEY: json.dumps(self._metadata)})
                self._writer.close()
            if kind is None:
                self._beside.replace(self._path)
        finally:
            self._beside.unlink(missing_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group of its own."""
        if self._writer is None:
            self._open(_choose_encodings(batch))
        assert self._writer is not None
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def set_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Say how the file came about: JSON in its metadata, under :data:`kvcap.schema.PROVENANCE_KEY`."""
        self._metadata = dict(provenance)

    def _open(self, encodings: Mapping[str, Encoding]) -> None:
        self._writer = _writer(str(self._beside), self._schema, encodings)


def write_table(table: pa.Table, path: str, *, force: bool = False) -> None:
    """Write a table to one Parquet file, beside and then renamed.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is false.
    """
    with ParquetSink(path, table.schema, force=force) as sink:
        for batch in table.to_batches(max_chunksize=_TABLE_ROW_GROUP):
            sink.write(batch)


def check_new(path: str, *, force: bool) -> None:
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


def read_provenance(schema: pa.Schema) -> dict[str, Any]:
    """Return how a file came about, empty if it does not say."""
    text = (schema.metadata or {}).get(PROVENANCE_KEY)
    if text is None:
        return {}
    try:
        provenance = json.loads(text)
    except ValueError:
        return {}
    return provenance if isinstance(provenance, dict) else {}


def read_schema_name(schema: pa.Schema) -> tuple[str, int] | None:
    """Return table and version of a file that kvcap wrote, or None for any other."""
    name, _, version = (schema.metadata or {}).get(SCHEMA_KEY, b"").decode(errors="replace").partition("/")
    return (name, int(version)) if version.isdecimal() else None


@contextmanager
def open_parquet(name: str, filesystem: Any = None, path: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading.

    Raises
    ------
    SchemaError
        If it is damaged or no Parquet file.
    """
    try:
        with pq.ParquetFile(path or name, filesystem=filesystem) as file:
            yield file
    except pa.ArrowException as error:
        raise SchemaError(name, "a Parquet file", f"something else ({_first_line(error)})") from error
    except OSError as error:
        if error.errno is None:
            raise SchemaError(name, "a Parquet file", f"damaged data ({_first_line(error)})") from error
        raise


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".")


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
    return pa.types.is_list(kind) and pa.types.is_integer(kind.value_type)


def _element(column: str) -> str:
    return f"{column}.list.element"


def row_group_sizes(file: pq.ParquetFile, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return rows and values, of all of ``columns`` together, of each row group of a file."""
    sizes: list[tuple[int, int]] = []
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
        sizes.append((group.num_rows, values))
    return sizes

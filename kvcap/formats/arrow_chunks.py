"""Arrow columns as chunks of records: foreign Parquet files and tables in memory.

Every dialect reads them as it reads JSON: a row is a record. Lists of integers stay in their columns, so
that no Python object is made per id. A directory in the form of Hive (``day=2026-08-01/part.parquet``) gives
its names and values as further columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.formats.parquet_files import checked_row_group_sizes, open_parquet
from kvcap.formats.rows import Ids, Values, integer_flags
from kvcap.formats.sources import Source
from kvcap.schema import EARLIEST_US, LATEST_US

_MAX_ROWS: Final = 1 << 14
_MAX_VALUES: Final = 1 << 20
_DETECTION_ROWS: Final = 100


@dataclass(frozen=True)
class ArrowChunk:
    """Rows of one table.

    Parameters
    ----------
    path
        The file, as the user named it.
    first_line
        Number of the first row, from 1.
    batch
        The rows.
    partition
        Columns that the path gives.
    """

    path: str
    first_line: int
    batch: pa.RecordBatch
    partition: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> Values:
        """How to read the lists of its records."""
        return ARROW_VALUES

    @property
    def size(self) -> int:
        """Bytes of the rows."""
        return int(self.batch.nbytes)

    def first_records(self) -> Iterator[tuple[int, Any]]:
        """Yield number and record of the first rows, with plain lists."""
        records = _readable(self.batch.slice(0, _DETECTION_ROWS)).to_pylist()
        for index, record in enumerate(records):
            yield self.first_line + index, dict(self.partition) | record

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and record of every row; lists of integers are :class:`Ids`."""
        batch = _readable(self.batch)
        columns = [_column_values(batch.column(index)) for index in range(batch.num_columns)]
        names = batch.schema.names
        constant = dict(self.partition)
        for index in range(batch.num_rows):
            record = dict(constant)
            record.update((name, column[index]) for name, column in zip(names, columns, strict=True))
            yield self.first_line + index, record

    def plain_records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and record of every row as JSON would have it, for bodies of text.

        Every struct of a column has the keys of all of them: what is null in one was never there.
        """
        constant = dict(self.partition)
        for index, record in enumerate(_readable(self.batch).to_pylist()):
            yield self.first_line + index, constant | _without_nulls(record)


def read_parquet_chunks(source: Source, max_request_tokens: int) -> Iterator[ArrowChunk]:
    """Yield the rows of a Parquet file in bounded chunks.

    Raises
    ------
    SchemaError
        If the file is damaged.
    """
    partition = tuple(
        (name, unquote(value))
        for name, equals, value in (part.partition("=") for part in source.path.split("/")[:-1])
        if equals and name
    )
    with open_parquet(source.name, source.filesystem, source.path) as file:
        lists = [field.name for field in file.schema_arrow if pa.types.is_nested(field.type)]
        line = 1
        sizes = checked_row_group_sizes(file, lists, source.name, max_request_tokens)
        for group, (rows, values) in enumerate(sizes):
            size = max(1, min(_MAX_ROWS, _MAX_VALUES // max(1, values // max(1, rows))))
            for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                if batch.num_rows:
                    yield ArrowChunk(source.name, line, batch, partition)
                    line += batch.num_rows


def table_chunks(table: pa.Table, name: str) -> Iterator[ArrowChunk]:
    """Yield the rows of a table in memory in bounded chunks."""
    line = 1
    for batch in table.to_batches(max_chunksize=_MAX_ROWS):
        if batch.num_rows:
            yield ArrowChunk(name, line, batch)
            line += batch.num_rows


class ArrowValues(Values):
    """Values of a record whose lists may stand in columns."""

    __slots__ = ()

    def integers(self, value: Any, field: str) -> Ids:
        """Return a list of integers of 64 bits, signed or unsigned."""
        if type(value) is Ids:
            return value
        return Values.integers(self, value, field)


ARROW_VALUES: Final = ArrowValues()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose values are Python's: times are whole microseconds without a zone, which are UTC.

    Dates, durations and times of day are numbers, and what is no value of JSON at all is text or null. Times
    that Python cannot hold become numbers too: they matter only to whoever asks for their column.
    """
    arrays = [_readable_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _readable_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        times = column.cast(pa.timestamp("us"), safe=False)
        numbers = times.cast(pa.int64())
        extremes = pc.min_max(numbers)
        if len(numbers) == numbers.null_count or (
            extremes["min"].as_py() >= EARLIEST_US and extremes["max"].as_py() <= LATEST_US
        ):
            return times
        return numbers
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_date64(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return column.cast(pa.int64())
    return column


def _column_values(column: pa.Array) -> Sequence[Any]:
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_integer(kind.value_type) or column.null_count == len(column):
        return column.to_pylist()  # type: ignore[no-any-return]
    if column.flatten().null_count:
        return column.to_pylist()  # type: ignore[no-any-return]
    values = column.flatten().to_numpy(zero_copy_only=False)
    lengths = np.asarray(column.value_lengths().fill_null(0), dtype=np.int64)
    ends = np.cumsum(lengths)
    bits = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    plain = integer_flags(values) == 0
    valid = column.is_valid().to_pylist()
    return [
        Ids(bits[begin:end], 0 if plain else integer_flags(values[begin:end]), begin) if ok else None
        for begin, end, ok in zip((ends - lengths).tolist(), ends.tolist(), valid, strict=True)
    ]

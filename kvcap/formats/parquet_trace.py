"""Traces that kvcap wrote, read back from Parquet as they stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import EmptyTraceError, SchemaError, UsageError
from kvcap.formats.base import ReadOptions, ReadReport
from kvcap.formats.sorting import sorted_by_time
from kvcap.formats.sources import Source
from kvcap.parquet_io import open_parquet, read_provenance, read_schema_name, row_group_sizes
from kvcap.schema import PAYLOAD_COLUMNS, SCHEMA_VERSION, TraceKind, trace_kind, trace_schema

MAX_BATCH_IDS: Final = 1 << 22
_MAX_ROWS: Final = 1 << 17


class ParquetTrace:
    """A trace in one or more Parquet files; see :class:`kvcap.formats.base.Trace`.

    Several files must hold the same columns; ``request_id`` runs on over all of them.

    Raises
    ------
    SchemaError
        If a file is no trace, or of a newer version.
    UsageError
        If an option names a column that is not there.
    """

    def __init__(self, sources: Sequence[Source], options: ReadOptions) -> None:
        self._sources = sources
        self._options = options
        self.report = ReadReport("parquet", tuple(source.name for source in sources))
        schemas = [_read_schema(source) for source in sources]
        self.schema, self.kind = _target_schema(sources[0].name, schemas[0], options)
        self.chained = (
            all(bool(read_provenance(schema).get("chained")) for schema in schemas) and len(sources) == 1
        )
        for source, schema in zip(sources, schemas, strict=True):
            for field in self.schema:
                if field.name not in schema.names:
                    raise SchemaError(
                        source.name, f"column {field.name}", f"columns {', '.join(schema.names)}"
                    )
        if options.pool is not None and options.pool not in schemas[0].names:
            raise UsageError(f"--pool {options.pool}: {sources[0].name} has no such column")
        self._batches: Iterator[pa.RecordBatch] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in replay order; may be called once."""
        if self._batches is not None:
            raise UsageError("a trace is read once, expected a newly opened one")
        self._batches = self._make_batches()
        if self._options.sort_by_time:
            self._batches = sorted_by_time(self._batches, self.schema)
        return self._batches

    def close(self) -> None:
        """Release the files."""
        if self._batches is not None:
            self._batches.close()  # type: ignore[attr-defined]

    def _make_batches(self) -> Iterator[pa.RecordBatch]:
        wanted = self._options.max_requests
        last: int | None = None
        for source in self._sources:
            for batch in self._read(source):
                left = (
                    batch.num_rows if wanted is None else min(batch.num_rows, wanted - self.report.requests)
                )
                converted = self._convert(batch.slice(0, left), source.name)
                last = self._count(converted, last)
                yield converted
                if wanted is not None and self.report.requests >= wanted:
                    return
        if self.report.requests == 0:
            raise EmptyTraceError(self._sources[0].name, "holds no request")

    def _read(self, source: Source) -> Iterator[pa.RecordBatch]:
        columns = list(
            dict.fromkeys([*self.schema.names, *([self._options.pool] if self._options.pool else [])])
        )
        columns.remove("request_id")
        payload = [field.name for field in PAYLOAD_COLUMNS[self.kind]]
        with open_parquet(source.name, source.filesystem, source.path) as file:
            for group, (rows, values) in enumerate(row_group_sizes(file, payload)):
                per_row = max(1, values // max(1, rows))
                size = max(1, min(_MAX_ROWS, MAX_BATCH_IDS // per_row))
                for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=columns):
                    if batch.num_rows:
                        yield batch

    def _convert(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        first = self.report.requests
        arrays = []
        for field in self.schema:
            if field.name == "request_id":
                column: Any = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
            elif field.name == "pool" and self._options.pool is not None:
                column = pc.cast(batch.column(self._options.pool), pa.string())
            else:
                column = batch.column(field.name)
            try:
                arrays.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowException as error:
                raise SchemaError(
                    name, f"{field.name} as {field.type}", f"{column.type} ({error})"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _count(self, batch: pa.RecordBatch, last: int | None) -> int | None:
        self.report.records += batch.num_rows
        self.report.requests += batch.num_rows
        times = batch.column("timestamp").drop_null().cast(pa.int64()).to_numpy()
        if last is not None:
            times = np.concatenate(([last], times))
        self.report.backward_timestamps += int(np.count_nonzero(np.diff(times) < 0))
        if self.kind == "hash_ids":
            self._count_lengths(batch)
        return int(times[-1]) if times.size else last

    def _count_lengths(self, batch: pa.RecordBatch) -> None:
        plain = batch.filter(pc.is_null(batch.column("block_tokens"))).select(
            ["hash_ids", "input_length", "block_size"]
        )
        count = pc.list_value_length(plain.column("hash_ids")).to_numpy(zero_copy_only=False)
        size = plain.column("block_size").to_numpy(zero_copy_only=False)
        needed = -(-plain.column("input_length").to_numpy(zero_copy_only=False) // size)
        self.report.overfull_requests += int(np.count_nonzero(count > needed))
        self.report.underfull_requests += int(np.count_nonzero(count < needed))


def _read_schema(source: Source) -> pa.Schema:
    with open_parquet(source.name, source.filesystem, source.path) as file:
        return file.schema_arrow


def _target_schema(name: str, schema: pa.Schema, options: ReadOptions) -> tuple[pa.Schema, TraceKind]:
    table = read_schema_name(schema)
    kind = trace_kind(schema)
    if table is None or table[0] != "trace" or kind is None:
        raise SchemaError(name, "a trace", f"columns {', '.join(schema.names)}")
    if table[1] > SCHEMA_VERSION:
        raise SchemaError(name, f"a trace of version {SCHEMA_VERSION} or older", f"version {table[1]}")
    own = set(trace_schema(kind).names)
    extra = [field for field in schema if field.name not in own]
    for column in options.keep:
        if column not in schema.names:
            raise UsageError(f"--keep {column}: {name} has no such column")
    if options.keep:
        extra = [field for field in extra if field.name in options.keep]
    return trace_schema(kind, tuple(extra)), kind

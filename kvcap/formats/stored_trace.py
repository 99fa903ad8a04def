"""Traces that kvcap made, in Parquet or in memory, read back as they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import EmptyTraceError, SchemaError, UsageError
from kvcap.formats.base import ReadReport
from kvcap.formats.identity import compose
from kvcap.formats.merging import latest_times, merged_order, order_notice
from kvcap.formats.options import ReadOptions
from kvcap.formats.parallel import ahead, close_batches, working_threads
from kvcap.formats.parquet_files import (
    checked_row_group_sizes,
    open_parquet,
    read_provenance,
    read_schema_name,
)
from kvcap.formats.sorting import reordered, sorted_by_time
from kvcap.formats.sources import Source, is_parquet
from kvcap.formats.stored_checks import check_pools, check_stored
from kvcap.schema import (
    LOGGED_COLUMNS,
    PAYLOAD_COLUMNS,
    SCHEMA_VERSION,
    TraceKind,
    trace_kind,
    trace_schema,
)

MAX_BATCH_IDS: Final = 1 << 20
_MAX_ROWS: Final = 1 << 17


@dataclass(frozen=True)
class Part:
    """One file or table of a trace: name, schema, how it came about, and how to read some columns."""

    name: str
    schema: pa.Schema
    provenance: dict[str, Any]
    read: Callable[[list[str], list[str]], Iterator[pa.RecordBatch]]


def stored_files(sources: Sequence[Source], max_request_tokens: int) -> list[Part] | None:
    """Return the files of a trace that kvcap wrote, or None if the first one is something else.

    Raises
    ------
    SchemaError
        If the first one is a trace and another is not, or one is of a newer version.
    """
    parts: list[Part] = []
    for source in sources:
        if not is_parquet(source):
            raise SchemaError(source.name, "a Parquet trace, as the first input is", "something else")
        with open_parquet(source.name, source.filesystem, source.path) as file:
            schema, provenance = file.schema_arrow, read_provenance(file.metadata.metadata)
        if not parts and not _is_trace(source.name, schema):
            return None
        parts.append(
            _upgraded(Part(source.name, schema, provenance, partial(_read_file, source, max_request_tokens)))
        )
    return parts


def stored_table(table: pa.Table) -> Part | None:
    """Return a table that is a trace of kvcap, or None."""
    if not _is_trace("table", table.schema):
        return None
    provenance = read_provenance(table.schema.metadata)
    part = Part(
        "table",
        table.schema,
        provenance,
        lambda columns, _: iter(table.select(columns).to_batches(_MAX_ROWS)),
    )
    return _upgraded(part)


def _upgraded(part: Part) -> Part:
    """Return a part as the schema of today has it.

    Version 1 had no columns of what logs say beside prompts; one of such a name was kept by the user.
    """
    version = read_schema_name(part.schema)
    if version is None or version[1] > 1:
        return part
    logged = {field.name: field for field in LOGGED_COLUMNS}
    stored = {(f"source_{name}" if name in logged else name): name for name in part.schema.names}
    fields = [part.schema.field(old).with_name(new) for new, old in stored.items()]
    schema = pa.schema([*fields, *LOGGED_COLUMNS], part.schema.metadata)

    def read(columns: list[str], payload: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in part.read([stored[name] for name in columns if name in stored], payload):
            arrays = []
            for name in columns:
                if name in stored:
                    arrays.append(batch.column(stored[name]))
                elif name == "namespace" and "model" in columns:
                    arrays.append(_composed(["model"], [batch.column("model")]))
                else:
                    arrays.append(pa.nulls(batch.num_rows, logged[name].type))
            yield pa.RecordBatch.from_arrays(
                arrays, schema=pa.schema([schema.field(name) for name in columns])
            )

    return Part(part.name, schema, part.provenance, read)


def _composed(names: Sequence[str], columns: Sequence[Any]) -> Any:
    """Return the namespaces that columns make."""
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    known: dict[tuple[Any, ...], str | None] = {}
    namespaces = []
    for row in rows:
        if row not in known:
            known[row] = compose(zip(names, row, strict=False))
        namespaces.append(known[row])
    return pa.array(namespaces, pa.string())


def _is_trace(name: str, schema: pa.Schema) -> bool:
    table = read_schema_name(schema)
    if table is None or trace_kind(schema) is None:
        return False
    if table[0] != "trace":
        raise SchemaError(name, "a trace", f"the table {table[0]}")
    if table[1] > SCHEMA_VERSION:
        raise SchemaError(name, f"a trace of version {SCHEMA_VERSION} or older", f"version {table[1]}")
    return True


def _read_file(
    source: Source, max_request_tokens: int, columns: list[str], payload: list[str]
) -> Iterator[pa.RecordBatch]:
    with open_parquet(source.name, source.filesystem, source.path) as file:
        for group, (rows, values) in enumerate(
            checked_row_group_sizes(file, payload, source.name, max_request_tokens)
        ):
            per_row = max(1, values // max(1, rows))
            size = max(1, min(_MAX_ROWS, MAX_BATCH_IDS // per_row))
            yield from file.iter_batches(batch_size=size, row_groups=[group], columns=columns)


class StoredTrace:
    """A trace of kvcap in one or more parts; see :class:`kvcap.formats.base.Trace`.

    ``request_id`` runs on over all parts. A trace is chained if it is one part that says so: ids of two
    conversions have nothing to do with each other.

    Raises
    ------
    SchemaError
        If a part lacks a column that the first one has.
    UsageError
        If an option names a column that is not there.
    """

    def __init__(self, parts: Sequence[Part], options: ReadOptions) -> None:
        self._parts = parts
        self._options = options
        self.report = ReadReport("trace", tuple(part.name for part in parts))
        self.schema, self.kind = _target_schema(parts[0], options)
        self.chained = len(parts) == 1 and bool(parts[0].provenance.get("chained"))
        for part in parts:
            for field in self.schema:
                if field.name not in part.schema.names:
                    raise SchemaError(part.name, f"a column {field.name}", ", ".join(part.schema.names))
        named = {
            "--pool": [] if options.pool is None else [options.pool],
            "--namespace": options.namespace or (),
        }
        self._read_beside = [column for columns in named.values() for column in columns]
        for option, columns in named.items():
            for column in columns:
                if column not in parts[0].schema.names:
                    raise UsageError(f"{option} {column}: {parts[0].name} has no such column")
        self._batches: Iterator[pa.RecordBatch] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in replay order; may be called once."""
        if self._batches is not None:
            raise UsageError("a trace is read once, expected a newly opened one")
        self._batches = self._make_batches()
        if self._options.by_time:
            self._batches = self._in_order(sorted_by_time(self._batches, self.schema))
        elif self._options.order == "auto" and self._options.max_requests is None and len(self._parts) > 1:
            self._batches = self._merged(self._batches)
        return self._batches

    def _in_order(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        # What was put in order is no longer out of it.
        self.report.in_order()

    def _merged(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the requests of parts that overlap in time in its order, each part as it stands."""
        stamps = [[batch.column(0) for batch in part.read(["timestamp"], [])] for part in self._parts]
        files = [latest_times(columns) for columns in stamps]
        notice = order_notice(files)
        order = merged_order(files)
        if notice is None or order is None:
            yield from batches
            return
        yield from reordered(batches, self.schema, lambda: order)
        self.report.notice(notice)
        columns = [column for columns in stamps for column in columns]
        times = pa.chunked_array(columns).cast(pa.int64()).take(pa.array(order)).drop_null().to_numpy()
        self.report.in_order()
        self.report.step_back(_steps_back(times))

    def close(self) -> None:
        """Release the files."""
        close_batches(self._batches)

    def _make_batches(self) -> Iterator[pa.RecordBatch]:
        wanted = self._options.max_requests
        payload = [field.name for field in PAYLOAD_COLUMNS[self.kind]]
        columns = [name for name in self.schema.names if name != "request_id"]
        columns += sorted(set(self._read_beside).difference(columns))
        last: int | None = None
        named_pools: bool | None = None
        threads = working_threads(self._options.threads)
        stored = ((part.name, batch) for part in self._parts for batch in part.read(columns, payload))
        with closing(ahead(stored, threads - 1)) as batches:
            for name, batch in batches:
                left = (
                    batch.num_rows if wanted is None else min(batch.num_rows, wanted - self.report.requests)
                )
                if left == 0:
                    continue
                converted = self._convert(batch.slice(0, left), name)
                check_stored(converted, self.kind, name, self._options.max_request_tokens)
                if self._options.pool is None:
                    named_pools = check_pools(converted, named_pools, name)
                last = self._count(converted, last, name)
                yield converted
                if wanted is not None and self.report.requests >= wanted:
                    return
        if self.report.requests == 0:
            raise EmptyTraceError(self._parts[0].name, "holds no request")

    def _convert(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        first = self.report.requests
        arrays = []
        for field in self.schema:
            column: Any
            if field.name == "request_id":
                column = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
            elif field.name == "pool" and self._options.pool is not None:
                column = batch.column(self._options.pool)
            elif field.name == "namespace" and self._options.namespace is not None:
                names = self._options.namespace
                column = _composed(
                    names, [batch.column(name) for name in names] or [pa.nulls(batch.num_rows)]
                )
            else:
                column = batch.column(field.name)
            try:
                arrays.append(column if column.type == field.type else pc.cast(column, field.type))
            except pa.ArrowException as error:
                raise SchemaError(
                    name, f"{field.name} as {field.type}", f"{column.type} ({error})"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _count(self, batch: pa.RecordBatch, last: int | None, name: str) -> int | None:
        self.report.records += batch.num_rows
        self.report.requests += batch.num_rows
        times = batch.column("timestamp").drop_null().cast(pa.int64()).to_numpy()
        if self._options.by_time and times.size < batch.num_rows:
            raise SchemaError(name, "a timestamp in every request, since they are put in order", "nulls")
        if last is not None:
            times = np.concatenate(([last], times))
        self.report.step_back(_steps_back(times))
        if self.kind == "hash_ids":
            self._count_lengths(batch)
        return int(times[-1]) if times.size else last

    def _count_lengths(self, batch: pa.RecordBatch) -> None:
        plain = pc.is_null(batch.column("block_tokens")).to_numpy(zero_copy_only=False)
        count = pc.list_value_length(batch.column("hash_ids")).to_numpy(zero_copy_only=False)
        size = batch.column("block_size").to_numpy(zero_copy_only=False)
        needed = -(-batch.column("input_length").to_numpy(zero_copy_only=False) // size)
        self.report.overfull_requests += int(np.count_nonzero(plain & (count > needed)))
        self.report.underfull_requests += int(np.count_nonzero(plain & (count < needed)))


def _target_schema(part: Part, options: ReadOptions) -> tuple[pa.Schema, TraceKind]:
    kind = trace_kind(part.schema)
    assert kind is not None
    own = set(trace_schema(kind).names)
    extra = [field for field in part.schema if field.name not in own]
    for column in options.keep:
        if column not in part.schema.names:
            raise UsageError(f"--keep {column}: {part.name} has no such column")
    if options.keep:
        extra = [field for field in extra if field.name in options.keep]
    return trace_schema(kind, tuple(extra)), kind


def _steps_back(times_us: np.ndarray) -> list[int]:
    steps = np.diff(times_us)
    backward: list[int] = (-steps[steps < 0]).tolist()
    return backward

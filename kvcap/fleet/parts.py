"""One file of a fleet, read on its own and cut into one piece per pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.blocks.keyer import BlockKeyer
from kvcap.errors import TraceError, UsageError
from kvcap.fleet.job import ONE_SERVER_FORMATS, FleetJob
from kvcap.formats import ReadReport, open_trace
from kvcap.formats.merging import latest_times
from kvcap.formats.registry import DIALECTS
from kvcap.kernels.arrays import Int64Array
from kvcap.parquet_io import BufferSink
from kvcap.schema import TraceKind, trace_schema

if TYPE_CHECKING:
    from kvcap.formats import Trace


@dataclass(frozen=True)
class PieceHead:
    """The requests of one pool in one file: ``rows`` are their places in it, int64 (n,), ascending."""

    pool: str | None
    rows: Int64Array


@dataclass(frozen=True)
class FileHead:
    """What a file turned out to hold.

    Attributes
    ----------
    name
        The file.
    kind
        Of its log.
    schema
        Of its pieces.
    report
        The account of reading it.
    times : int64 (n_requests,) or None
        Timestamps in us where requests are put in the order of time, the latest ones so far where files
        are merged; None where files stay as they are given.
    keyed_coarsen
        How many blocks each block of a piece is, where pieces hold block keys; None where they do not.
    chained
        Whether ids are keys of whole prefixes.
    pieces
        One per pool, in order of appearance.
    """

    name: str
    kind: TraceKind
    schema: pa.Schema
    report: ReadReport
    times: Int64Array | None
    keyed_coarsen: int | None
    chained: bool
    pieces: tuple[PieceHead, ...]


def read_file(job: FleetJob, name: str) -> Iterator[FileHead | pa.Buffer]:
    """Read one file and yield its head, then one piece per pool: a Parquet trace in memory.

    Token ids become block keys here, so that a piece is small: keys are the same in every process that
    has the same version of Polars.

    Raises
    ------
    TraceError
        If the file cannot be read.
    UsageError
        If its format joins records that may stand in different files.
    """
    trace: Trace = open_trace([name], job.reading)
    if trace.kind == "request_json" and job.tokenizing is not None:
        from kvcap.tokenize.driver import tokenize_trace

        trace = tokenize_trace(trace, job.tokenizing)
    try:
        yield from _read(job, name, trace)
    finally:
        trace.close()


def _read(job: FleetJob, name: str, trace: Trace) -> Iterator[FileHead | pa.Buffer]:
    if trace.kind == "request_json":
        raise UsageError(f"{name} holds text: give a tokenizer, or run `kvcap tokenize` first")
    _check_alone(job, name, trace.report.format_name)
    keyer = None
    if trace.kind == "token_ids" and not job.options.blocks.output_blocks:
        keyer = BlockKeyer(job.options.blocks, chained=trace.chained)
    schema = trace.schema if keyer is None else _keyed_schema(trace.schema)
    sinks: dict[str | None, BufferSink] = {}
    rows: dict[str | None, list[Int64Array]] = {}
    times: list[pa.Array] = []
    coarsen = None if keyer is None else 1
    for batch in trace.batches():
        times.append(batch.column("timestamp"))
        if keyer is not None:
            batch, coarsen = _keyed(batch, keyer, schema)
        for pool, part in _by_pool(job, name, batch):
            if pool not in sinks:
                sinks[pool], rows[pool] = BufferSink(schema), []
            sinks[pool].write(part)
            rows[pool].append(part.column("request_id").to_numpy())
    yield FileHead(
        name=name,
        kind=trace.kind,
        schema=schema,
        report=trace.report,
        times=_times(job, times),
        keyed_coarsen=coarsen,
        chained=trace.chained,
        pieces=tuple(PieceHead(pool, np.concatenate(parts)) for pool, parts in rows.items()),
    )
    for sink in sinks.values():
        yield sink.whole()


def _times(job: FleetJob, timestamps: list[pa.Array]) -> Int64Array | None:
    if job.reading.by_time:
        return np.concatenate([column.cast(pa.int64()).to_numpy() for column in timestamps])
    return None if job.reading.order == "file" else latest_times(timestamps)


def _check_alone(job: FleetJob, name: str, form: str) -> None:
    """Refuse formats whose records depend on others that may stand in another file."""
    for dialect in DIALECTS:
        if dialect.name != form:
            continue
        if dialect.sequencer is not None and form not in ONE_SERVER_FORMATS:
            raise UsageError(
                f"{name}: {form} logs join records that may stand in different files; convert them together "
                "(`kvcap convert`) and give the Parquet trace"
            )
        if dialect.by_time and not job.reading.by_time:
            raise UsageError(f"{name}: {form} logs are put in the order of time, expected --order time")


def _by_pool(job: FleetJob, name: str, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    index = batch.schema.get_field_index("pool")
    if job.pool_path is not None:
        pool = job.pool_of(name)
        named = pa.array([pool] * batch.num_rows, pa.string())
        yield pool, batch.set_column(index, batch.schema.field(index), named)
        return
    column = batch.column(index)
    if job.reading.pool is not None and column.null_count:
        row = int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])
        raise TraceError(
            name,
            f"request {batch.column('request_id')[row].as_py()}: {job.reading.pool} is missing, expected a "
            "value, since it names the pool",
        )
    values: list[Any] = pc.unique(column).to_pylist()
    if len(values) == 1:
        yield values[0], batch
        return
    for value in values:
        mask = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        yield value, batch.filter(mask)


def _keyed_schema(schema: pa.Schema) -> pa.Schema:
    own = set(trace_schema("token_ids").names)
    return trace_schema("hash_ids", tuple(column for column in schema if column.name not in own))


def _keyed(batch: pa.RecordBatch, keyer: BlockKeyer, schema: pa.Schema) -> tuple[pa.RecordBatch, int]:
    """Return a batch of tokens as one of block keys, and how many blocks each of them is."""
    keyed = keyer.key(batch)
    offsets = pa.array(keyed.request_offsets.astype(np.int32))
    made = {
        "hash_ids": pa.ListArray.from_arrays(offsets, pa.array(keyed.block_keys)),
        "block_tokens": pa.nulls(batch.num_rows, schema.field("block_tokens").type),
        "block_size": pa.array(np.full(batch.num_rows, keyed.block_size, np.int32)),
        "input_length": pa.array(keyed.input_tokens),
    }
    arrays = [made.get(column.name) for column in schema]
    columns = [
        batch.column(column.name) if array is None else array.cast(column.type)
        for column, array in zip(schema, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema), keyed.coarsen

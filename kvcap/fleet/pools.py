"""The pools of a fleet: what belongs to each, and the replay of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.blocks import BlockOptions
from kvcap.blocks.keyer import BlockKeyer
from kvcap.errors import EmptyTraceError, SchemaError, TraceError
from kvcap.fleet.job import FleetJob
from kvcap.fleet.parts import FileHead
from kvcap.formats.merging import merged_order
from kvcap.formats.parquet_files import row_group_sizes
from kvcap.formats.sorting import MAX_BATCH_IDS, reordered
from kvcap.kernels.arrays import Int64Array
from kvcap.parquet_io import BufferSink
from kvcap.replay.job import RunCounts, counted, lru_tables
from kvcap.replay.sizing import max_capacity_blocks
from kvcap.replay.stream import keyed_batches, stream
from kvcap.schema import TraceKind


@dataclass(frozen=True)
class PoolPlan:
    """One pool.

    Attributes
    ----------
    pool
        Its name.
    pieces
        Its pieces, in the order of files: number of the file, and of the piece in it.
    request_ids
        The ids of each piece's requests in the whole replay: int64 (n,), ascending.
    """

    pool: str | None
    pieces: tuple[tuple[int, int], ...]
    request_ids: tuple[Int64Array, ...]


@dataclass(frozen=True)
class FleetFacts:
    """What all pieces have in common, as in :class:`FileHead`, and the whole replay's warm-up requests."""

    kind: TraceKind
    schema: pa.Schema
    keyed_coarsen: int | None
    chained: bool
    warm_up_requests: int


@dataclass(frozen=True)
class FleetPlan:
    """What all pools have in common, and the pools by name, the nameless one first."""

    facts: FleetFacts
    pools: tuple[PoolPlan, ...]


@dataclass(frozen=True)
class PoolResult:
    """The tables of one pool as Parquet in memory, with ids of the whole replay, and its counts."""

    pool: str | None
    tables: dict[str, pa.Buffer]
    counts: RunCounts


def plan_pools(job: FleetJob, heads: Sequence[FileHead]) -> FleetPlan:
    """Return which requests belong to which pool, and their ids.

    Parameters
    ----------
    job
        What the parts were told.
    heads
        Of all files, in replay order.

    Raises
    ------
    TraceError
        If there are more bad records than tolerated, or no request.
    SchemaError
        If files differ in kind or columns.

    Notes
    -----
    24 bytes a request while requests are put in the order of time.
    """
    bad_records = sum(head.report.bad_records for head in heads)
    if bad_records > job.reading.skip_bad:
        example = next(text for head in heads for text in head.report.bad_examples)
        raise TraceError(
            f"{len(heads)} files",
            f"hold {bad_records} bad records, such as {example}, expected at most {job.reading.skip_bad}",
        )
    for head in heads:
        if head.kind != heads[0].kind or head.schema != heads[0].schema:
            expected = f"{heads[0].kind} with the columns of {heads[0].name}"
            raise SchemaError(head.name, expected, f"{head.kind} with {', '.join(head.schema.names)}")
    sizes = [head.report.requests for head in heads]
    if sum(sizes) == 0:
        raise EmptyTraceError(", ".join(head.name for head in heads), "no requests in it")
    ids = np.split(_request_ids(heads), np.cumsum(sizes)[:-1])
    pools: dict[str | None, list[tuple[tuple[int, int], Int64Array]]] = {}
    for file, head in enumerate(heads):
        for number, piece in enumerate(head.pieces):
            pools.setdefault(piece.pool, []).append(((file, number), ids[file][piece.rows]))
    names = sorted(pools, key=lambda name: (name is not None, name or ""))
    first = heads[0]
    facts = FleetFacts(
        kind=first.kind,
        schema=first.schema,
        keyed_coarsen=first.keyed_coarsen,
        # Ids of two conversions have nothing to do with each other.
        chained=first.chained and len(heads) == 1,
        warm_up_requests=math.floor(sum(sizes) * job.options.warm_up),
    )
    return FleetPlan(
        facts,
        pools=tuple(PoolPlan(name, *zip(*pools[name], strict=True)) for name in names),
    )


def _request_ids(heads: Sequence[FileHead]) -> Int64Array:
    """Return the id of every request, file by file: its rank in time, or its place."""
    order = merged_order([head.times for head in heads])
    if order is None:
        return np.arange(sum(head.report.requests for head in heads))
    ids = np.empty_like(order)
    ids[order] = np.arange(order.size)
    return ids


def replay_pool(job: FleetJob, facts: FleetFacts, pool: PoolPlan, *pieces: pa.Buffer) -> PoolResult:
    """Replay one pool from its pieces.

    Parameters
    ----------
    job, facts
        As for everybody.
    pool
        Its plan.
    pieces
        Its pieces, in the order of its plan.

    Notes
    -----
    Where several pieces are merged by time, their requests wait in a temporary file; what is held in
    memory are the distinct blocks, the pieces as they are compressed, and a few numbers a request.
    """
    batches = _batches(pieces)
    given = np.concatenate(pool.request_ids)
    ids = np.sort(given)
    if not np.array_equal(given, ids):
        batches = reordered(batches, facts.schema, lambda: np.argsort(given))
    keyed = keyed_batches(batches, _keyer(job, facts))
    streamed = stream(keyed, facts.schema, partial(max_capacity_blocks, job.options))
    streamed, counts = counted(streamed, job.options)
    if facts.keyed_coarsen is not None:
        counts = replace(counts, coarsen=facts.keyed_coarsen)
    tables = lru_tables(streamed, job.options, int(np.searchsorted(ids, facts.warm_up_requests)))
    tables["requests"] = _renumbered(tables["requests"], ["request_id"], ids)
    tables["reuse_runs"] = _renumbered(tables["reuse_runs"], ["request_id", "source_request_id"], ids)
    return PoolResult(pool.pool, {name: _as_parquet(table) for name, table in tables.items()}, counts)


def _keyer(job: FleetJob, facts: FleetFacts) -> BlockKeyer:
    if facts.keyed_coarsen is None:
        return BlockKeyer(job.options.blocks, chained=facts.chained)
    return BlockKeyer(BlockOptions(partial_block="keep"), chained=True, namespaces=False, media=False)


def _batches(pieces: Sequence[pa.Buffer]) -> Iterator[pa.RecordBatch]:
    """Yield the requests of some pieces, numbered from 0."""
    n_requests = 0
    for piece in pieces:
        with pq.ParquetFile(pa.BufferReader(piece)) as file:
            for group, (rows, values) in enumerate(row_group_sizes(file, ["hash_ids", "token_ids"])):
                size = max(1, MAX_BATCH_IDS * max(1, rows) // max(1, values))
                for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                    numbers = pa.array(np.arange(n_requests, n_requests + batch.num_rows))
                    yield batch.set_column(0, batch.schema.field(0), numbers)
                    n_requests += batch.num_rows


def _renumbered(table: pa.Table, columns: Sequence[str], ids: Int64Array) -> pa.Table:
    for name in columns:
        index = table.schema.get_field_index(name)
        numbers = ids[table.column(index).to_numpy()]
        table = table.set_column(index, table.schema.field(index), pa.array(numbers))
    return table


def _as_parquet(table: pa.Table) -> pa.Buffer:
    sink = BufferSink(table.schema)
    for batch in table.to_batches(max_chunksize=1 << 20):
        sink.write(batch)
    return sink.whole()

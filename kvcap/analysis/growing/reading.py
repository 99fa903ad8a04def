"""A log as growth takes it: one stream of paths with sessions and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kvcap.blocks.keyer import BlockKeyer, KeyedRequests
from kvcap.errors import EmptyTraceError, UsageError
from kvcap.formats import ReadOptions, open_trace
from kvcap.formats.base import Trace
from kvcap.formats.parallel import READING_THREADS, ahead, working_threads
from kvcap.growth import PathTrace, canonical, in_time_order, with_sessions_of_paths
from kvcap.kernels.arrays import Int64Array, offsets_of
from kvcap.kernels.id_table import IdTable
from kvcap.options import ReplayOptions
from kvcap.replay.stream import keyed_batches


@dataclass(frozen=True)
class GrowthLog:
    """A log that can grow.

    Attributes
    ----------
    trace
        Canonical, in the order of the log, or of time where the log runs backwards.
    has_times
        Whether every request has a timestamp; else times are those of the places in the log.
    found_sessions
        How many requests name no session: theirs are found in the prefixes.
    backward_requests
        How many requests came before the one before them.
    pools
        How many pools the log names; all are one stream here.
    """

    trace: PathTrace
    has_times: bool
    found_sessions: int
    backward_requests: int
    pools: int


def read_growth_log(
    paths: Sequence[str],
    options: ReplayOptions,
    reading: ReadOptions,
    progress: Callable[[int], None] | None = None,
) -> GrowthLog:
    """Return logs as one stream of paths.

    Raises
    ------
    TraceError
        If a log cannot be read, or holds no request.
    UsageError
        If it holds text, or gives its blocks weights of their own.
    """
    if reading.pool is not None:
        raise UsageError("growth takes a log as one stream, expected no --pool")
    trace = open_trace(paths, reading)
    try:
        if trace.kind == "request_json":
            raise UsageError("this log holds text: run `kvcap tokenize` first")
        return _read(trace, BlockKeyer(options.blocks, chained=trace.chained), reading.threads, progress)
    finally:
        trace.close()


def _read(
    trace: Trace, keyer: BlockKeyer, threads: int | None, progress: Callable[[int], None] | None
) -> GrowthLog:
    numbers = IdTable()
    nodes: list[Int64Array] = []
    keyed_parts: list[KeyedRequests] = []
    columns: list[pa.RecordBatch] = []
    n_requests = 0
    with closing(ahead(trace.batches(), working_threads(threads) - READING_THREADS)) as batches:
        for batch, keyed in keyed_batches(batches, keyer):
            if keyed.block_tokens is not None:
                raise UsageError(
                    "the log gives each block a weight of its own, which growth does not take: expected "
                    "block_size and input_length"
                )
            nodes.append(numbers.add(keyed.block_keys).view(np.int64))
            keyed_parts.append(keyed)
            columns.append(batch.select(["timestamp", "session_id", "pool"]))
            n_requests += batch.num_rows
            if progress is not None:
                progress(n_requests)
    if not columns:
        raise EmptyTraceError(", ".join(trace.report.sources), "no requests in it")
    return _growth_log(nodes, keyed_parts, pa.Table.from_batches(columns))


def _growth_log(nodes: list[Int64Array], parts: list[KeyedRequests], columns: pa.Table) -> GrowthLog:
    timestamps = columns.column("timestamp")
    has_times = timestamps.null_count == 0
    time_us = np.arange(len(timestamps))
    if has_times:
        time_us = np.asarray(timestamps.cast(pa.int64()).to_numpy(), np.int64)
    sessions = columns.column("session_id").combine_chunks().dictionary_encode()
    known = sessions.is_valid().to_numpy(zero_copy_only=False)
    trace = PathTrace(
        nodes=np.concatenate(nodes),
        offsets=offsets_of(np.concatenate([np.diff(part.request_offsets) for part in parts])),
        time_us=time_us,
        session=np.asarray(sessions.indices.fill_null(0).to_numpy(zero_copy_only=False), np.int64),
        input_tokens=np.concatenate([part.input_tokens for part in parts]),
        covered_tokens=np.concatenate([part.covered_tokens for part in parts]),
        block_size=parts[0].block_size,
    )
    backward = int(np.count_nonzero(np.diff(time_us) < 0))
    # Sessions are found in the order of time, too.
    order = np.argsort(time_us, kind="stable")
    trace = in_time_order(trace) if backward else canonical(trace)
    if not known.all():
        trace = with_sessions_of_paths(trace, known[order])
    return GrowthLog(
        trace=trace,
        has_times=has_times,
        found_sessions=int(np.count_nonzero(~known)),
        backward_requests=backward,
        pools=len(columns.column("pool").unique()),
    )

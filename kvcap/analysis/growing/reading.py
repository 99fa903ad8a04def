"""A log as growth takes it: one stream of paths with sessions and times."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from kvcap.blocks.keyer import BlockKeyer, KeyedRequests, namespace_roots
from kvcap.errors import EmptyTraceError, UsageError
from kvcap.formats import ReadOptions, open_trace
from kvcap.formats.base import Trace
from kvcap.formats.parallel import READING_THREADS, ahead, working_threads
from kvcap.growth import PathTrace, SessionSample, canonical, in_time_order, with_sessions_of_paths
from kvcap.growth.trace import taken
from kvcap.kernels.arrays import Int64Array, UInt64Array, offsets_of
from kvcap.kernels.id_table import IdTable
from kvcap.options import ReplayOptions
from kvcap.queries import ReadAccount
from kvcap.replay.job import account_of
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
    all_sessions
        Of the whole log, where ``trace`` is a sample of them.
    account
        What reading left out or found odd.
    """

    trace: PathTrace
    has_times: bool
    found_sessions: int
    backward_requests: int
    pools: int
    all_sessions: int
    account: ReadAccount

    @property
    def is_sample(self) -> bool:
        """Whether sessions were left out."""
        return self.all_sessions > self.trace.n_sessions

    @property
    def share_inverse(self) -> Fraction:
        """How many sessions of the log each one of the trace stands for."""
        return Fraction(max(1, self.all_sessions), max(1, self.trace.n_sessions))


def read_growth_log(
    paths: Sequence[str],
    options: ReplayOptions,
    reading: ReadOptions,
    progress: Callable[[int], None] | None = None,
    sample: SessionSample | None = None,
) -> GrowthLog:
    """Return logs as one stream of paths, or only the requests of a sample of their sessions.

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
        keyer = BlockKeyer(options.blocks, chained=trace.chained)
        with closing(_batches(trace, sample, working_threads(reading.threads), progress)) as batches:
            log = _read(trace, keyer, batches, sample)
    finally:
        trace.close()
    return log if sample is None else replace(log, all_sessions=sample.sessions_seen)


def _batches(
    trace: Trace, sample: SessionSample | None, threads: int, progress: Callable[[int], None] | None
) -> Generator[pa.RecordBatch, None, None]:
    n_requests = 0
    with closing(ahead(trace.batches(), threads - READING_THREADS)) as batches:
        for batch in batches:
            yield batch if sample is None else batch.filter(pa.array(sample.add(_session_names(batch))))
            n_requests += batch.num_rows
            if progress is not None:
                progress(n_requests)


def _session_names(batch: pa.RecordBatch) -> UInt64Array:
    names = batch.column("session_id")
    if names.null_count:
        raise UsageError(
            "--sample-sessions needs the session of every request: expected --session-field, or no sample"
        )
    return namespace_roots(names)


def _read(
    trace: Trace, keyer: BlockKeyer, batches: Iterable[pa.RecordBatch], sample: SessionSample | None
) -> GrowthLog:
    numbers = IdTable()
    nodes: list[Int64Array] = []
    keyed_parts: list[KeyedRequests] = []
    columns: list[pa.RecordBatch] = []
    for batch, keyed in keyed_batches(batches, keyer):
        if keyed.block_tokens is not None:
            raise UsageError(
                "the log gives each block a weight of its own, which growth does not take: expected "
                "block_size and input_length"
            )
        nodes.append(numbers.add(keyed.block_keys).view(np.int64))
        keyed_parts.append(keyed)
        columns.append(batch.select(["timestamp", "session_id", "pool"]))
    if not columns:
        raise EmptyTraceError(", ".join(trace.report.sources), "no requests in it")
    account = account_of(trace.report)
    return _growth_log(nodes, keyed_parts, pa.Table.from_batches(columns), account, sample)


def _growth_log(
    nodes: list[Int64Array],
    parts: list[KeyedRequests],
    columns: pa.Table,
    account: ReadAccount,
    sample: SessionSample | None,
) -> GrowthLog:
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
    if sample is not None:
        # Some were held when they were read, and gave way to others since.
        names = namespace_roots(columns.column("session_id").combine_chunks())
        trace = taken(trace, np.flatnonzero(sample.holds(names)))
        known = known[: trace.n_requests]
    time_us = trace.time_us
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
        all_sessions=trace.n_sessions,
        account=account,
    )

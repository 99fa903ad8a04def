"""A log as the caches saw it: every request on its own cache, with the hit that was observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.blocks.keyer import BlockKeyer, KeyedRequests
from kvcap.errors import EmptyTraceError, UsageError
from kvcap.formats.parallel import READING_THREADS, ahead, default_threads
from kvcap.kernels.arrays import BoolArray, Int32Array, Int64Array
from kvcap.kernels.dealt_runs import dealt_runs, weigh_runs
from kvcap.kernels.engine_rules import lookup_blocks
from kvcap.kernels.observed.pieces import NOT_OBSERVED, Lookups
from kvcap.kernels.observed.waterfall import Prompts
from kvcap.kernels.run_tables import WeightedRuns, ceilings, leading_parts
from kvcap.kernels.segments import segment_paths
from kvcap.replay.sizing import bytes_per_token
from kvcap.replay.stream import StreamedTrace, keyed_batches, stream

if TYPE_CHECKING:
    from kvcap.formats.base import ReadReport, Trace
    from kvcap.options import ReplayOptions

NO_INSTANCE = "(none)"
"""Names the cache of requests without an instance, in a log where others have one."""


@dataclass(frozen=True)
class ObservedLog:
    """A log after its pass.

    Attributes
    ----------
    block_size, block_bytes
        Tokens and bytes of a full block; bytes are None when unknown.
    runs
        Reuse runs of what may hit, every cache on its own, by request and position.
    lookups, prompts
        The requests.
    caches : int32 (n_requests,)
        The cache that each request came to, as a number.
    cache_names
        What to call them; one None where the log knows of one only.
    columns
        The trace without its payload.
    output_tokens : int64 (n_requests,)
        Generated tokens; 0 where the log does not say.
    has_time, has_durations
        Whether every request says when it came, and some when it was ready.
    clipped_requests
        Requests said to have had more tokens from a cache than they have.
    report
        The account of the reading.
    """

    block_size: int
    block_bytes: int | None
    runs: WeightedRuns
    lookups: Lookups
    prompts: Prompts
    caches: Int32Array
    cache_names: tuple[str | None, ...]
    columns: pa.Table
    output_tokens: Int64Array
    has_time: bool
    has_durations: bool
    report: ReadReport

    @property
    def observed(self) -> BoolArray:
        """Requests with a value: bool (n_requests,)."""
        observed: BoolArray = self.lookups.observed_tokens != NOT_OBSERVED
        return observed

    @property
    def n_requests(self) -> int:
        """Requests in the log."""
        return self.caches.size


def observe(
    trace: Trace,
    options: ReplayOptions,
    *,
    progress: Callable[[int], None] | None = None,
    threads: int | None = None,
) -> ObservedLog:
    """Replay an open trace on the caches that it names.

    Parameters
    ----------
    trace
        With ``observed_cached_tokens``; its pools have nothing to do with each other, and the instances in
        a pool are caches of their own.
    options
        What a block is. One token of every prompt has to be computed, and generated tokens stay out.
    progress
        Called with the number of requests so far.
    threads
        That read and replay; None takes one per core.

    Raises
    ------
    UsageError
        If the trace is text, or no request says what was served from cache.
    EmptyTraceError
        If it holds no request.
    """
    if trace.kind == "request_json":
        raise UsageError("this log holds text: give --tokenizer, or run `kvcap tokenize` first")
    threads = threads or default_threads()
    streamed = _streamed(trace, options, progress, threads)
    if streamed.blocks.size == 0:
        raise EmptyTraceError(", ".join(trace.report.sources), "no requests in it")
    warm_up = math.floor(streamed.blocks.size * options.warm_up)
    return observed_log(streamed, options, warm_up, trace.report)


def _streamed(
    trace: Trace, options: ReplayOptions, progress: Callable[[int], None] | None, threads: int
) -> StreamedTrace:
    keyed = keyed_batches(trace.batches(), BlockKeyer(options.blocks, chained=trace.chained))
    n_requests = 0

    def counted() -> Generator[tuple[pa.RecordBatch, KeyedRequests], None, None]:
        nonlocal n_requests
        with closing(ahead(keyed, threads - READING_THREADS)) as batches:
            for batch, keys in batches:
                yield batch, keys
                n_requests += batch.num_rows
                if progress is not None:
                    progress(n_requests)

    with closing(counted()) as batches:
        return stream(batches, trace.schema, threads=threads)


def observed_log(
    streamed: StreamedTrace, options: ReplayOptions, warm_up_requests: int, report: ReadReport
) -> ObservedLog:
    """Return a log after its pass, every instance a cache of its own.

    Raises
    ------
    UsageError
        If no measured request says what was served from cache.
    """
    columns, n_requests = streamed.columns, streamed.blocks.size
    limits = np.minimum(streamed.blocks, lookup_blocks(streamed.input_tokens, streamed.block_size))
    caches, names = _caches(columns)
    own_runs = streamed.runs
    if len(names) > 1:
        paths = segment_paths(streamed.runs, streamed.touched_blocks)
        own_runs = weigh_runs(dealt_runs(paths, caches), streamed.runs)
    runs = leading_parts(own_runs, limits)
    observed = _numbers(columns, "observed_cached_tokens", NOT_OBSERVED)
    observed[:warm_up_requests] = NOT_OBSERVED
    if (observed == NOT_OBSERVED).all():
        raise UsageError(
            "no request says how many tokens were served from cache: name the field with --cached-field"
        )
    timestamps = columns.column("timestamp")
    has_time = timestamps.null_count == 0
    arrival = _numbers(columns, "timestamp", 0) if has_time else np.zeros(n_requests, np.int64)
    ttft = _numbers(columns, "ttft_us", NOT_OBSERVED)
    waited = np.where(ttft >= 0, ttft, _numbers(columns, "duration_us", NOT_OBSERVED))
    per_token, _ = bytes_per_token(options, streamed.input_tokens)
    return ObservedLog(
        block_size=streamed.block_size,
        block_bytes=None if per_token is None else math.ceil(per_token * streamed.block_size),
        runs=runs,
        lookups=Lookups(
            blocks=streamed.blocks,
            arrival_us=arrival,
            ready_us=arrival + np.maximum(waited, 0) if has_time else arrival,
            observed_tokens=np.minimum(observed, streamed.input_tokens),
        ),
        prompts=Prompts(
            input_tokens=streamed.input_tokens,
            cacheable_tokens=streamed.cacheable_tokens,
            known_tokens=ceilings(streamed.runs, n_requests)[1],
            own_tokens=ceilings(runs, n_requests)[1],
            pooled_tokens=ceilings(leading_parts(streamed.runs, limits), n_requests)[1],
        ),
        caches=caches,
        cache_names=names,
        columns=columns,
        output_tokens=_numbers(columns, "output_length", 0),
        has_time=has_time,
        has_durations=has_time and bool((waited >= 0).any()),
        report=report,
    )


def _numbers(columns: pa.Table, name: str, missing: int) -> Int64Array:
    return np.array(pc.fill_null(columns.column(name).cast(pa.int64()), missing).to_numpy(), np.int64)


def _caches(columns: pa.Table) -> tuple[Int32Array, tuple[str | None, ...]]:
    """Return the cache of each request as a number, and their names: instances, apart by pool."""
    instance, pool = columns.column("instance"), columns.column("pool")
    n = len(instance)
    if instance.null_count == n and pool.null_count == n:
        return np.zeros(n, np.int32), (None,)
    if instance.null_count == n:
        label = pool
    else:
        label = pc.fill_null(instance, NO_INSTANCE)
        if pool.null_count < n:
            label = pc.binary_join_element_wise(pc.fill_null(pool, NO_INSTANCE), label, "/")
    names = sorted(pc.unique(pc.fill_null(label, NO_INSTANCE)).to_pylist())
    numbers = pc.index_in(pc.fill_null(label, NO_INSTANCE), pa.array(names))
    return np.array(numbers.to_numpy(), np.int32), tuple(names)

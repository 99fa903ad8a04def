"""A log as the caches saw it: every request on its own cache, with the hit that was observed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import UsageError
from kvcap.kernels.arrays import BoolArray, Int32Array, Int64Array
from kvcap.kernels.dealt_runs import dealt_runs, weigh_runs
from kvcap.kernels.engine_rules import lookup_blocks
from kvcap.kernels.observed.pieces import NOT_OBSERVED, Lookups
from kvcap.kernels.observed.waterfall import Prompts
from kvcap.kernels.run_tables import WeightedRuns, ceilings, leading_parts
from kvcap.kernels.segments import segment_paths
from kvcap.replay.sizing import bytes_per_token
from kvcap.replay.stream import StreamedTrace

if TYPE_CHECKING:
    from datetime import datetime

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
    own_runs, runs
        Reuse runs of every cache on its own, by request and position: all of them, and of what may hit.
    lookups, prompts
        The requests.
    caches : int32 (n_requests,)
        The cache that each request came to, as a number.
    cache_names
        What to call them; one None where the log knows of one only.
    streamed
        The log after its pass, all instances of a pool together.
    output_tokens : int64 (n_requests,)
        Generated tokens; 0 where the log does not say.
    has_time, has_durations
        Whether every request says when it came, and some when it was ready.
    clipped_requests
        Requests said to have had more tokens from a cache than they have.
    """

    block_size: int
    block_bytes: int | None
    own_runs: WeightedRuns
    runs: WeightedRuns
    lookups: Lookups
    prompts: Prompts
    caches: Int32Array
    cache_names: tuple[str | None, ...]
    streamed: StreamedTrace
    output_tokens: Int64Array
    has_time: bool
    has_durations: bool

    @property
    def observed(self) -> BoolArray:
        """Requests with a value: bool (n_requests,)."""
        observed: BoolArray = self.lookups.observed_tokens != NOT_OBSERVED
        return observed

    @property
    def instances(self) -> pa.Array:
        """The cache of every request by name."""
        return pa.array(self.cache_names, pa.string()).take(pa.array(self.caches))

    def in_bytes(self, blocks: int | None) -> int | None:
        """Return blocks in bytes, where a block's are known."""
        return None if blocks is None or self.block_bytes is None else blocks * self.block_bytes

    def time(self, request: int) -> datetime | None:
        """Return when a request came; None where there is no such request, or it does not say."""
        if not 0 <= request < self.n_requests:
            return None
        time: datetime | None = self.streamed.columns.column("timestamp")[request].as_py()
        return time

    def time_text(self, request: int) -> str | None:
        """Return the same as ISO 8601 text."""
        time = self.time(request)
        return None if time is None else time.isoformat(timespec="milliseconds")

    @property
    def n_requests(self) -> int:
        """Requests in the log."""
        return self.caches.size


def observed_log(
    streamed: StreamedTrace, options: ReplayOptions, known_tokens: Int64Array | None = None
) -> ObservedLog:
    """Return a log after its pass, every instance a cache of its own.

    Parameters
    ----------
    streamed
        With ``observed_cached_tokens``; its pools have nothing to do with each other, and the instances in
        a pool are caches of their own.
    options
        What a block is, and how many requests only fill the caches.
    known_tokens : int64 (n_requests,), optional
        What requests before each one left of its prompt in any cache, if its runs do not say.

    Raises
    ------
    UsageError
        If no measured request says what was served from cache.
    """
    columns, n_requests = streamed.columns, streamed.blocks.size
    warm_up_requests = math.floor(n_requests * options.warm_up)
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
        own_runs=own_runs,
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
            known_tokens=ceilings(streamed.runs, n_requests)[1] if known_tokens is None else known_tokens,
            own_tokens=ceilings(runs, n_requests)[1],
            pooled_tokens=ceilings(leading_parts(streamed.runs, limits), n_requests)[1],
        ),
        caches=caches,
        cache_names=names,
        streamed=streamed,
        output_tokens=_numbers(columns, "output_length", 0),
        has_time=has_time,
        has_durations=has_time and bool((waited >= 0).any()),
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

"""Which instance each request of a stream goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import UsageError
from kvcap.kernels.arrays import Int32Array, Int64Array
from kvcap.kernels.dealing import deal_to_least_loaded, deal_to_longest_prefix

if TYPE_CHECKING:
    from kvcap.analysis.routing.options import RouteOptions
    from kvcap.kernels.segments import SegmentPaths


@dataclass(frozen=True)
class Stream:
    """What dealing looks at.

    Attributes
    ----------
    paths
        The stream's prefix segments.
    input_tokens : int64 (n_requests,)
        Prompt lengths, the weights of loads.
    window_starts : int64 (n_requests,)
        First request inside the load window of each.
    sessions : string (n_requests,)
        May be null.
    capacity_blocks
        Size of each instance's cache.
    tail_first
        Touch order.
    """

    paths: SegmentPaths
    input_tokens: Int64Array
    window_starts: Int64Array
    sessions: pa.ChunkedArray
    capacity_blocks: int
    tail_first: bool


def deal(stream: Stream, policy: str, n_instances: int, options: RouteOptions) -> Int32Array:
    """Return the instance of every request: int32 (n_requests,), from 0.

    Raises
    ------
    UsageError
        If ``session`` is asked of a stream without session ids.
    """
    n_requests = stream.input_tokens.size
    if policy == "round-robin":
        return np.arange(n_requests, dtype=np.int32) % np.int32(n_instances)
    if policy == "random":
        return np.random.default_rng(options.seed).integers(n_instances, size=n_requests, dtype=np.int32)
    if policy == "session":
        if not has_sessions(stream):
            raise UsageError("the log has no session_id, expected one for the policy session")
        return (_session_numbers(stream.sessions) % n_instances).astype(np.int32)
    if policy == "least-loaded":
        return deal_to_least_loaded(stream.input_tokens, stream.window_starts, n_instances)
    return deal_to_longest_prefix(
        stream.paths,
        stream.input_tokens,
        stream.window_starts,
        n_instances,
        stream.capacity_blocks,
        options.max_load_percent,
        tail_first=stream.tail_first,
    ).instances


def window_starts(timestamps: pa.ChunkedArray, options: RouteOptions) -> Int64Array:
    """Return the first request inside the load window of each: int64 (n_requests,), ascending."""
    if options.load_window_seconds is None or timestamps.null_count:
        return np.zeros(len(timestamps), np.int64)
    times = arrivals_us(timestamps, options)
    window_us = int(options.load_window_seconds * 1_000_000)
    return np.searchsorted(times, times - window_us, side="right").astype(np.int64)


def arrivals_us(timestamps: pa.ChunkedArray, options: RouteOptions) -> Int64Array:
    """Return when requests arrive, from the first on: int64 (n_requests,), ascending.

    A request that is earlier than one before it counts as simultaneous with that one.
    """
    times = np.maximum.accumulate(timestamps.cast(pa.int64()).to_numpy())
    since = times - times[:1]
    return (
        since if options.arrival_speedup == 1 else (since / float(options.arrival_speedup)).astype(np.int64)
    )


def has_sessions(stream: Stream) -> bool:
    """Return whether any request names its session."""
    return bool(stream.sessions.null_count < len(stream.sessions))


def _session_numbers(sessions: pa.ChunkedArray) -> Int64Array:
    """Return sessions numbered in order of appearance; each null is one of its own."""
    array = sessions.combine_chunks()
    codes = array.dictionary_encode().indices
    first_free = pc.max(codes).as_py() + 1
    numbers = codes.fill_null(0).to_numpy().astype(np.int64)
    alone = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    numbers[alone] = first_free + np.arange(alone.size)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int64)[inverse]

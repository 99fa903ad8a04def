"""Requests as paths of prefix segments: what a per-capacity simulation steps over instead of blocks.

A *segment* is a maximal span of blocks that no request of the trace enters, leaves or stops inside. Every
request touches a segment whole or not at all, so the state that a policy keeps per block can be kept per
segment wherever the blocks of a span share their fate. A trace has at most two segments per request
(three where lookups stop early).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int32Array, Int64Array, UInt64Array, offsets_of

if TYPE_CHECKING:
    from kvcap.kernels.reuse_runs import ReuseRuns
    from kvcap.kernels.run_tables import WeightedRuns


class SegmentPaths(NamedTuple):
    """Every request as a path of segments, from the root down.

    Segments are numbered so that a parent comes before its children.

    Attributes
    ----------
    path_offsets : int64 (n_requests + 1,)
        Request r walks ``path_segments[path_offsets[r]:path_offsets[r + 1]]``.
    path_segments : int32 (n_steps,)
        Segment numbers.
    segment_blocks : int64 (n_segments,)
        Length of each segment, in blocks.
    segment_parents : int32 (n_segments,)
        The segment that ends where this one begins; -1 at the root.
    """

    path_offsets: Int64Array
    path_segments: Int32Array
    segment_blocks: Int64Array
    segment_parents: Int32Array


def segment_paths(
    runs: ReuseRuns | WeightedRuns, request_blocks: Int64Array, lookup_blocks: Int64Array | None = None
) -> SegmentPaths:
    """Return the segments of a trace, and every request's path over them, from its reuse runs.

    Parameters
    ----------
    runs : ReuseRuns or WeightedRuns
        All runs of requests 0 to n_requests - 1.
    request_blocks : int64 (n_requests,)
        Blocks that each request touches.
    lookup_blocks : int64 (n_requests,), optional
        Where each request's lookup stops, when that may be before its last block; such a place ends a
        segment as well.

    Notes
    -----
    O(runs + requests log requests + steps). No key is looked at: the last run of a request says that its
    known prefix equals that of the run's source, so each block is the cold block of one owner, and the
    cold blocks of all requests, laid end to end, are the distinct blocks of the trace.
    """
    n_requests = len(request_blocks)
    sources = np.full(n_requests, -1, np.int64)
    known = np.zeros(n_requests, np.int64)
    sources[runs.request] = runs.source_request
    known[runs.request] = runs.first_block + runs.blocks
    cold_starts = offsets_of(request_blocks - known)
    lookups = known if lookup_blocks is None else np.clip(lookup_blocks, 0, known)
    known_ends, lookup_ends = _ends_among_cold_blocks(sources, known, lookups, cold_starts)

    owners = np.flatnonzero(np.diff(cold_starts))
    starts = np.unique(np.concatenate((cold_starts[owners], known_ends, lookup_ends)))
    distinct_blocks = cold_starts[-1]
    starts = starts[starts < distinct_blocks]
    parents = np.arange(-1, len(starts) - 1, dtype=np.int32)
    parents[np.searchsorted(starts, cold_starts[owners])] = _segments_ending_at(known_ends[owners], starts)
    ends = np.where(known < request_blocks, cold_starts[1:], known_ends)
    offsets, steps = _walk_paths(_segments_ending_at(ends, starts), parents)
    return SegmentPaths(offsets, steps, np.diff(starts, append=distinct_blocks), parents)


@jit
def segment_starts(segment_blocks: Int64Array, segment_parents: Int32Array) -> Int64Array:
    """Return how many blocks of a path come before each segment."""
    starts = np.zeros(segment_blocks.size, np.int64)
    for segment in range(segment_blocks.size):
        parent = segment_parents[segment]
        if parent >= 0:
            starts[segment] = starts[parent] + segment_blocks[parent]
    return starts


def path_keys(paths: SegmentPaths, requests: Int64Array) -> tuple[UInt64Array, Int64Array]:
    """Return keys of the blocks of some requests, and their offsets: equal key, equal prefix.

    Parameters
    ----------
    paths : SegmentPaths
    requests : int64 (n_chosen,)
        Which requests.

    Returns
    -------
    uint64 (n_accesses,), int64 (n_chosen + 1,)
        The distinct blocks of the trace, numbered from 0.
    """
    firsts = offsets_of(paths.segment_blocks)
    walked = offsets_of(paths.segment_blocks[paths.path_segments])
    blocks = np.diff(walked[paths.path_offsets])[requests]
    offsets = offsets_of(blocks)
    keys = np.empty(offsets[-1], np.uint64)
    _number_blocks(paths.path_offsets, paths.path_segments, firsts, requests, keys)
    return keys, offsets


def _segments_ending_at(ends: Int64Array, starts: Int64Array) -> Int32Array:
    """Return the segment that ends at each of some places; -1 for the root."""
    return np.searchsorted(starts, ends).astype(np.int32) - np.int32(1)


@jit
def _ends_among_cold_blocks(
    sources: Int64Array, known: Int64Array, lookups: Int64Array, cold_starts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return where each known prefix, and each lookup, ends among the cold blocks; 0 at the root.

    An owner's known prefix ends in another owner's cold blocks, so owners form a tree; the owner of block
    ``h - 1`` of a path is the first one, from the deepest up, whose known prefix is shorter than ``h``.
    """
    n_requests = len(sources)
    owners = np.full(n_requests, -1, np.int64)
    known_ends = np.zeros(n_requests, np.int64)
    lookup_ends = np.zeros(n_requests, np.int64)
    for request in range(n_requests):
        if known[request] == 0:
            continue
        owner = sources[request]
        # A request that knew as much when it came owns no block of this prefix: its own begin behind it. An
        # owner knew strictly less than those that point to it, and the first of all knew nothing, so that
        # the walk ends at the one in whose cold blocks the prefix ends.
        while known[owner] >= known[request]:
            owner = owners[owner]
        owners[request] = owner
        known_ends[request] = cold_starts[owner] + known[request] - known[owner]
        if lookups[request] == 0:
            continue
        while known[owner] >= lookups[request]:
            owner = owners[owner]
        lookup_ends[request] = cold_starts[owner] + lookups[request] - known[owner]
    return known_ends, lookup_ends


@jit
def _walk_paths(last_segments: Int32Array, parents: Int32Array) -> tuple[Int64Array, Int32Array]:
    """Return the paths from the root to each last segment (-1: an empty path), laid end to end."""
    levels = np.zeros(len(parents), np.int64)
    for segment in range(len(parents)):
        parent = parents[segment]
        levels[segment] = 1 if parent < 0 else levels[parent] + 1
    offsets = np.zeros(len(last_segments) + 1, np.int64)
    for request in range(len(last_segments)):
        segment = last_segments[request]
        offsets[request + 1] = offsets[request] + (0 if segment < 0 else levels[segment])
    steps = np.empty(offsets[-1], np.int32)
    for request in range(len(last_segments)):
        segment = last_segments[request]
        for step in range(offsets[request + 1] - 1, offsets[request] - 1, -1):
            steps[step] = segment
            segment = parents[segment]
    return offsets, steps


@jit
def _number_blocks(
    path_offsets: Int64Array,
    path_segments: Int32Array,
    firsts: Int64Array,
    requests: Int64Array,
    keys: UInt64Array,
) -> None:
    place = 0
    for request in requests:
        for step in range(path_offsets[request], path_offsets[request + 1]):
            segment = path_segments[step]
            for block in range(firsts[segment], firsts[segment + 1]):
                keys[place] = block
                place += 1

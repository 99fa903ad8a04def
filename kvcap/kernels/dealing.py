"""Deal one request stream to several instances, where the choice depends on what was dealt before.

The *load* of an instance is the weight of the requests that it was dealt inside a window that ends with the
request at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcap.kernels._jit import jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.kernels.segments import SegmentPaths

_NOBODY: Final = -1


class DealtRequests(NamedTuple):
    """Where requests went: int32 and int64 arrays of shape (n_requests,).

    ``hit_blocks`` are the leading blocks that hit there.
    """

    instances: npt.NDArray[np.int32]
    hit_blocks: npt.NDArray[np.int64]


def deal_to_least_loaded(weights: Int64Array, window_starts: Int64Array, n_instances: int) -> Int32Array:
    """Deal every request to the instance with the least load, the first one of several.

    Parameters
    ----------
    weights : int64 (n_requests,)
        What each request adds to a load, 0 or more.
    window_starts : int64 (n_requests,)
        Ascending: the load at request r is what requests from ``window_starts[r]`` to ``r - 1`` add.
    n_instances
        At least 1.

    Returns
    -------
    int32 (n_requests,)
        Instances, from 0.

    Notes
    -----
    O(requests * instances).
    """
    dealt: Int32Array = _least_loaded(
        np.ascontiguousarray(weights, np.int64), np.ascontiguousarray(window_starts, np.int64), n_instances
    )
    return dealt


def deal_to_longest_prefix(
    paths: SegmentPaths,
    weights: Int64Array,
    window_starts: Int64Array,
    n_instances: int,
    capacity_blocks: int,
    max_load_percent: int,
    *,
    tail_first: bool,
) -> DealtRequests:
    """Deal every request to the instance where most of its leading blocks hit, within a bound on loads.

    Every instance is an LRU cache. One whose load is above ``max_load_percent`` of the mean load takes no
    request; of several that would hit the same, the one with the least load, and then the first one, does.

    Parameters
    ----------
    paths : SegmentPaths
        The stream.
    weights, window_starts : int64 (n_requests,)
        As for :func:`deal_to_least_loaded`.
    n_instances
        At least 1.
    capacity_blocks
        Size of each cache.
    max_load_percent
        At least 100, so that one instance is always within the bound.
    tail_first
        Touch order.

    Notes
    -----
    O(steps * instances) time, O(segments * instances) memory. Bounded loads: Mirrokni, Thorup and
    Zadimoghaddam 2018.
    """
    return DealtRequests(
        *_longest_prefix(
            paths.path_offsets,
            paths.path_segments,
            paths.segment_blocks,
            np.ascontiguousarray(weights, np.int64),
            np.ascontiguousarray(window_starts, np.int64),
            n_instances,
            capacity_blocks,
            max_load_percent,
            tail_first,
        )
    )


@jit
def _expire(loads, instances, weights, begin, end):
    """Take requests that left the window off the loads; return where it begins now."""
    for request in range(begin, end):
        loads[instances[request]] -= weights[request]
    return max(begin, end)


@jit
def _least_loaded(weights, window_starts, n_instances):
    instances = np.empty(weights.size, np.int32)
    loads = np.zeros(n_instances, np.int64)
    begin = 0
    for request in range(weights.size):
        begin = _expire(loads, instances, weights, begin, window_starts[request])
        instances[request] = np.argmin(loads)
        loads[instances[request]] += weights[request]
    return instances


@jit
def _longest_prefix(
    path_offsets,
    path_segments,
    segment_blocks,
    weights,
    window_starts,
    n_instances,
    capacity,
    max_load_percent,
    tail_first,
):
    n_requests = weights.size
    instances = np.empty(n_requests, np.int32)
    hit_blocks = np.empty(n_requests, np.int64)
    loads = np.zeros(n_instances, np.int64)
    caches = new_caches(n_instances, segment_blocks.size, n_requests)
    begin = 0
    for request in range(n_requests):
        begin = _expire(loads, instances, weights, begin, window_starts[request])
        path = path_segments[path_offsets[request] : path_offsets[request + 1]]
        total = loads.sum()
        chosen, most = _NOBODY, 0
        for instance in range(n_instances):
            if 100 * n_instances * loads[instance] > max_load_percent * total:
                continue
            hits = leading_hits(caches, instance, path, segment_blocks, tail_first)
            fewer = chosen >= 0 and hits < most
            if chosen < 0 or hits > most or (not fewer and loads[instance] < loads[chosen]):
                chosen, most = instance, hits
        instances[request], hit_blocks[request] = chosen, most
        loads[chosen] += weights[request]
        touch_path(caches, chosen, request, path, segment_blocks, capacity)
    return instances, hit_blocks


class InstanceCaches(NamedTuple):
    """LRU caches over prefix segments, one per instance.

    What an instance holds of one request is a stretch of that request's path, ``[path_blocks -
    surviving, held_end)`` when evicted tail first: later requests take blocks from its front, eviction from
    its end. An instance's requests are a queue, the oldest first; only the oldest that holds anything can
    be held in part. Head-first, eviction takes the front instead, and a lookup that finds a part evicts
    the rest before it gets there.

    Attributes
    ----------
    touchers : int64 (n_instances, n_segments)
        The last request of each instance that touched a segment, or -1.
    path_blocks, surviving, evicted : int64 (n_requests,)
        Blocks of a request's path, those that no later one touched there, and how many of these were evicted.
    following : int64 (n_requests,)
        The next request of the same instance, or -1.
    oldest, newest, held : int64 (n_instances,)
        Ends of each queue, and the blocks in each cache.
    """

    touchers: npt.NDArray[np.int64]
    path_blocks: npt.NDArray[np.int64]
    surviving: npt.NDArray[np.int64]
    evicted: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]
    oldest: npt.NDArray[np.int64]
    newest: npt.NDArray[np.int64]
    held: npt.NDArray[np.int64]


@jit
def new_caches(n_instances, n_segments, n_requests):
    """Return empty caches."""
    return InstanceCaches(
        np.full((n_instances, n_segments), _NOBODY, np.int64),
        np.zeros(n_requests, np.int64),
        np.zeros(n_requests, np.int64),
        np.zeros(n_requests, np.int64),
        np.full(n_requests, _NOBODY, np.int64),
        np.full(n_instances, _NOBODY, np.int64),
        np.full(n_instances, _NOBODY, np.int64),
        np.zeros(n_instances, np.int64),
    )


@jit
def leading_hits(caches, instance, path, segment_blocks, tail_first):
    """Return how many leading blocks of a path would hit on an instance."""
    hits = 0
    for segment in path:
        toucher = caches.touchers[instance, segment]
        if toucher < 0:
            return hits
        end = hits + segment_blocks[segment]
        if caches.evicted[toucher] > 0:
            # What is held ends before this segment does, or (head-first) goes before it is looked up.
            held_end = caches.path_blocks[toucher] - caches.evicted[toucher] if tail_first else 0
            if held_end < end:
                return max(hits, held_end)
        hits = end
    return hits


@jit
def touch_path(caches, instance, request, path, segment_blocks, capacity):
    """Make a path the newest of a cache, and evict what no longer fits."""
    length = 0
    for segment in path:
        blocks = segment_blocks[segment]
        length += blocks
        toucher = caches.touchers[instance, segment]
        if toucher >= 0:
            held = max(0, min(blocks, caches.surviving[toucher] - caches.evicted[toucher]))
            caches.held[instance] -= held
            caches.surviving[toucher] -= blocks
            caches.evicted[toucher] -= blocks - held
        caches.touchers[instance, segment] = request
    caches.path_blocks[request] = caches.surviving[request] = length
    caches.held[instance] += length
    if caches.newest[instance] < 0:
        caches.oldest[instance] = request
    else:
        caches.following[caches.newest[instance]] = request
    caches.newest[instance] = request
    while caches.held[instance] > capacity:
        oldest = caches.oldest[instance]
        left = caches.surviving[oldest] - caches.evicted[oldest]
        gone = min(left, caches.held[instance] - capacity)
        caches.evicted[oldest] += gone
        caches.held[instance] -= gone
        if gone == left:
            if oldest == request:
                break
            caches.oldest[instance] = caches.following[oldest]

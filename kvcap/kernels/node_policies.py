"""SGLang's other eviction policies: whole radix-tree nodes go, the leaf that a policy ranks lowest first.

The tree and what requests do in it are those of :mod:`kvcap.kernels.node_lru`. A node counts the requests
that put their prompt through it, its own first one included; where it is split, the front takes over its
count and the time when it came.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

import numpy as np
from numba import prange

from kvcap.kernels._jit import inner_jit, parallel_jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.segments import SegmentPaths

LFU, SLRU, FIFO, FILO, MRU = range(5)
"""Which leaf goes first: the one with the fewest requests, the older of two; the one used longest ago, those
with two requests or more after all others; the one that came first; that came last; that was used last."""

_ABSENT: Final = -1
_RANK: Final = 40
"""Bits that the clock may take below a count."""
_N_COLUMNS: Final = 5
CHILDREN, REQUESTS, CAME, USED, LOCKED = range(_N_COLUMNS)
"""What is kept of a node: number of children, count of requests, times, and the last request that held it."""


def node_policy_hit_blocks(
    paths: SegmentPaths,
    lookup_blocks: Int64Array,
    held_blocks: Int64Array,
    capacities_blocks: Int64Array,
    policy: int,
) -> Int64Array:
    """Return the blocks that every request finds in SGLang's radix tree.

    Parameters
    ----------
    paths : SegmentPaths
        The blocks that requests leave in the tree, with segments ending where lookups stop.
    lookup_blocks : int64 (n_requests,)
        Blocks of each request that may hit.
    held_blocks : int64 (n_requests,)
        Blocks that each request occupies while it runs, its found ones and an incomplete last one included.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.
    policy
        ``LFU``, ``SLRU``, ``FIFO``, ``FILO`` or ``MRU``.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.

    Notes
    -----
    O(steps + requests log requests) time and O(segments + requests) memory per capacity; capacities run in
    parallel.
    """
    hit_blocks = np.zeros((len(capacities_blocks), len(paths.path_offsets) - 1), np.int64)
    _simulate(
        np.maximum(capacities_blocks, 0, dtype=np.int64),
        paths.path_offsets,
        paths.path_segments,
        paths.segment_blocks,
        paths.segment_parents,
        np.ascontiguousarray(lookup_blocks, np.int64),
        np.ascontiguousarray(held_blocks, np.int64),
        policy,
        hit_blocks,
    )
    return hit_blocks


@parallel_jit
def _simulate(
    capacities,
    path_offsets,
    path_segments,
    segment_blocks,
    segment_parents,
    lookup_blocks,
    held_blocks,
    policy,
    hit_blocks,
):
    for point in prange(len(capacities)):
        _simulate_cache(
            capacities[point],
            path_offsets,
            path_segments,
            segment_blocks,
            segment_parents,
            lookup_blocks,
            held_blocks,
            policy,
            hit_blocks[point],
        )


@inner_jit
def _simulate_cache(
    free,
    path_offsets,
    path_segments,
    segment_blocks,
    segment_parents,
    lookup_blocks,
    held_blocks,
    policy,
    hit_blocks,
):
    # A node goes by its last segment; nodes[s] is the node of segment s. The heap has every leaf that is not
    # held at its present rank; entries that are no longer true are passed over.
    n_segments = len(segment_blocks)
    nodes = np.full(n_segments, _ABSENT, np.int32)
    facts = np.zeros((n_segments, _N_COLUMNS), np.int64)
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]
    clock = np.int64(0)
    for request in range(len(path_offsets) - 1):
        path = path_segments[path_offsets[request] : path_offsets[request + 1]]
        steps, hits, clock = _walk(
            path, lookup_blocks[request], segment_blocks, nodes, facts, policy, heap, clock
        )
        for step in range(steps):
            facts[path[step], LOCKED] = request + 1
        hit_blocks[request] = hits
        new_blocks = held_blocks[request] - hits
        while free < new_blocks + 1 and len(heap) > 0:
            rank, node = heapq.heappop(heap)
            is_leaf = nodes[node] == node and facts[node, CHILDREN] == 0
            if is_leaf and facts[node, LOCKED] != request + 1 and _rank(facts, node, policy) == rank:
                free += _evict(node, segment_blocks, segment_parents, nodes, facts, policy, heap)
        if free >= new_blocks:
            steps, _, clock = _walk(
                path, np.int64(1) << 62, segment_blocks, nodes, facts, policy, heap, clock
            )
            clock += 1
            if steps < len(path):
                leaf = path[-1]
                if steps > 0:
                    facts[path[steps - 1], CHILDREN] += 1
                for step in range(steps, len(path)):
                    nodes[path[step]] = leaf
                    free -= segment_blocks[path[step]]
                facts[leaf, CHILDREN] = 0
                facts[leaf, REQUESTS] = 0
                facts[leaf, CAME] = clock
                facts[leaf, USED] = clock
                steps = len(path)
            for step in range(steps):
                if nodes[path[step]] == path[step]:
                    facts[path[step], REQUESTS] += 1
        if steps > 0 and facts[path[steps - 1], CHILDREN] == 0:
            heapq.heappush(heap, (_rank(facts, np.int64(path[steps - 1]), policy), np.int64(path[steps - 1])))
    return free


@inner_jit
def _rank(facts, node, policy):
    """Return a leaf's rank: the lowest goes first."""
    if policy == LFU:
        return (facts[node, REQUESTS] << _RANK) + facts[node, USED]
    if policy == SLRU:
        return ((1 if facts[node, REQUESTS] >= 2 else 0) << _RANK) + facts[node, USED]
    if policy == FIFO:
        return facts[node, CAME]
    if policy == FILO:
        return -facts[node, CAME]
    return -facts[node, USED]


@inner_jit
def _walk(path, limit_blocks, segment_blocks, nodes, facts, policy, heap, clock):
    """Touch the resident nodes of a path, cutting the last one where the path leaves it.

    Return steps, blocks, and the clock after it.
    """
    steps, blocks = 0, np.int64(0)
    clock += 1
    while steps < len(path) and blocks < limit_blocks and nodes[path[steps]] != _ABSENT:
        facts[nodes[path[steps]], USED] = clock
        blocks += segment_blocks[path[steps]]
        steps += 1
    if steps > 0 and nodes[path[steps - 1]] != path[steps - 1]:
        rest, front = np.int64(nodes[path[steps - 1]]), path[steps - 1]
        step = steps - 1
        while step >= 0 and nodes[path[step]] == rest:
            nodes[path[step]] = front
            step -= 1
        clock += 1
        facts[front, CHILDREN] = 1
        facts[front, REQUESTS] = facts[rest, REQUESTS]
        facts[front, CAME] = facts[rest, CAME]
        facts[front, USED] = clock
        if facts[rest, CHILDREN] == 0:
            heapq.heappush(heap, (_rank(facts, rest, policy), rest))
    return steps, blocks, clock


@inner_jit
def _evict(node, segment_blocks, segment_parents, nodes, facts, policy, heap):
    """Drop a leaf; return its blocks."""
    blocks = np.int64(0)
    segment = node
    while segment >= 0 and nodes[segment] == node:
        blocks += segment_blocks[segment]
        nodes[segment] = _ABSENT
        segment = np.int64(segment_parents[segment])
    if segment >= 0:
        parent = np.int64(nodes[segment])
        facts[parent, CHILDREN] -= 1
        if facts[parent, CHILDREN] == 0:
            heapq.heappush(heap, (_rank(facts, parent, policy), parent))
    return blocks

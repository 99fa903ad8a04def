"""SGLang's eviction: least recently used first, by whole radix-tree nodes, simulated per capacity.

A tree node is a span of blocks that came in together and that no prompt has parted since. Requests run one
at a time. A request

1. looks up its prefix, front to back, and touches the nodes it walks; the node in which it stops is split
   there, and the rest of that node counts as just used, only before the path itself;
2. locks the nodes it found, and evicts the oldest leaves until its new blocks and one more fit;
3. computes without leaving anything behind if its new blocks still do not fit; else it walks its whole path
   once more in the same way, and what is missing becomes one new node.

A node is touched whenever one below it is, and before it. So in order of use every node comes after all
nodes below it, and the oldest node is the oldest leaf: a linked list is all the order there is to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import prange

from kvcap.kernels._jit import jit, parallel_jit
from kvcap.kernels.ring import ring_append, ring_remove

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.kernels.segments import SegmentPaths

_ABSENT: Final = -1
_UNLIMITED: Final = 1 << 62


def node_lru_hit_blocks(
    paths: SegmentPaths, lookup_blocks: Int64Array, held_blocks: Int64Array, capacities_blocks: Int64Array
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

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.

    Notes
    -----
    O(steps + segments) time and O(segments) memory per capacity; capacities run in parallel.
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
        hit_blocks,
    )
    return hit_blocks


@parallel_jit
def _simulate(
    capacities: Int64Array,
    path_offsets: Int64Array,
    path_segments: Int32Array,
    segment_blocks: Int64Array,
    segment_parents: Int32Array,
    lookup_blocks: Int64Array,
    held_blocks: Int64Array,
    hit_blocks: Int64Array,
) -> None:
    n_segments = len(segment_blocks)
    for point in prange(len(capacities)):
        # A node goes by its last segment; nodes[s] is the node of segment s. The list of unlocked nodes,
        # oldest first, is a ring through one more place, n_segments.
        nodes = np.full(n_segments, _ABSENT, np.int32)
        older = np.full(n_segments + 1, n_segments, np.int32)
        newer = np.full(n_segments + 1, n_segments, np.int32)
        free = capacities[point]
        for request in range(len(path_offsets) - 1):
            path = path_segments[path_offsets[request] : path_offsets[request + 1]]
            steps, hits = _lock(0, 0, lookup_blocks[request], path, segment_blocks, nodes, older, newer)
            hit_blocks[point, request] = hits
            new_blocks = held_blocks[request] - hits
            while free < new_blocks + 1 and newer[n_segments] != n_segments:
                free += _evict(newer[n_segments], segment_blocks, segment_parents, nodes, older, newer)
            if free >= new_blocks:
                steps, hits = _lock(steps, hits, _UNLIMITED, path, segment_blocks, nodes, older, newer)
                for step in range(steps, len(path)):
                    nodes[path[step]] = path[-1]
                    free -= segment_blocks[path[step]]
                steps = len(path)
            for step in range(steps - 1, -1, -1):
                if nodes[path[step]] == path[step]:
                    ring_append(path[step], older, newer)


@jit
def _lock(
    steps: int,
    blocks: int,
    limit_blocks: int,
    path: Int32Array,
    segment_blocks: Int64Array,
    nodes: Int32Array,
    older: Int32Array,
    newer: Int32Array,
) -> tuple[int, int]:
    """Take the resident nodes of a path off the list, from a step on; return the steps and blocks found."""
    first = steps
    while steps < len(path) and blocks < limit_blocks and nodes[path[steps]] != _ABSENT:
        blocks += segment_blocks[path[steps]]
        steps += 1
    if steps > first and nodes[path[steps - 1]] != path[steps - 1]:
        rest = nodes[path[steps - 1]]
        ring_remove(rest, older, newer)
        ring_append(rest, older, newer)
        step = steps - 1
        while step >= first and nodes[path[step]] == rest:
            nodes[path[step]] = path[steps - 1]
            step -= 1
        end = step + 1
    else:
        end = steps
    for step in range(first, end):
        if nodes[path[step]] == path[step]:
            ring_remove(path[step], older, newer)
    return steps, blocks


@jit
def _evict(
    node: int,
    segment_blocks: Int64Array,
    segment_parents: Int32Array,
    nodes: Int32Array,
    older: Int32Array,
    newer: Int32Array,
) -> int:
    """Drop a leaf; return its blocks."""
    ring_remove(node, older, newer)
    blocks = 0
    segment = node
    while segment >= 0 and nodes[segment] == node:
        blocks += segment_blocks[segment]
        nodes[segment] = _ABSENT
        segment = segment_parents[segment]
    return blocks

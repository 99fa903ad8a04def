"""vLLM's eviction: least recently used first, block by block, simulated per capacity over prefix segments.

Requests run one at a time. A request that needs more blocks than there are is never admitted. Any other

1. looks up its prefix, front to back, and takes the blocks it finds off the queue of free ones;
2. takes new blocks for all the others that it occupies: empty ones first, then the oldest of the queue, which
   forget what they held;
3. at its end hands its full blocks back to the young end of the queue, the last one first, and empties the
   incomplete one.

Blocks that a request computes are never merged with equal ones that are there already: where a lookup has to
stop before the end of a prompt that is cached to its end, its last block is there twice, until one of them is
evicted. A lookup takes the copy that came first.

In the queue the blocks of one segment that a request handed back lie one after the other and go from the deep
end, so that an *entry*, one copy of the first so many blocks of a segment, is all the state there is to keep.
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

_NONE: Final = -1


def block_lru_hit_blocks(
    paths: SegmentPaths, lookup_blocks: Int64Array, held_blocks: Int64Array, capacities_blocks: Int64Array
) -> Int64Array:
    """Return the blocks that every request finds in vLLM's prefix cache.

    Parameters
    ----------
    paths : SegmentPaths
        The full blocks of requests, with segments ending where lookups stop.
    lookup_blocks : int64 (n_requests,)
        Blocks of each request that may hit.
    held_blocks : int64 (n_requests,)
        Blocks that each request occupies while it runs, an incomplete last one included.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks; 0 for a request that is not admitted.

    Notes
    -----
    O(steps) time and O(steps + segments) memory per capacity; capacities run in parallel.
    """
    hit_blocks = np.zeros((len(capacities_blocks), len(paths.path_offsets) - 1), np.int64)
    _simulate(
        np.maximum(capacities_blocks, 0, dtype=np.int64),
        paths.path_offsets,
        paths.path_segments,
        paths.segment_blocks,
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
    lookup_blocks: Int64Array,
    held_blocks: Int64Array,
    hit_blocks: Int64Array,
) -> None:
    for point in prange(len(capacities)):
        # Every entry holds a block. The queue, oldest first, is a ring through one place more than there
        # are entries; unused entries are chained by their next copy.
        n_entries = min(capacities[point], len(path_segments))
        segments = np.empty(n_entries, np.int32)
        blocks = np.zeros(n_entries, np.int64)
        older = np.full(n_entries + 1, n_entries, np.int32)
        newer = np.full(n_entries + 1, n_entries, np.int32)
        next_copies = np.arange(1, n_entries + 1, dtype=np.int32)
        first_copies = np.full(len(segment_blocks), _NONE, np.int32)
        unused = 0
        free = capacities[point]
        for request in range(len(path_offsets) - 1):
            if held_blocks[request] > capacities[point]:
                continue
            path = path_segments[path_offsets[request] : path_offsets[request + 1]]
            steps = 0
            hits = 0
            while steps < len(path) and hits < lookup_blocks[request] and first_copies[path[steps]] != _NONE:
                segment = path[steps]
                entry = first_copies[segment]
                _gather(entry, blocks, next_copies)
                ring_remove(entry, older, newer)
                hits += blocks[entry]
                steps += 1
                # A copy loses its deep end first, so that what is left of it is a prefix of the segment:
                # where all copies together fall short of it, the lookup ends, whatever lies beyond.
                if blocks[entry] < segment_blocks[segment]:
                    break
            hit_blocks[point, request] = hits
            new_blocks = held_blocks[request] - hits
            # The request's own hits are off the queue, so that it never evicts what it reuses; and as it
            # holds no more than the capacity, the queue has enough.
            while free < new_blocks:
                oldest = newer[n_entries]
                evicted = min(blocks[oldest], new_blocks - free)
                blocks[oldest] -= evicted
                free += evicted
                if blocks[oldest] == 0:
                    unused = _drop(oldest, segments[oldest], unused, older, newer, next_copies, first_copies)
            for step in range(len(path) - 1, -1, -1):
                segment = path[step]
                if step < steps:
                    entry = first_copies[segment]
                else:
                    entry = unused
                    unused = next_copies[entry]
                    segments[entry] = segment
                    blocks[entry] = 0
                    _add_copy(entry, segment, next_copies, first_copies)
                free -= segment_blocks[segment] - blocks[entry]
                blocks[entry] = segment_blocks[segment]
                ring_append(entry, older, newer)


@jit
def _gather(first: int, blocks: Int64Array, next_copies: Int32Array) -> None:
    """Move what the copies of a segment have beyond the ones before them into the first.

    Every block is taken from its first copy that still has it, and what remains of each copy stays a prefix.
    """
    copy = next_copies[first]
    while copy != _NONE:
        deepest = blocks[copy]
        blocks[copy] = min(deepest, blocks[first])
        blocks[first] = max(deepest, blocks[first])
        copy = next_copies[copy]


@jit
def _drop(
    entry: int,
    segment: int,
    unused: int,
    older: Int32Array,
    newer: Int32Array,
    next_copies: Int32Array,
    first_copies: Int32Array,
) -> int:
    """Take an empty entry out of the queue and of its segment's copies; return the unused chain."""
    ring_remove(entry, older, newer)
    if first_copies[segment] == entry:
        first_copies[segment] = next_copies[entry]
    else:
        copy = first_copies[segment]
        while next_copies[copy] != entry:
            copy = next_copies[copy]
        next_copies[copy] = next_copies[entry]
    next_copies[entry] = unused
    return entry


@jit
def _add_copy(entry: int, segment: int, next_copies: Int32Array, first_copies: Int32Array) -> None:
    """Put an entry behind all other copies of its segment."""
    next_copies[entry] = _NONE
    if first_copies[segment] == _NONE:
        first_copies[segment] = entry
        return
    copy = first_copies[segment]
    while next_copies[copy] != _NONE:
        copy = next_copies[copy]
    next_copies[copy] = entry

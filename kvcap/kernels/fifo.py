"""First in, first out, at block level: simulated per capacity, over prefix segments.

A request walks its blocks front to back; a block that is not resident is inserted there and then, which
evicts the block inserted longest ago when the cache is full. A hit moves nothing. So a block is resident
iff fewer than ``capacity`` insertions came after its own.

The blocks of a segment are always inserted one right after the other. If the first one is resident, so
are all the others, which are younger. If it is not, its insertion evicts the oldest resident block just
before the walk gets there, and so on: the whole segment misses. One number per segment is all the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import prange

from kvcap.kernels._jit import parallel_jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.kernels.segments import SegmentPaths

_NEVER: Final = -(1 << 62)


def fifo_hit_blocks(paths: SegmentPaths, capacities_blocks: Int64Array) -> Int64Array:
    """Return every request's leading consecutive hits under FIFO.

    Parameters
    ----------
    paths : SegmentPaths
        The trace.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.

    Notes
    -----
    O(steps) time and O(segments) memory per capacity; capacities run in parallel.
    """
    hit_blocks = np.zeros((len(capacities_blocks), len(paths.path_offsets) - 1), np.int64)
    _simulate(
        np.maximum(capacities_blocks, 0, dtype=np.int64),
        paths.path_offsets,
        paths.path_segments,
        paths.segment_blocks,
        hit_blocks,
    )
    return hit_blocks


@parallel_jit
def _simulate(
    capacities: Int64Array,
    path_offsets: Int64Array,
    path_segments: Int32Array,
    segment_blocks: Int64Array,
    hit_blocks: Int64Array,
) -> None:
    for point in prange(len(capacities)):
        inserted_at = np.full(len(segment_blocks), _NEVER, np.int64)
        insertions = 0
        for request in range(len(path_offsets) - 1):
            hits = 0
            unbroken = True
            for step in range(path_offsets[request], path_offsets[request + 1]):
                segment = path_segments[step]
                blocks = segment_blocks[segment]
                if insertions - inserted_at[segment] < capacities[point]:
                    if unbroken:
                        hits += blocks
                else:
                    unbroken = False
                    inserted_at[segment] = insertions + 1
                    insertions += blocks
            hit_blocks[point, request] = hits

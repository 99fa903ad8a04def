"""Belady's optimal replacement with bypass: simulated per capacity, over reuse runs.

Seen from its source, a reuse run says which blocks of a request are next used by which later one. After a
request, the cache keeps the blocks that are next used soonest; what is never used again is not kept at all.
A block is never used later than those behind it, so what is kept is closed under prefixes: every hit is a
prefix hit, and no policy that knows the future has more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import prange

from kvcap.kernels._jit import jit, parallel_jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.reuse_runs import ReuseRuns


def optimal_hit_blocks(runs: ReuseRuns, n_requests: int, capacities_blocks: Int64Array) -> Int64Array:
    """Return every request's leading consecutive hits under optimal replacement.

    Parameters
    ----------
    runs : ReuseRuns
        All runs of requests 0 to n_requests - 1.
    n_requests
        Requests in the trace.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.

    Notes
    -----
    O(runs log runs) time and O(runs) memory per capacity; capacities run in parallel. Source: Belady 1966;
    bypass means that a block need not enter the cache.
    """
    requests = np.arange(n_requests + 1)
    hit_blocks = np.zeros((len(capacities_blocks), n_requests), np.int64)
    _simulate(
        np.maximum(capacities_blocks, 0, dtype=np.int64),
        np.ascontiguousarray(runs.blocks, np.int64),
        np.searchsorted(runs.request, requests),
        np.argsort(runs.source_request, kind="stable"),
        np.searchsorted(np.sort(runs.source_request), requests),
        hit_blocks,
    )
    return hit_blocks


@parallel_jit
def _simulate(
    capacities: Int64Array,
    run_blocks: Int64Array,
    use_offsets: Int64Array,
    source_runs: Int64Array,
    source_offsets: Int64Array,
    hit_blocks: Int64Array,
) -> None:
    for point in prange(len(capacities)):
        kept = np.zeros(len(run_blocks), np.int64)
        heap = np.empty(len(run_blocks), np.int64)
        heap_size = 0
        total = 0
        for request in range(len(use_offsets) - 1):
            unbroken = True
            for run in range(use_offsets[request], use_offsets[request + 1]):
                if unbroken:
                    hit_blocks[point, request] += kept[run]
                unbroken = unbroken and kept[run] == run_blocks[run]
                total -= kept[run]
                kept[run] = 0
            for entry in range(source_offsets[request], source_offsets[request + 1]):
                run = source_runs[entry]
                kept[run] = run_blocks[run]
                total += run_blocks[run]
                heap_size = _push(heap, heap_size, run)
            while total > capacities[point]:
                # Runs are numbered by next use, so the largest number is the one needed last. Runs that
                # were used already have the smallest numbers: they surface only when nothing is kept.
                farthest = heap[0]
                surplus = min(total - capacities[point], kept[farthest])
                kept[farthest] -= surplus
                total -= surplus
                if kept[farthest] == 0:
                    heap_size = _pop(heap, heap_size)


@jit
def _push(heap: Int64Array, size: int, value: int) -> int:
    """Add a value to a max-heap that fills ``heap[:size]``; return the new size."""
    place = size
    while place > 0 and heap[(place - 1) >> 1] < value:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = value
    return size + 1


@jit
def _pop(heap: Int64Array, size: int) -> int:
    """Take the largest value off a max-heap that fills ``heap[:size]``; return the new size."""
    size -= 1
    value = heap[size]
    place = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = value
    return size

"""Least recently used first: hits at any capacity, straight from the depths of one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvcap.kernels.run_tables import run_hits

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.reuse_runs import ReuseRuns


def lru_hit_blocks(
    runs: ReuseRuns, n_requests: int, capacities_blocks: Int64Array, *, tail_first: bool
) -> Int64Array:
    """Return every request's leading consecutive hits under LRU.

    Parameters
    ----------
    runs : ReuseRuns
        All runs of requests 0 to n_requests - 1.
    n_requests
        Requests in the trace.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.
    tail_first
        The touch order whose depths to use.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.
    """
    hit_blocks = np.zeros((len(capacities_blocks), n_requests), np.int64)
    for row, capacity in zip(hit_blocks, capacities_blocks, strict=True):
        np.add.at(row, runs.request, run_hits(runs, capacity, tail_first=tail_first))
    return hit_blocks

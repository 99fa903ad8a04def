"""What each request found in the caches of a few capacities: one row of whole numbers per request."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.reuse_runs import ReuseRuns

TIMESTAMP_US: Final = 0
INPUT_TOKENS: Final = 1
BLOCKS: Final = 2
CEILING_BLOCKS: Final = 3
CEILING_TOKENS: Final = 4
WITHIN_BOUND_BLOCKS: Final = 5
REQUIRED_BLOCKS: Final = 6
FIRST_CAPACITY: Final = 7
"""Columns of a row; hit blocks of every capacity follow, and then hit tokens of every capacity."""


@jit
def _hits(depth, depth_head_first, blocks, capacity, tail_first):
    if tail_first:
        return min(blocks, max(0, capacity - depth))
    return blocks if depth_head_first < capacity else 0


@jit
def _prefix_tokens(n_hits, n_blocks, input_tokens, block_size):
    """Tokens in a request's first blocks: each weighs what is left of the prompt, 1 to ``block_size``."""
    covered = min(input_tokens, n_blocks * block_size)
    whole = covered // block_size
    if n_hits <= whole:
        return n_hits * block_size
    rest = covered - whole * block_size
    return whole * block_size + max(rest, 1) + n_hits - whole - 1


@jit
def _observe(rows, runs, first_request, capacities, bound, block_size, numerator, denominator, tail_first):
    n_capacities = capacities.size
    blocks, depth, head = runs.blocks, runs.depth, runs.depth_head_first
    for run in range(blocks.size):
        row = rows[runs.request[run] - first_request]
        row[CEILING_BLOCKS] += blocks[run]
        row[WITHIN_BOUND_BLOCKS] += _hits(depth[run], head[run], blocks[run], bound, tail_first)
        for c in range(n_capacities):
            row[FIRST_CAPACITY + c] += _hits(depth[run], head[run], blocks[run], capacities[c], tail_first)
    for run in range(blocks.size):
        row = rows[runs.request[run] - first_request]
        last = -(-row[CEILING_BLOCKS] * numerator // denominator) - 1
        within_run = last - runs.first_block[run]
        if 0 <= within_run < blocks[run]:
            row[REQUIRED_BLOCKS] = (depth[run] + within_run if tail_first else head[run]) + 1
    for r in range(rows.shape[0]):
        row = rows[r]
        row[CEILING_TOKENS] = _prefix_tokens(row[CEILING_BLOCKS], row[BLOCKS], row[INPUT_TOKENS], block_size)
        for c in range(FIRST_CAPACITY, FIRST_CAPACITY + n_capacities):
            row[c + n_capacities] = _prefix_tokens(row[c], row[BLOCKS], row[INPUT_TOKENS], block_size)


def observe(
    runs: ReuseRuns,
    first_request: int,
    requests: tuple[Int64Array, Int64Array, Int64Array],
    capacities: Int64Array,
    bound: int,
    block_size: int,
    target: tuple[int, int],
    *,
    tail_first: bool,
) -> Int64Array:
    """Return what requests found at each capacity.

    Parameters
    ----------
    runs
        Reuse runs of the requests; those of one begin at block 0 and follow each other without a gap.
    first_request
        The number of the first request in ``runs``.
    requests
        Timestamps in microseconds, prompt lengths and numbers of blocks: each int64 (n_requests,).
    capacities : int64 (n_capacities,)
        In blocks.
    bound
        Capacity in blocks up to which nothing is forgotten.
    block_size
        Tokens of a full block.
    target
        Share of its ceiling that a request must reach, as numerator and denominator.
    tail_first
        The touch order whose depths to use.

    Returns
    -------
    int64 (n_requests, FIRST_CAPACITY + 2 * n_capacities)
        Sums of rows are totals, in every column but ``TIMESTAMP_US`` and ``REQUIRED_BLOCKS``.
    """
    rows = np.zeros((requests[0].size, FIRST_CAPACITY + 2 * capacities.size), np.int64)
    rows[:, TIMESTAMP_US], rows[:, INPUT_TOKENS], rows[:, BLOCKS] = requests
    _observe(rows, runs, first_request, capacities, bound, block_size, target[0], target[1], tail_first)
    return rows

"""Hits over capacity: the exact piecewise linear function behind every hit-rate curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.run_tables import WeightedRuns


class Curve(NamedTuple):
    """Corners of hits over capacity: int64 arrays of shape (n_corners,), capacity ascending from 0.

    At a capacity C from one corner up to the next, hits are the corner's plus ``(C - capacity_blocks)``
    times the hits gained per further block of capacity.
    """

    capacity_blocks: Int64Array
    hit_blocks: Int64Array
    hit_tokens: Int64Array
    blocks_per_capacity_block: Int64Array
    tokens_per_capacity_block: Int64Array


def hit_curve(runs: WeightedRuns, *, tail_first: bool) -> Curve:
    """Return the hits at every capacity.

    Tail-first, the blocks of a run hit one by one at capacities ``depth + 1, depth + 2, ...``: a ramp.
    Head-first they all hit at ``depth_head_first + 1``: a jump.
    """
    zero = np.zeros(1, np.int64)
    tokens = runs.blocks * runs.tokens_per_block
    if tail_first:
        ones = np.ones_like(runs.blocks)
        capacity = np.concatenate([zero, runs.depth, runs.depth + runs.blocks])
        slope_blocks = np.concatenate([zero, ones, -ones])
        slope_tokens = np.concatenate([zero, runs.tokens_per_block, -runs.tokens_per_block])
        jump_blocks = jump_tokens = np.zeros_like(capacity)
    else:
        capacity = np.concatenate([zero, runs.depth_head_first + 1])
        slope_blocks = slope_tokens = np.zeros_like(capacity)
        jump_blocks = np.concatenate([zero, runs.blocks])
        jump_tokens = np.concatenate([zero, tokens])
    corners, inverse = np.unique(capacity, return_inverse=True)
    steps = np.diff(corners)

    def at_corners(values: Int64Array) -> Int64Array:
        summed = np.zeros(corners.size, np.int64)
        np.add.at(summed, inverse, values)
        return summed

    def integrated(slope: Int64Array, jumps: Int64Array) -> Int64Array:
        risen = np.concatenate([zero, np.cumsum(slope[:-1] * steps)])
        return risen + np.cumsum(at_corners(jumps))

    blocks_slope = np.cumsum(at_corners(slope_blocks))
    tokens_slope = np.cumsum(at_corners(slope_tokens))
    return Curve(
        corners,
        integrated(blocks_slope, jump_blocks),
        integrated(tokens_slope, jump_tokens),
        blocks_slope,
        tokens_slope,
    )


def hits_at(curve: Curve, capacity_blocks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return hit blocks and hit tokens at capacities of 0 or more, each int64 of the same shape."""
    corner = np.searchsorted(curve.capacity_blocks, capacity_blocks, side="right") - 1
    beyond = capacity_blocks - curve.capacity_blocks[corner]
    return (
        curve.hit_blocks[corner] + beyond * curve.blocks_per_capacity_block[corner],
        curve.hit_tokens[corner] + beyond * curve.tokens_per_capacity_block[corner],
    )


def summed_curve(curves: Sequence[Curve]) -> Curve:
    """Return the hits of several caches together, each of them at the same capacity; at least one curve."""
    corners = np.unique(np.concatenate([curve.capacity_blocks for curve in curves]))
    sums = np.zeros((4, corners.size), np.int64)
    for curve in curves:
        corner = np.searchsorted(curve.capacity_blocks, corners, side="right") - 1
        sums[0:2] += hits_at(curve, corners)
        sums[2] += curve.blocks_per_capacity_block[corner]
        sums[3] += curve.tokens_per_capacity_block[corner]
    return Curve(corners, *sums)


def smallest_capacity(curve: Curve, hit_blocks: int) -> int | None:
    """Return the smallest capacity that hits so many blocks, or None where none does."""
    corner = int(np.searchsorted(curve.hit_blocks, hit_blocks))
    if corner == curve.hit_blocks.size:
        return None
    if corner == 0:
        return int(curve.capacity_blocks[0])
    # Head-first hits jump at corners; tail-first ones climb from the corner before.
    slope = int(curve.blocks_per_capacity_block[corner - 1])
    if slope == 0:
        return int(curve.capacity_blocks[corner])
    missing = hit_blocks - int(curve.hit_blocks[corner - 1])
    return int(curve.capacity_blocks[corner - 1]) - (-missing // slope)

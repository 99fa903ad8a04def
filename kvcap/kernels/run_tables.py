"""What follows from reuse runs alone: token weights, ceilings, required capacities."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.copying import with_free_row
from kvcap.kernels.reuse_runs import ReuseRuns


class WeightedRuns(NamedTuple):
    """Reuse runs in which all blocks weigh the same: int64 arrays of shape (n_runs,)."""

    request: Int64Array
    source_request: Int64Array
    first_block: Int64Array
    blocks: Int64Array
    tokens_per_block: Int64Array
    depth: Int64Array
    depth_head_first: Int64Array


@jit
def _weight_of_block(block, covered_tokens, block_size):
    """Tokens of a block: what is left of the prompt there, at least 1 and at most a whole block."""
    return max(1, min(block_size, covered_tokens - block * block_size))


@jit
def _uniform_end(block, end, covered_tokens, block_size):
    """Return where the stretch of equal weights that begins at ``block`` stops, at most ``end``."""
    full_blocks = covered_tokens // block_size
    if block < full_blocks:
        return min(end, full_blocks)
    if _weight_of_block(block, covered_tokens, block_size) > 1:
        return min(end, block + 1)
    return end


@jit
def _explicit_end(first, block, end, block_tokens):
    stop = block + 1
    while stop < end and block_tokens[first + stop] == block_tokens[first + block]:
        stop += 1
    return stop


@jit
def _split(request, first_block, blocks, request_offsets, covered_tokens, block_size, block_tokens):
    """Return, for each piece of equal weight: its run, first block, blocks and tokens per block."""
    pieces = np.empty((request.size + 64, 4), np.int64)
    n = np.int64(0)
    for run in range(request.size):
        r = request[run]
        block = first_block[run]
        end = block + blocks[run]
        while block < end:
            if block_tokens.size > 0:
                first = request_offsets[r]
                stop = _explicit_end(first, block, end, block_tokens)
                weight = np.int64(block_tokens[first + block])
            else:
                stop = _uniform_end(block, end, covered_tokens[r], block_size)
                weight = _weight_of_block(block, covered_tokens[r], block_size)
            pieces = with_free_row(pieces, n)
            pieces[n, 0] = run
            pieces[n, 1] = block
            pieces[n, 2] = stop - block
            pieces[n, 3] = weight
            n += 1
            block = stop
    return pieces[:n]


def split_by_weight(
    runs: ReuseRuns,
    request_offsets: Int64Array,
    covered_tokens: Int64Array,
    block_size: int,
    block_tokens: npt.NDArray[np.int32] | None,
) -> WeightedRuns:
    """Split runs where the tokens per block change, so that token sums are products.

    Parameters
    ----------
    runs
        Runs whose ``request`` counts from 0 in the arrays below.
    request_offsets : int64 (n_requests + 1,)
    covered_tokens : int64 (n_requests,)
    block_size
        Tokens of a full block.
    block_tokens : int32 (n_accesses,), optional
        Explicit weight of every block; without it block i weighs ``covered_tokens - i * block_size``, at
        least 1 and at most ``block_size``.

    Returns
    -------
    WeightedRuns
        With the request numbers of ``runs``.
    """
    weights = np.empty(0, np.int32) if block_tokens is None else np.ascontiguousarray(block_tokens, np.int32)
    pieces = _split(
        runs.request,
        runs.first_block,
        runs.blocks,
        np.ascontiguousarray(request_offsets, np.int64),
        np.ascontiguousarray(covered_tokens, np.int64),
        np.int64(block_size),
        weights,
    )
    run = pieces[:, 0]
    first_block = np.ascontiguousarray(pieces[:, 1])
    return WeightedRuns(
        request=runs.request[run],
        source_request=runs.source_request[run],
        first_block=first_block,
        blocks=np.ascontiguousarray(pieces[:, 2]),
        tokens_per_block=np.ascontiguousarray(pieces[:, 3]),
        depth=runs.depth[run] + first_block - runs.first_block[run],
        depth_head_first=runs.depth_head_first[run],
    )


_Runs = TypeVar("_Runs", ReuseRuns, WeightedRuns)


def leading_parts(runs: _Runs, limit_blocks: Int64Array) -> _Runs:
    """Return what runs have among the first blocks of their requests.

    Parameters
    ----------
    runs
        Runs whose ``request`` counts from 0.
    limit_blocks : int64 (n_requests,)
        How many blocks of each request count.
    """
    room = limit_blocks[runs.request] - runs.first_block
    inside = room > 0
    kept = type(runs)(*(column[inside] for column in runs))
    return kept._replace(blocks=np.minimum(kept.blocks, room[inside]))


def run_hits(runs: _Runs, capacity_blocks: int, *, tail_first: bool) -> Int64Array:
    """Return how many blocks of each run hit at a capacity: int64 (n_runs,)."""
    if tail_first:
        return np.clip(capacity_blocks - runs.depth, 0, runs.blocks)
    return np.where(runs.depth_head_first < capacity_blocks, runs.blocks, 0)


def runs_within(runs: _Runs, max_depth: int, *, tail_first: bool) -> _Runs:
    """Return what runs have that hits at a capacity of ``max_depth`` blocks."""
    hits = run_hits(runs, max_depth, tail_first=tail_first)
    return type(runs)(*(column[hits > 0] for column in runs._replace(blocks=hits)))


def leading_tokens(runs: WeightedRuns, hit_blocks: Int64Array) -> Int64Array:
    """Return the tokens in the leading blocks of each request: int64 (n_requests,).

    Parameters
    ----------
    runs
        Runs whose ``request`` counts from 0.
    hit_blocks : int64 (n_requests,)
        How many leading blocks of each request, all of them inside its runs.
    """
    blocks = np.clip(hit_blocks[runs.request] - runs.first_block, 0, runs.blocks)
    tokens = np.zeros(hit_blocks.size, np.int64)
    np.add.at(tokens, runs.request, blocks * runs.tokens_per_block)
    return tokens


def ceilings(runs: WeightedRuns, n_requests: int) -> tuple[Int64Array, Int64Array]:
    """Return the blocks and the tokens of each request that unlimited storage would have served.

    Both int64 (n_requests,); ``runs.request`` counts from 0.
    """
    blocks = np.zeros(n_requests, np.int64)
    tokens = np.zeros(n_requests, np.int64)
    np.add.at(blocks, runs.request, runs.blocks)
    np.add.at(tokens, runs.request, runs.blocks * runs.tokens_per_block)
    return blocks, tokens


def required_blocks(
    runs: WeightedRuns, ceiling_blocks: Int64Array, target: tuple[int, int], *, tail_first: bool
) -> Int64Array:
    """Return the smallest capacity at which each request reaches a share of its own ceiling.

    Parameters
    ----------
    runs
        Runs whose ``request`` counts from 0.
    ceiling_blocks : int64 (n_requests,)
    target
        The share as numerator and denominator, so that its ceiling is exact.
    tail_first
        The touch order whose depths to use.

    Returns
    -------
    int64 (n_requests,)
        In blocks; 0 where nothing has to hit.

    Notes
    -----
    Depth never falls along a prefix, so the last block that must hit decides alone.
    """
    numerator, denominator = target
    last = (-(-ceiling_blocks * numerator // denominator) - 1)[runs.request]
    found = np.flatnonzero((runs.first_block <= last) & (last < runs.first_block + runs.blocks))
    required = np.zeros(ceiling_blocks.size, np.int64)
    if tail_first:
        required[runs.request[found]] = (runs.depth + 1 + last - runs.first_block)[found]
    else:
        required[runs.request[found]] = (runs.depth_head_first + 1)[found]
    return required

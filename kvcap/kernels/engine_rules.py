"""What serving engines add to prefix caching, as arithmetic on requests.

``n`` is a prompt's length in tokens, ``b`` the block size. Of ``g`` generated tokens the last one is never
fed back, so ``g - 1`` of them enter the cache.

* A prefix cache keeps full blocks only; at least one token of every prompt has to be computed.
* A running request occupies a block for its incomplete last one too.
* Generated tokens fill further blocks, at the end of the request's path.
* A request that is larger than the whole cache is never admitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import prange

from kvcap.kernels._jit import jit, parallel_jit
from kvcap.kernels.reuse_runs import ReuseRunScanner

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvcap.kernels.reuse_runs import Int64Array, ReuseRuns, UInt64Array

_PRIVATE: Final = np.uint64(0xD1B54A32D192ED03)
_MIX: Final = np.uint64(0x9FB21C651E98DF25)


def lookup_blocks(input_tokens: Int64Array, block_size: int) -> Int64Array:
    """Return how many blocks of each request may hit if one token must be computed: floor((n - 1) / b)."""
    return np.maximum(input_tokens - 1, 0) // block_size


def held_blocks(input_tokens: Int64Array, output_tokens: Int64Array, block_size: int) -> Int64Array:
    """Return the blocks that each request occupies before it ends: ceil((n + max(g - 1, 0)) / b)."""
    return -(-(input_tokens + np.maximum(output_tokens - 1, 0)) // block_size)


def generated_blocks(input_tokens: Int64Array, output_tokens: Int64Array, block_size: int) -> Int64Array:
    """Return the full blocks that each request has more at its end: floor((n + g - 1) / b) - floor(n / b)."""
    kept = input_tokens + np.maximum(output_tokens - 1, 0)
    return kept // block_size - input_tokens // block_size


def with_private_blocks(
    block_keys: UInt64Array, request_offsets: Int64Array, private_blocks: Int64Array
) -> tuple[UInt64Array, Int64Array]:
    """Return keys and offsets with blocks behind every request that no other request knows.

    Parameters
    ----------
    block_keys : uint64 (n_accesses,)
        Prefix-chained keys.
    request_offsets : int64 (n_requests + 1,)
        Ascending from 0.
    private_blocks : int64 (n_requests,)
        How many to add to each.

    Returns
    -------
    uint64 (n_accesses + sum(private_blocks),), int64 (n_requests + 1,)
        The new keys differ from each other, and from given 64-bit hashes as far as those do from each other.
    """
    offsets = request_offsets + np.concatenate((np.zeros(1, np.int64), np.cumsum(private_blocks)))
    keys = np.empty(offsets[-1], np.uint64)
    _fill_with_private_blocks(block_keys, request_offsets, offsets, keys)
    return keys, offsets


@jit
def _fill_with_private_blocks(
    block_keys: UInt64Array, request_offsets: Int64Array, offsets: Int64Array, keys: UInt64Array
) -> None:
    for request in range(len(offsets) - 1):
        place = offsets[request]
        for access in range(request_offsets[request], request_offsets[request + 1]):
            keys[place] = block_keys[access]
            place += 1
        for new in range(place, offsets[request + 1]):
            # An odd multiple, a shift that can be undone, an odd multiple: one key per place.
            key = (np.uint64(new) + np.uint64(1)) * _PRIVATE
            keys[new] = (key ^ (key >> np.uint64(32))) * _MIX


def without_requests(
    block_keys: UInt64Array, request_offsets: Int64Array, dropped: npt.NDArray[np.bool_]
) -> tuple[UInt64Array, Int64Array]:
    """Return keys and offsets with some requests emptied, so that the others keep their numbers.

    Parameters
    ----------
    block_keys : uint64 (n_accesses,)
    request_offsets : int64 (n_requests + 1,)
        Ascending from 0.
    dropped : bool (n_requests,)

    Returns
    -------
    uint64 (n_left,), int64 (n_requests + 1,)
    """
    blocks = np.diff(request_offsets)
    if not dropped.any():
        return block_keys, request_offsets
    left = np.where(dropped, 0, blocks)
    return (
        block_keys[np.repeat(~dropped, blocks)],
        np.concatenate((np.zeros(1, np.int64), np.cumsum(left))),
    )


def lru_hit_blocks(runs: ReuseRuns, limit_blocks: Int64Array, capacities_blocks: Int64Array) -> Int64Array:
    """Return every request's hits under tail-first LRU, from its reuse runs.

    Parameters
    ----------
    runs : ReuseRuns
    limit_blocks : int64 (n_requests,)
        Blocks of each request that may hit.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order; one below 0 counts as 0.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.
    """
    hit_blocks = np.zeros((len(capacities_blocks), len(limit_blocks)), np.int64)
    capacities = np.maximum(capacities_blocks, 0, dtype=np.int64)
    _count_hits(runs.request, runs.blocks, runs.depth, capacities, hit_blocks)
    np.minimum(hit_blocks, limit_blocks, out=hit_blocks)
    return hit_blocks


def hit_blocks_of_admitted(
    block_keys: UInt64Array,
    request_offsets: Int64Array,
    limit_blocks: Int64Array,
    held_blocks: Int64Array,
    capacities_blocks: Int64Array,
    reserve_blocks: int = 0,
) -> Int64Array:
    """Return every request's hits under tail-first LRU where requests larger than the cache never enter.

    Parameters
    ----------
    block_keys : uint64 (n_accesses,)
        Prefix-chained keys of the blocks that requests touch.
    request_offsets : int64 (n_requests + 1,)
        Ascending from 0.
    limit_blocks : int64 (n_requests,)
        Blocks of each request that may hit.
    held_blocks : int64 (n_requests,)
        Blocks that each request occupies while it runs; with more than a capacity it is out of the stream
        there and hits nothing.
    capacities_blocks : int64 (n_capacities,)
        Cache sizes in blocks, in any order.
    reserve_blocks
        Blocks of every capacity that running requests hold for other than cached data.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Blocks.

    Notes
    -----
    One pass for all capacities that admit every request, and one for each further set of admitted ones.
    """
    hit_blocks = np.zeros((len(capacities_blocks), len(limit_blocks)), np.int64)
    n_dropped = np.array([np.count_nonzero(held_blocks > capacity) for capacity in capacities_blocks])
    for count in np.unique(n_dropped):
        chosen = np.flatnonzero(n_dropped == count)
        dropped = held_blocks > capacities_blocks[chosen[0]]
        keys, offsets = without_requests(block_keys, request_offsets, dropped)
        runs = ReuseRunScanner().feed(keys, offsets)
        limits = np.where(dropped, 0, limit_blocks)
        hit_blocks[chosen] = lru_hit_blocks(runs, limits, capacities_blocks[chosen] - reserve_blocks)
    return hit_blocks


@parallel_jit
def _count_hits(
    run_requests: Int64Array,
    run_blocks: Int64Array,
    run_depths: Int64Array,
    capacities: Int64Array,
    hit_blocks: Int64Array,
) -> None:
    for point in prange(len(capacities)):
        for run in range(len(run_requests)):
            hits = min(run_blocks[run], max(0, capacities[point] - run_depths[run]))
            hit_blocks[point, run_requests[run]] += hits

"""What serving engines add to prefix caching, as arithmetic on requests.

``n`` is a prompt's length in tokens, ``b`` the block size. Of ``g`` generated tokens the last one is never
fed back, so ``g - 1`` of them enter the cache.

* A prefix cache keeps full blocks only; at least one token of every prompt has to be computed.
* A running request occupies a block for its incomplete last one too.
* Generated tokens fill further blocks, at the end of the request's path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import offsets_of

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array, UInt64Array

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
    block_keys: UInt64Array, request_offsets: Int64Array, private_blocks: Int64Array, first_place: int = 0
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
    first_place
        Blocks that earlier calls returned for the same trace.

    Returns
    -------
    uint64 (n_accesses + sum(private_blocks),), int64 (n_requests + 1,)
        The new keys differ from each other, and from given 64-bit hashes as far as those do from each other.
    """
    offsets = request_offsets + offsets_of(private_blocks)
    keys = np.empty(offsets[-1], np.uint64)
    _fill_with_private_blocks(block_keys, request_offsets, offsets, first_place, keys)
    return keys, offsets


@jit
def _fill_with_private_blocks(
    block_keys: UInt64Array,
    request_offsets: Int64Array,
    offsets: Int64Array,
    first_place: int,
    keys: UInt64Array,
) -> None:
    for request in range(len(offsets) - 1):
        place = offsets[request]
        for access in range(request_offsets[request], request_offsets[request + 1]):
            keys[place] = block_keys[access]
            place += 1
        for new in range(place, offsets[request + 1]):
            # An odd multiple, a shift that can be undone, an odd multiple: one key per place.
            key = (np.uint64(first_place + new) + np.uint64(1)) * _PRIVATE
            keys[new] = (key ^ (key >> np.uint64(32))) * _MIX

"""Key blocks of tokens in one step: quick for a few requests, and good to be stored."""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array, UInt32Array, UInt64Array
from kvcap.kernels.keys import _MIX_1, _MIX_2, _MIX_3, _ROOT, _TAIL_SALT


@jit
def _chain(key, content):
    """Return the key that follows ``key``: for a given one a bijection of ``content``, and vice versa."""
    scrambled = content * _MIX_1
    scrambled = (scrambled ^ (scrambled >> np.uint64(30))) * _MIX_2
    key = (key ^ (key >> np.uint64(32))) + scrambled
    return (key ^ (key >> np.uint64(29))) * _MIX_3


@jit
def _chain_tokens(key, tokens, start, end):
    """Chain tokens two at a time, an odd last one alone."""
    for i in range(start, end - 1, 2):
        key = _chain(key, np.uint64(tokens[i]) | (np.uint64(tokens[i + 1]) << np.uint64(32)))
    if (end - start) % 2 == 1:
        key = _chain(key, np.uint64(tokens[end - 1]))
    return key


@jit
def _token_block_keys(tokens, token_offsets, roots, block_size, keep_partial):
    n_requests = token_offsets.size - 1
    offsets = np.empty(n_requests + 1, np.int64)
    offsets[0] = 0
    for r in range(n_requests):
        length = token_offsets[r + 1] - token_offsets[r]
        partial = keep_partial and length % block_size > 0
        offsets[r + 1] = offsets[r] + length // block_size + partial
    keys = np.empty(offsets[-1], np.uint64)
    for r in range(n_requests):
        key = _ROOT ^ roots[r]
        start = token_offsets[r]
        for block in range(offsets[r], offsets[r + 1]):
            end = min(start + block_size, token_offsets[r + 1])
            key = _chain_tokens(key, tokens, start, end)
            if end - start < block_size:
                # Salted, or an incomplete block would look like a full one and what may follow it.
                key = _chain(key ^ _TAIL_SALT, np.uint64(end - start))
            keys[block] = key
            start = end
    return keys, offsets


def token_block_keys(
    tokens: UInt32Array,
    token_offsets: Int64Array,
    roots: UInt64Array,
    block_size: int,
    *,
    keep_partial: bool,
) -> tuple[UInt64Array, Int64Array]:
    """Return the prefix-chained keys of every block of tokens, and where each request's begin.

    Parameters
    ----------
    tokens : uint32 (n,)
    token_offsets : int64 (n_requests + 1,)
        Request r owns ``tokens[token_offsets[r]:token_offsets[r + 1]]``.
    roots : uint64 (n_requests,)
        As of :func:`kvcap.kernels.keys.chain_keys`.
    block_size
        Tokens of a full block.
    keep_partial
        Whether an incomplete last block is a block of its own.

    Returns
    -------
    uint64 (n_blocks,), int64 (n_requests + 1,)
        The same for the same tokens in every version and process, so that they may be stored.
    """
    keys: UInt64Array
    keys, offsets = _token_block_keys(
        np.ascontiguousarray(tokens, np.uint32),
        np.ascontiguousarray(token_offsets, np.int64),
        np.ascontiguousarray(roots, np.uint64),
        block_size,
        keep_partial,
    )
    return keys, offsets

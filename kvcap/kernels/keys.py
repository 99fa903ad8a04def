"""Chain block contents into prefix keys: equal key, equal prefix."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array, UInt64Array
from kvcap.kernels.copying import copy_to

_ROOT: Final = np.uint64(0x243F6A8885A308D3)
_MIX_1: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_2: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_3: Final = np.uint64(0x94D049BB133111EB)
_TAIL_SALT: Final = np.uint64(0xA4093822299F31D0)


def chain_keys(
    block_ids: UInt64Array, request_offsets: Int64Array, roots: UInt64Array | None = None
) -> UInt64Array:
    """Return the key of every block, chained over the keys before it in its request.

    Parameters
    ----------
    block_ids : uint64 (n,)
    request_offsets : int64 (n_requests + 1,)
        Request r owns ``block_ids[request_offsets[r]:request_offsets[r + 1]]``.
    roots : uint64 (n_requests,), optional
        64 bits of what besides its blocks tells a request from others, 0 where nothing does.

    Returns
    -------
    uint64 (n,)
    """
    if roots is None:
        roots = np.zeros(request_offsets.size - 1, np.uint64)
    keys: UInt64Array = _chain_keys(block_ids, request_offsets, roots)
    return keys


@jit
def _chain_keys(block_ids, request_offsets, roots):
    """Chain ids from their request's root on.

    The id is scrambled off the critical path; what depends on the parent is one add, two xor-shifts and
    one multiplication. For a given parent the map is a bijection of ids, so siblings never collide. The
    constants are those of the SplitMix64 finalizer (Steele, Lea and Flood 2014).
    """
    keys = np.empty(block_ids.size, np.uint64)
    for r in range(request_offsets.size - 1):
        key = _ROOT ^ roots[r]
        for i in range(request_offsets[r], request_offsets[r + 1]):
            scrambled = block_ids[i] * _MIX_1
            scrambled = (scrambled ^ (scrambled >> np.uint64(30))) * _MIX_2
            key = (key ^ (key >> np.uint64(32))) + scrambled
            key = (key ^ (key >> np.uint64(29))) * _MIX_3
            keys[i] = key
    return keys


@jit
def enter_roots(block_keys, request_offsets, roots):
    """Return keys of whole prefixes as :func:`chain_keys` would tell them apart: by their request's root.

    block_keys : uint64 (n,), request_offsets : int64 (n_requests + 1,), roots : uint64 (n_requests,) ->
    uint64 (n,)

    Keys of two roots meet where they differ by just what the roots differ by, which are 64 bits of a hash: as
    rarely as keys meet anyway.
    """
    keys = np.empty(block_keys.size, np.uint64)
    for r in range(request_offsets.size - 1):
        root = roots[r]
        for i in range(request_offsets[r], request_offsets[r + 1]):
            keys[i] = block_keys[i] ^ root
    return keys


@jit
def fold_media(block_ids, request_offsets, media, media_offsets, places, block_size):
    """Return block ids, those in which media begin with them folded in.

    block_ids : uint64 (n,), request_offsets : int64 (n_requests + 1,), media : uint64 (n_media,),
    media_offsets : int64 (n_requests + 1,), places : int64 (n_media,), token offsets in the request

    Blocks behind need nothing: their keys are chained. Media that begin behind the last block are in none.
    """
    folded = block_ids.copy()
    for r in range(request_offsets.size - 1):
        n_blocks = request_offsets[r + 1] - request_offsets[r]
        for m in range(media_offsets[r], media_offsets[r + 1]):
            block = places[m] // block_size
            if 0 <= block < n_blocks:
                i = request_offsets[r] + block
                within = np.uint64(places[m] - block * block_size)
                folded[i] = _mixed(folded[i], _mixed(media[m], within))
    return folded


@jit
def _mixed(first, second):
    """Return 64 bits of two numbers in this order."""
    mixed = (first ^ (first >> np.uint64(32))) * _MIX_2 + second
    return (mixed ^ (mixed >> np.uint64(29))) * _MIX_3


@jit
def media_roots(media, media_offsets):
    """Return 64 bits of each request's media in their order, 0 where it has none.

    media : uint64 (n_media,), media_offsets : int64 (n_requests + 1,) -> uint64 (n_requests,)
    """
    roots = np.zeros(media_offsets.size - 1, np.uint64)
    for r in range(media_offsets.size - 1):
        for m in range(media_offsets[r], media_offsets[r + 1]):
            roots[r] = _mixed(roots[r], media[m] + _MIX_1)
    return roots


@jit
def gather_full_blocks(tokens, token_offsets, block_size):
    """Return the tokens of all full blocks side by side, and the padded tails with their lengths.

    tokens : uint32 (n,), token_offsets : int64 (n_requests + 1,)
    -> full : uint32 (n_full_blocks * block_size,), tails : uint32 (n_requests * block_size,),
    tail_lengths : int64 (n_requests,)
    """
    n_requests = token_offsets.size - 1
    tail_lengths = np.empty(n_requests, np.int64)
    n_full = 0
    for r in range(n_requests):
        length = token_offsets[r + 1] - token_offsets[r]
        n_full += length // block_size
        tail_lengths[r] = length % block_size
    full = np.empty(n_full * block_size, np.uint32)
    tails = np.zeros(n_requests * block_size, np.uint32)
    used = 0
    for r in range(n_requests):
        tail_start = token_offsets[r + 1] - tail_lengths[r]
        whole = tail_start - token_offsets[r]
        copy_to(full[used : used + whole], tokens[token_offsets[r] : tail_start])
        used += whole
        first = r * block_size
        copy_to(tails[first : first + tail_lengths[r]], tokens[tail_start : token_offsets[r + 1]])
    return full, tails, tail_lengths


@jit
def interleave_tails(full_hashes, tail_hashes, tail_lengths, full_offsets):
    """Return block contents with every request's partial tail behind its full blocks.

    full_hashes : uint64 (n_full,), tail_hashes : uint64 (n_requests,), tail_lengths : int64
    (n_requests,), full_offsets : int64 (n_requests + 1,) -> uint64, int64 (n_requests + 1,)

    A tail is told from a longer one that was padded alike by its length.
    """
    n_requests = tail_lengths.size
    n_tails = 0
    for r in range(n_requests):
        n_tails += tail_lengths[r] > 0
    contents = np.empty(full_hashes.size + n_tails, np.uint64)
    offsets = np.empty(n_requests + 1, np.int64)
    offsets[0] = 0
    for r in range(n_requests):
        end = offsets[r]
        n_full = full_offsets[r + 1] - full_offsets[r]
        copy_to(contents[end : end + n_full], full_hashes[full_offsets[r] : full_offsets[r + 1]])
        end += n_full
        if tail_lengths[r] > 0:
            contents[end] = (tail_hashes[r] ^ _TAIL_SALT) + np.uint64(tail_lengths[r]) * _MIX_3
            end += 1
        offsets[r + 1] = end
    return contents, offsets


@jit
def take_requests(values, offsets, chosen):
    """Return the values of some requests side by side, and their offsets.

    values : any (n,), offsets : int64 (n_requests + 1,), chosen : int64 (n_chosen,)
    """
    taken_offsets = np.empty(chosen.size + 1, np.int64)
    taken_offsets[0] = 0
    for i in range(chosen.size):
        taken_offsets[i + 1] = taken_offsets[i] + offsets[chosen[i] + 1] - offsets[chosen[i]]
    taken = np.empty(taken_offsets[-1], values.dtype)
    for i in range(chosen.size):
        own = values[offsets[chosen[i]] : offsets[chosen[i] + 1]]
        copy_to(taken[taken_offsets[i] : taken_offsets[i + 1]], own)
    return taken, taken_offsets


@jit
def every_mth_key(block_keys, request_offsets, m, keep_incomplete):
    """Return the keys of blocks m times larger: each m-th key, and the last one of an incomplete group.

    block_keys : uint64 (n,), request_offsets : int64 (n_requests + 1,) -> uint64, int64 (n_requests + 1,)
    """
    n_requests = request_offsets.size - 1
    offsets = np.empty(n_requests + 1, np.int64)
    offsets[0] = 0
    for r in range(n_requests):
        length = request_offsets[r + 1] - request_offsets[r]
        groups = length // m
        if keep_incomplete and length % m > 0:
            groups += 1
        offsets[r + 1] = offsets[r] + groups
    keys = np.empty(offsets[-1], np.uint64)
    for r in range(n_requests):
        last = request_offsets[r + 1] - 1
        for group in range(offsets[r + 1] - offsets[r]):
            keys[offsets[r] + group] = block_keys[min(request_offsets[r] + (group + 1) * m - 1, last)]
    return keys, offsets


@jit
def drop_last_blocks(block_keys, request_offsets, dropped):
    """Return keys and offsets without the last ``dropped[r]`` blocks of each request.

    block_keys : uint64 (n,), request_offsets : int64 (n_requests + 1,), dropped : int64 (n_requests,)
    """
    n_requests = request_offsets.size - 1
    offsets = np.empty(n_requests + 1, np.int64)
    offsets[0] = 0
    for r in range(n_requests):
        offsets[r + 1] = offsets[r] + request_offsets[r + 1] - request_offsets[r] - dropped[r]
    keys = np.empty(offsets[-1], block_keys.dtype)
    for r in range(n_requests):
        kept = offsets[r + 1] - offsets[r]
        own = block_keys[request_offsets[r] : request_offsets[r] + kept]
        copy_to(keys[offsets[r] : offsets[r + 1]], own)
    return keys, offsets


@jit
def append_to_requests(values, offsets, more, more_offsets):
    """Return the values of every request with more of them behind, and their offsets.

    values, more : any (n,), (n_more,), offsets, more_offsets : int64 (n_requests + 1,)
    """
    joined = np.empty(values.size + more.size, values.dtype)
    joined_offsets = offsets + more_offsets
    for r in range(offsets.size - 1):
        start = joined_offsets[r]
        middle = start + offsets[r + 1] - offsets[r]
        copy_to(joined[start:middle], values[offsets[r] : offsets[r + 1]])
        copy_to(joined[middle : joined_offsets[r + 1]], more[more_offsets[r] : more_offsets[r + 1]])
    return joined, joined_offsets

"""Keys of blocks: equal for equal prefixes alone, and as mixed as 64-bit hashes are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import chained
from strategies import prefix_forests

from kvcap.kernels.engine_rules import with_private_blocks
from kvcap.kernels.keys import (
    append_to_requests,
    chain_keys,
    drop_last_blocks,
    every_mth_key,
    gather_full_blocks,
    interleave_tails,
    take_requests,
)

N_KEYS = 1 << 12
LISTS = st.lists(st.lists(st.integers(0, 99), max_size=7), max_size=6)


def flat(lists: list[list[int]], dtype: type = np.uint64) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([value for part in lists for value in part], dtype)
    return values, np.cumsum([0, *map(len, lists)])


def parts(values: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [values[a:b].tolist() for a, b in pairwise(offsets.tolist())]


def private_keys() -> np.ndarray:
    return with_private_blocks(np.empty(0, np.uint64), np.array([0, 0]), np.array([N_KEYS]))[0]


def child_keys() -> np.ndarray:
    """Of one parent, with ids that count up."""
    ids = np.stack([np.full(N_KEYS, 7), np.arange(N_KEYS)], axis=1).astype(np.uint64).ravel()
    return chain_keys(ids, np.arange(0, 2 * N_KEYS + 1, 2))[1::2].copy()


def line_keys() -> np.ndarray:
    """Of one request that repeats one id."""
    return chain_keys(np.ones(N_KEYS, np.uint64), np.array([0, N_KEYS]))


def tail_keys() -> np.ndarray:
    """Of equal padded tails that differ in length."""
    n = N_KEYS
    hashes, lengths = np.full(n, 5, np.uint64), np.arange(1, n + 1)
    return interleave_tails(np.empty(0, np.uint64), hashes, lengths, np.zeros(n + 1, np.int64))[0]


@pytest.mark.parametrize("keys_of", [private_keys, child_keys, line_keys])
def test_keys_are_mixed_as_hashes_are(keys_of) -> None:
    keys = keys_of()
    assert np.unique(keys).size == N_KEYS
    bits = np.unpackbits(keys.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 0.05)
    changed = np.unpackbits((keys[1:] ^ keys[:-1]).view(np.uint8)).reshape(-1, 64).sum(axis=1)
    assert abs(changed.mean() - 32) < 1
    # No part of a key tells neighbours: any 20 bits of it are as good as all.
    for shift in range(0, 45, 4):
        window = (keys >> np.uint64(shift)) & np.uint64((1 << 20) - 1)
        assert np.unique(window).size > 0.99 * N_KEYS


def test_no_kind_of_key_meets_another_or_a_small_id() -> None:
    kinds = [private_keys(), child_keys(), line_keys(), tail_keys(), np.arange(N_KEYS, dtype=np.uint64)]
    assert np.unique(np.concatenate(kinds)).size == len(kinds) * N_KEYS


def test_tails_of_one_length_differ_as_their_contents_do() -> None:
    hashes, lengths = np.arange(N_KEYS, dtype=np.uint64) << np.uint64(20), np.full(N_KEYS, 3)
    keys, _ = interleave_tails(np.empty(0, np.uint64), hashes, lengths, np.zeros(N_KEYS + 1, np.int64))
    assert np.unique(keys).size == N_KEYS


@given(requests=prefix_forests())
def test_equal_keys_are_equal_prefixes(requests: list[list[int]]) -> None:
    ids, offsets = flat(requests)
    keys = chain_keys(ids, offsets).tolist()
    labels = [label for path in chained(requests) for label in path]
    assert len({*keys}) == len({*labels}) == len({*zip(keys, labels, strict=True)})


@given(prompts=LISTS, size=st.integers(1, 3))
def test_tokens_are_cut_into_full_blocks_and_padded_tails(prompts: list[list[int]], size: int) -> None:
    full, tails, lengths = gather_full_blocks(*flat(prompts, np.uint32), size)
    whole = [len(prompt) // size * size for prompt in prompts]
    assert full.tolist() == [t for prompt, end in zip(prompts, whole, strict=True) for t in prompt[:end]]
    assert lengths.tolist() == [len(prompt) % size for prompt in prompts]
    padded = [[*prompt[end:], *[0] * size][:size] for prompt, end in zip(prompts, whole, strict=True)]
    assert tails.tolist() == [token for tail in padded for token in tail]


@given(requests=LISTS, data=st.data())
def test_requests_are_taken_joined_and_shortened_as_lists_are(
    requests: list[list[int]], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, max(0, len(requests) - 1)), max_size=5 * bool(requests)))
    assert parts(*take_requests(*flat(requests), np.array(chosen, np.int64))) == [requests[i] for i in chosen]
    more = [data.draw(st.lists(st.integers(100, 199), max_size=3)) for _ in requests]
    joined = append_to_requests(*flat(requests), *flat(more))
    assert parts(*joined) == [a + b for a, b in zip(requests, more, strict=True)]
    dropped = [data.draw(st.integers(0, len(request))) for request in requests]
    left = drop_last_blocks(*flat(requests), np.array(dropped, np.int64))
    assert parts(*left) == [r[: len(r) - n] for r, n in zip(requests, dropped, strict=True)]


@pytest.mark.parametrize("keep", [False, True])
@given(requests=LISTS, m=st.integers(1, 4))
def test_a_larger_block_has_the_key_of_its_last_one(keep: bool, requests: list[list[int]], m: int) -> None:
    found = parts(*every_mth_key(*flat(requests), m, keep))
    assert found == [r[m - 1 :: m] + (r[-1:] if keep and len(r) % m else []) for r in requests]


@given(data=st.data(), counts=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6))
def test_tails_stand_behind_the_full_blocks_of_their_request(
    data: st.DataObject, counts: list[tuple[int, bool]]
) -> None:
    full = [[data.draw(st.integers(0, 9)) for _ in range(n)] for n, _ in counts]
    lengths = np.array([2 * has_tail for _, has_tail in counts], np.int64)
    hashes, offsets = flat(full)
    contents, found = interleave_tails(hashes, np.arange(len(counts), dtype=np.uint64), lengths, offsets)
    for request, (n, has_tail) in enumerate(counts):
        own = contents[found[request] : found[request + 1]].tolist()
        assert own[:n] == full[request]
        assert len(own) == n + has_tail

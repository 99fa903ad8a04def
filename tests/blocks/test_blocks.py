"""What a block is: full blocks, partial tails, coarser blocks, weights, sizes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import oracles
import pytest
from batches import hash_batch, token_batch
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

from kvcap.blocks import BlockOptions
from kvcap.blocks.keyer import BlockKeyer, KeyedRequests, list_arrays
from kvcap.errors import UsageError


def per_request(keyed: KeyedRequests) -> list[list[int]]:
    return [
        keyed.block_keys[a:b].tolist()
        for a, b in zip(keyed.request_offsets[:-1], keyed.request_offsets[1:], strict=True)
    ]


def same_partition(found: list[list[int]], expected: list[list[int]]) -> bool:
    """Whether two labellings call the same blocks equal."""
    pairs = {(a, b) for x, y in zip(found, expected, strict=True) for a, b in zip(x, y, strict=True)}
    return len({a for a, _ in pairs}) == len(pairs) == len({b for _, b in pairs})


def token_blocks(prompts: list[list[int]], size: int, *, keep: bool) -> list[list[int]]:
    """Chained labels of token blocks, from the definition."""
    labels: dict[tuple[int, ...], int] = {}
    requests = []
    for prompt in prompts:
        stop = len(prompt) if keep else len(prompt) // size * size
        cut = [tuple(prompt[i : min(i + size, stop)]) for i in range(0, stop, size)]
        requests.append([labels.setdefault(block, len(labels)) for block in cut])
    return oracles.chained(requests)


@pytest.mark.parametrize("keep", [False, True])
@given(prompts=prefix_forests(), size=st.integers(1, 4))
def test_equal_keys_are_equal_token_prefixes(keep: bool, prompts: list[list[int]], size: int) -> None:
    options = BlockOptions(block_size=size, partial_block="keep" if keep else "drop")
    keyed = BlockKeyer(options).key(token_batch(prompts))
    assert same_partition(per_request(keyed), token_blocks(prompts, size, keep=keep))
    assert keyed.input_tokens.tolist() == [len(prompt) for prompt in prompts]


def test_token_traces_drop_the_tail_and_take_blocks_of_64_by_default() -> None:
    keyed = BlockKeyer(BlockOptions()).key(token_batch([list(range(130)), list(range(63))]))
    assert np.diff(keyed.request_offsets).tolist() == [2, 0]
    assert (keyed.block_size, keyed.input_tokens.tolist()) == (64, [130, 63])


def test_a_kept_tail_differs_from_a_longer_one_that_was_padded_alike() -> None:
    keyed = BlockKeyer(BlockOptions(block_size=4, partial_block="keep")).key(token_batch([[1, 0], [1, 0, 0]]))
    assert len(set(keyed.block_keys.tolist())) == 2


def test_batches_of_one_trace_share_their_keys() -> None:
    keyer = BlockKeyer(BlockOptions(block_size=2))
    first = keyer.key(token_batch([[1, 2, 3, 4]]))
    again = keyer.key(token_batch([[9], [1, 2, 3, 4]]))
    assert per_request(again)[1] == per_request(first)[0]


@given(requests=prefix_forests())
def test_hash_ids_are_chained_so_an_equal_id_behind_another_prefix_is_another_block(
    requests: list[list[int]],
) -> None:
    batch = hash_batch(requests, [max(1, 4 * len(r)) for r in requests], 4)
    keyed = BlockKeyer(BlockOptions(block_size=4)).key(batch)
    assert same_partition(per_request(keyed), oracles.chained(requests))


def test_ids_are_exact_to_64_bits() -> None:
    ids = [2**53, 2**53 + 1, 2**63 + 5, 2**64 - 1]
    keyed = BlockKeyer(BlockOptions()).key(hash_batch([[i] for i in ids], [4] * 4, 4))
    assert len(set(keyed.block_keys.tolist())) == 4


def test_an_incomplete_last_block_of_a_hash_trace_is_kept_or_dropped() -> None:
    batch = hash_batch([[1, 2], [1, 2], [1, 2, 3]], [8, 7, 2], 4)
    kept = BlockKeyer(BlockOptions()).key(batch)
    dropped = BlockKeyer(BlockOptions(partial_block="drop")).key(batch)
    assert np.diff(kept.request_offsets).tolist() == [2, 2, 3]
    assert np.diff(dropped.request_offsets).tolist() == [2, 1, 0]
    assert kept.covered_tokens.tolist() == [8, 7, 2]
    assert dropped.covered_tokens.tolist() == [8, 4, 0]


def test_tail_tokens_of_a_floor_trace_stay_in_the_denominator_only() -> None:
    keyed = BlockKeyer(BlockOptions()).key(hash_batch([[1, 2]], [11], 4))
    assert (keyed.input_tokens.tolist(), keyed.covered_tokens.tolist()) == ([11], [8])


def test_explicit_block_tokens_are_carried_and_an_incomplete_last_block_can_be_dropped() -> None:
    batch = hash_batch([[1, 2], [3]], [6, 4], 4, block_tokens=[[4, 2], [4]])
    kept = BlockKeyer(BlockOptions()).key(batch)
    dropped = BlockKeyer(BlockOptions(partial_block="drop")).key(batch)
    assert kept.block_tokens is not None
    assert kept.block_tokens.tolist() == [4, 2, 4]
    assert dropped.block_tokens is not None
    assert dropped.block_tokens.tolist() == [4, 4]


@given(requests=prefix_forests(), coarsen=st.integers(1, 4), keep=st.booleans())
def test_every_mth_key_is_the_key_of_a_block_m_times_larger(
    requests: list[list[int]], coarsen: int, keep: bool
) -> None:
    lengths = [max(1, 4 * len(request)) for request in requests]
    options = BlockOptions(4, coarsen, "keep" if keep else "drop")
    keyed = BlockKeyer(options).key(hash_batch(requests, lengths, 4))
    assert same_partition(per_request(keyed), token_blocks(requests, coarsen, keep=keep))
    assert keyed.block_size == 4 * coarsen


def test_coarser_blocks_sum_explicit_weights() -> None:
    batch = hash_batch([[1, 2, 3]], [9], 4, block_tokens=[[4, 3, 2]])
    keyed = BlockKeyer(BlockOptions(coarsen=2)).key(batch)
    assert keyed.block_tokens is not None
    assert keyed.block_tokens.tolist() == [7, 2]


def test_a_declared_block_size_wins_over_the_option() -> None:
    assert BlockKeyer(BlockOptions(block_size=7)).key(hash_batch([[1]], [4], 4)).block_size == 4
    assert BlockKeyer(BlockOptions(block_size=7)).key(hash_batch([[1]], [4], None)).block_size == 7


def test_no_block_size_anywhere_is_an_error_that_names_the_option() -> None:
    with pytest.raises(UsageError, match="--block-size"):
        BlockKeyer(BlockOptions()).key(hash_batch([[1]], [4], None))


def test_mixed_block_sizes_are_refused_even_across_batches() -> None:
    keyer = BlockKeyer(BlockOptions())
    keyer.key(hash_batch([[1]], [4], 4))
    with pytest.raises(UsageError, match=r"mixes block sizes \[4, 8\]"):
        keyer.key(hash_batch([[1]], [4], 8))


def test_keys_of_whole_prefixes_need_no_chaining() -> None:
    keyed = BlockKeyer(BlockOptions(), chained=True).key(hash_batch([[5, 6], [5, 7]], [8, 8], 4))
    assert per_request(keyed) == [[5, 6], [5, 7]]


def test_a_sliced_batch_is_keyed_like_its_copy() -> None:
    batch = hash_batch([[1], [2, 3], [4]], [4, 8, 4], 4)
    keyer = BlockKeyer(BlockOptions())
    assert per_request(keyer.key(batch.slice(1, 2))) == per_request(keyer.key(batch))[1:]


def test_a_keyed_batch_is_freed_without_the_cycle_collector() -> None:
    column = hash_batch([[1, 2], [3]], [8, 4], 4).column("hash_ids")
    gc.disable()
    try:
        values, _ = list_arrays(column, np.dtype(np.uint64))
        owner = weakref.ref(values.base.owner)
        assert owner() is not None
        del values
        assert owner() is None
    finally:
        gc.enable()

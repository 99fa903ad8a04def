"""The one-pass kernel against the definitions."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunkings, prefix_forests

from kvcap.kernels.curve import hit_curve, hits_at
from kvcap.kernels.keys import chain_keys
from kvcap.kernels.reuse_runs import ReuseRuns, ReuseRunScanner
from kvcap.kernels.run_tables import WeightedRuns, ceilings, required_blocks, split_by_weight

ORDERS = ["tail-first", "head-first"]


def flat(requests: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(request) for request in requests])]).astype(np.int64)
    ids = np.array([block for request in requests for block in request], np.uint64)
    return ids, offsets


def scan(requests: list[list[int]]) -> ReuseRuns:
    ids, offsets = flat(requests)
    return ReuseRunScanner().feed(chain_keys(ids, offsets), offsets)


def weighted(requests: list[list[int]], block_size: int = 4, spare: int = 0) -> WeightedRuns:
    _, offsets = flat(requests)
    tokens = np.maximum(1, np.diff(offsets) * block_size - spare)
    return split_by_weight(scan(requests), offsets, tokens, block_size, None)


def expanded(requests: list[list[int]], order: str) -> list[list[int]]:
    """Depths of every block, from the runs."""
    depths = [[oracles.COLD] * len(request) for request in requests]
    runs = scan(requests)
    for r, first, blocks, tail, head in zip(
        runs.request, runs.first_block, runs.blocks, runs.depth, runs.depth_head_first, strict=True
    ):
        for i in range(blocks):
            depths[r][first + i] = int(tail + i if order == "tail-first" else head)
    return depths


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests())
def test_depths_equal_the_positions_in_an_explicit_lru_stack(order: str, requests: list[list[int]]) -> None:
    assert expanded(requests, order) == oracles.depths(oracles.chained(requests), order)


@given(requests=prefix_forests())
def test_runs_are_the_maximal_stretches_of_one_last_toucher(requests: list[list[int]]) -> None:
    runs = scan(requests)
    found = list(zip(*(column.tolist() for column in runs[:4]), strict=True))
    assert found == oracles.reuse_runs(oracles.chained(requests))


@given(data=st.data())
def test_feeding_in_chunks_changes_nothing(data: st.DataObject) -> None:
    requests = data.draw(prefix_forests())
    cuts = data.draw(chunkings(len(requests)))
    ids, offsets = flat(requests)
    keys = chain_keys(ids, offsets)
    scanner = ReuseRunScanner()
    parts = [scanner.feed(keys, offsets[a : b + 1]) for a, b in itertools.pairwise(cuts)]
    joined = [np.concatenate([np.empty(0, np.int64), *columns]) for columns in zip(*parts, strict=True)]
    for column, expected in zip(joined, scan(requests), strict=False):
        np.testing.assert_array_equal(column, expected)
    assert scanner.n_requests == len(requests)
    assert scanner.live_blocks == len({block for path in oracles.chained(requests) for block in path})


@given(requests=prefix_forests(), bound=st.integers(1, 12))
def test_forgetting_beyond_a_bound_keeps_every_depth_below_it(requests: list[list[int]], bound: int) -> None:
    ids, offsets = flat(requests)
    keys = chain_keys(ids, offsets)
    bounded = ReuseRunScanner(max_depth=bound)
    parts = [bounded.feed(keys, offsets[r : r + 2]) for r in range(len(requests))]
    hits = np.zeros(len(requests), np.int64)
    for part in parts:
        np.add.at(hits, part.request, np.clip(bound - part.depth, 0, part.blocks))
    assert hits.tolist() == oracles.lru_hits(oracles.chained(requests), bound, "tail-first")
    longest = max((len(request) for request in requests), default=0)
    assert bounded.live_blocks <= bound + 2 * longest


@given(data=st.data(), bound=st.integers(1, 12))
def test_what_is_forgotten_does_not_depend_on_the_chunks(data: st.DataObject, bound: int) -> None:
    requests = data.draw(prefix_forests())
    cuts = data.draw(chunkings(len(requests)))
    ids, offsets = flat(requests)
    keys = chain_keys(ids, offsets)
    one_by_one, chunked = ReuseRunScanner(bound), ReuseRunScanner(bound)
    expected = [one_by_one.feed(keys, offsets[r : r + 2]) for r in range(len(requests))]
    found = [chunked.feed(keys, offsets[a : b + 1]) for a, b in itertools.pairwise(cuts)]
    for column, other in zip(zip(*expected, strict=True), zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(column), np.concatenate(other))
    assert chunked.forgotten_blocks == one_by_one.forgotten_blocks
    assert chunked.live_blocks == one_by_one.live_blocks


@pytest.mark.parametrize("bound", [50, 400])
def test_a_long_bounded_stream_stays_exact_and_its_memory_flat(bound: int) -> None:
    rng = random.Random(bound)
    requests: list[list[int]] = []
    for _ in range(6000):
        earlier = rng.choice(requests[-200:]) if requests and rng.random() < 0.7 else []
        fresh = [rng.randrange(10**9) for _ in range(rng.randrange(12))]
        requests.append(earlier[: rng.randrange(len(earlier) + 1)] + fresh)
    ids, offsets = flat(requests)
    keys = chain_keys(ids, offsets)
    scanner = ReuseRunScanner(max_depth=bound)
    hits = np.zeros(len(requests), np.int64)
    memory = []
    for r in range(0, len(requests), 3):
        part = scanner.feed(keys, offsets[r : r + 4])
        np.add.at(hits, part.request, np.clip(bound - part.depth, 0, part.blocks))
        memory.append(scanner.memory_bytes)
    assert hits.tolist() == oracles.lru_hits(oracles.chained(requests), bound, "tail-first")
    assert memory[-1] <= max(memory[: len(memory) // 2])
    assert scanner.forgotten_blocks > 0


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests(), capacity=st.integers(1, 30))
def test_the_curve_at_a_capacity_equals_a_direct_lru_simulation(
    order: str, requests: list[list[int]], capacity: int
) -> None:
    curve = hit_curve(weighted(requests), tail_first=order == "tail-first")
    blocks, _ = hits_at(curve, np.array([capacity]))
    assert blocks[0] == sum(oracles.lru_hits(oracles.chained(requests), capacity, order))


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests())
def test_hits_never_fall_as_capacity_grows_and_end_at_the_ceiling(
    order: str, requests: list[list[int]]
) -> None:
    runs = weighted(requests, spare=3)
    curve = hit_curve(runs, tail_first=order == "tail-first")
    blocks, tokens = hits_at(curve, np.arange(200))
    assert np.all(np.diff(blocks) >= 0)
    assert np.all(np.diff(tokens) >= 0)
    assert (blocks[-1], tokens[-1]) == (runs.blocks.sum(), (runs.blocks * runs.tokens_per_block).sum())


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests(), target=st.fractions(Fraction(1, 50), 1, max_denominator=100))
def test_required_blocks_is_the_smallest_capacity_that_reaches_the_target(
    order: str, requests: list[list[int]], target: Fraction
) -> None:
    runs = weighted(requests)
    ceiling, _ = ceilings(runs, len(requests))
    found = required_blocks(
        runs, ceiling, (target.numerator, target.denominator), tail_first=order == "tail-first"
    )
    expected = [
        oracles.required_blocks(depths, target) for depths in oracles.depths(oracles.chained(requests), order)
    ]
    assert found.tolist() == expected


@given(requests=prefix_forests(), names=st.permutations(range(5)))
def test_relabelled_ids_change_nothing(requests: list[list[int]], names: list[int]) -> None:
    renamed = [[names[block] + 2**63 for block in request] for request in requests]
    for column, other in zip(scan(requests), scan(renamed), strict=True):
        np.testing.assert_array_equal(column, other)


@given(requests=prefix_forests(), spare=st.integers(0, 9), block_size=st.integers(1, 4))
def test_runs_split_where_the_tokens_per_block_change(
    requests: list[list[int]], spare: int, block_size: int
) -> None:
    runs = weighted(requests, block_size, spare)
    for r, first, blocks, weight in zip(
        runs.request, runs.first_block, runs.blocks, runs.tokens_per_block, strict=True
    ):
        n_blocks = len(requests[r])
        weights = oracles.block_weights(n_blocks, max(1, n_blocks * block_size - spare), block_size)
        assert weights[first : first + blocks] == [weight] * blocks
    assert runs.blocks.sum() == scan(requests).blocks.sum()


@given(requests=prefix_forests(), data=st.data())
def test_explicit_block_tokens_weigh_each_block(requests: list[list[int]], data: st.DataObject) -> None:
    ids, offsets = flat(requests)
    weights = np.array(data.draw(st.lists(st.integers(1, 3), min_size=ids.size, max_size=ids.size)), np.int32)
    runs = split_by_weight(scan(requests), offsets, np.diff(offsets), 4, weights)
    for r, first, blocks, weight in zip(
        runs.request, runs.first_block, runs.blocks, runs.tokens_per_block, strict=True
    ):
        start = offsets[r] + first
        assert weights[start : start + blocks].tolist() == [weight] * blocks
    assert runs.blocks.sum() == scan(requests).blocks.sum()


def test_a_share_is_rounded_up_exactly_not_as_a_float() -> None:
    requests = [list(range(100)), list(range(100))]
    runs = weighted(requests)
    ceiling, _ = ceilings(runs, 2)
    assert 100 * 0.14 > 14, "a float would ask for 15 blocks"
    assert required_blocks(runs, ceiling, (14, 100), tail_first=True).tolist() == [0, 14]


def test_tail_first_eviction_takes_leaves_and_keeps_the_front_of_a_prefix() -> None:
    runs = scan([[1, 2, 3, 4], [1, 2, 3, 4]])
    assert (runs.depth[0], runs.depth_head_first[0], runs.blocks[0]) == (0, 3, 4)
    curve = hit_curve(weighted([[1, 2, 3, 4], [1, 2, 3, 4]]), tail_first=True)
    assert hits_at(curve, np.array([0, 1, 2, 3, 4, 9]))[0].tolist() == [0, 1, 2, 3, 4, 4]


def test_an_equal_id_behind_another_prefix_is_another_block() -> None:
    assert scan([[1, 7], [2, 7]]).request.size == 0
    assert scan([[7, 7, 7], [7, 7]]).blocks.tolist() == [2]

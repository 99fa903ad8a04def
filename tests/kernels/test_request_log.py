"""Gaps in the request log closed bit by bit, with sizes so small that it happens all the time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunkings, prefix_forests

from kvcap.kernels import reuse_runs, tree_state
from kvcap.kernels.fenwick import (
    fenwick_add,
    fenwick_append,
    fenwick_first,
    fenwick_move,
    fenwick_prefix,
)
from kvcap.kernels.keys import chain_keys
from kvcap.kernels.node_index import add_buckets, find_node, link_node, unlink_node
from kvcap.kernels.reuse_runs import ReuseRuns, ReuseRunScanner
from kvcap.kernels.tree_state import ARENA_USED, KEY, N_SLOTS, NEXT_SLOT

Keyed = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reuse_runs, "_LEAST_GAPS", 0)
        patch.setattr(reuse_runs, "_COUNTED_ROWS", 1)
        patch.setattr(tree_state, "_LEAST_ROWS", 1)
        patch.setattr(tree_state, "_LARGE", 8)
        yield


def keyed(requests: list[list[int]]) -> Keyed:
    offsets = np.concatenate([[0], np.cumsum([len(request) for request in requests])]).astype(np.int64)
    return chain_keys(np.array([b for request in requests for b in request], np.uint64), offsets), offsets


def restored(scanner: ReuseRunScanner, bound: int | None) -> ReuseRunScanner:
    arrays = {name: array.copy() for name, array in scanner.export_state().items()}
    return ReuseRunScanner.from_state(arrays, bound)


def depths(parts: list[ReuseRuns], requests: list[list[int]]) -> list[list[int]]:
    """Tail-first depths of every block."""
    result = [[oracles.COLD] * len(request) for request in requests]
    for part in parts:
        for r, first, blocks, depth in zip(
            part.request, part.first_block, part.blocks, part.depth, strict=True
        ):
            result[r][first : first + blocks] = range(depth, depth + blocks)
    return result


@given(data=st.data(), bound=st.integers(1, 30), pace=st.integers(1, 5))
def test_depths_and_what_is_forgotten_are_those_of_an_explicit_stack(
    data: st.DataObject, bound: int, pace: int
) -> None:
    requests = data.draw(prefix_forests(max_requests=40))
    cuts = data.draw(chunkings(len(requests), max_cuts=40))
    moves = data.draw(st.sets(st.sampled_from(cuts), max_size=2))
    keys, offsets = keyed(requests)
    scanner, parts = ReuseRunScanner(bound), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reuse_runs, "_PACE", pace)
        for first, end in itertools.pairwise(cuts):
            parts.append(scanner.feed(keys, offsets[first : end + 1]))
            if end in moves:
                scanner = restored(scanner, bound)
    expected, forgotten, remembered = oracles.bounded_depths(oracles.chained(requests), bound)
    assert depths(parts, requests) == expected
    assert (scanner.forgotten_blocks, scanner.live_blocks) == (forgotten, remembered)


@given(data=st.data())
def test_without_a_bound_runs_are_the_same_after_any_move(data: st.DataObject) -> None:
    requests = data.draw(prefix_forests(max_requests=40))
    cuts = data.draw(chunkings(len(requests), max_cuts=40))
    keys, offsets = keyed(requests)
    untouched = keys.copy()
    scanner, found = ReuseRunScanner(), []
    for first, end in itertools.pairwise(cuts):
        part = scanner.feed(keys, offsets[first : end + 1])
        found += zip(*(column.tolist() for column in part[:4]), strict=True)
        if data.draw(st.booleans()):
            scanner = restored(scanner, None)
    assert found == oracles.reuse_runs(oracles.chained(requests))
    assert np.array_equal(keys, untouched), "the first chunk is kept as it is"


def conversations(rng: random.Random, n_requests: int) -> list[list[int]]:
    """Turns of conversations that go on for a while, with requests of one block in between."""
    requests: list[list[int]] = []
    for number in range(n_requests):
        earlier = rng.choice(requests[-60:]) if requests and rng.random() < 0.6 else []
        fresh = list(range(10 * number, 10 * number + rng.randrange(10)))
        requests.append(earlier[: rng.randrange(len(earlier) + 1)] + fresh)
    return requests


@pytest.mark.parametrize(("bound", "chunk"), [(40, 1), (300, 1), (300, 5)])
def test_the_log_stays_below_three_times_what_is_live(bound: int, chunk: int) -> None:
    requests = conversations(random.Random(bound), 3000)
    keys, offsets = keyed(requests)
    scanner, parts, passes, moved_within = ReuseRunScanner(bound), [], 0, 0
    most_live = most_used = slots_live = slots_used = 0
    for first in range(0, len(requests), chunk):
        slots_before = scanner._state.counters[N_SLOTS]
        parts.append(scanner.feed(keys, offsets[first : first + chunk + 1]))
        counters, weights = scanner._state.counters, scanner._state.weights
        passes += counters[N_SLOTS] < slots_before
        most_live = max(most_live, scanner.live_blocks)
        most_used = max(most_used, counters[ARENA_USED])
        slots_live = max(slots_live, np.count_nonzero(weights[: counters[N_SLOTS]]))
        slots_used = max(slots_used, counters[N_SLOTS])
        if first % 90 == 0 and counters[NEXT_SLOT] > 0:
            moved_within += 1
            scanner = restored(scanner, bound)
            assert scanner.memory_bytes >= 8 * scanner.live_blocks
    assert depths(parts, requests) == oracles.bounded_depths(oracles.chained(requests), bound)[0]
    assert passes > 15
    assert moved_within > 3
    longest = max(map(len, requests))
    assert most_used <= 3 * most_live + 2 * longest * chunk
    assert slots_used <= 3 * slots_live + most_live // 10 + 2 * chunk


def test_a_bound_that_no_memory_could_hold_reserves_nothing() -> None:
    requests = conversations(random.Random(0), 50)
    keys, offsets = keyed(requests)
    for bound in (2**45, 2**61):
        scanner = ReuseRunScanner(bound)
        parts = [scanner.feed(keys, offsets[r : r + 2]) for r in range(len(requests))]
        assert depths(parts, requests) == oracles.depths(oracles.chained(requests), "tail-first")
        assert scanner.memory_bytes < 10**6


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "add", "take", "move"]), st.integers(0, 99)), max_size=60
    )
)
def test_the_fenwick_tree_equals_a_list(steps: list[tuple[str, int]]) -> None:
    tree, plain = np.full(70, 77, np.int64), list[int]()
    for name, number in steps:
        live = [slot for slot, amount in enumerate(plain) if amount]
        if name == "append":
            fenwick_append(tree, len(plain), number)
            plain.append(number)
        elif name == "add" and plain:
            fenwick_add(tree, len(plain), number % len(plain), number)
            plain[number % len(plain)] += number
        elif live:
            slot = live[number % len(live)]
            target = number % (slot + 1)
            if name == "take" or target == slot:
                fenwick_add(tree, len(plain), slot, -plain[slot])
            else:
                fenwick_move(tree, len(plain), slot, target, plain[slot])
                plain[target] += plain[slot]
            plain[slot] = 0
        sums = [fenwick_prefix(tree, slot) for slot in range(len(plain))]
        assert sums == list(itertools.accumulate(plain))
        first = next((slot for slot, amount in enumerate(plain) if amount), len(plain))
        assert fenwick_first(tree, len(plain)) == first


@given(
    keys=st.lists(st.integers(0, 2**24 - 1), unique=True, max_size=50),
    shift=st.sampled_from([0, 6, 40]),
    data=st.data(),
)
def test_the_index_finds_what_is_in_it_however_it_grows(
    keys: list[int], shift: int, data: st.DataObject
) -> None:
    scanner = ReuseRunScanner()
    scanner._make_room(tree_state.array_rows(1, 64, 64, 1))
    state = scanner._state
    add_buckets(state, 1)
    held: dict[int, int] = {}
    for node, key in enumerate(keys):
        state.nodes[node, KEY] = np.array([key << shift], np.uint64).view(np.int64)[0]
        link_node(state, node)
        held[key] = node
        if data.draw(st.booleans()):
            add_buckets(state, data.draw(st.integers(1, 64)))
        if data.draw(st.booleans()):
            unlink_node(state, held.pop(data.draw(st.sampled_from(sorted(held)))))
        for any_key in keys:
            assert find_node(state, np.uint64(any_key << shift)) == held.get(any_key, -1)

"""Dealing kernels against plain simulations."""

from __future__ import annotations

import numpy as np
import oracles
import oracles_routing as plain
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

from kvcap.kernels.curve import hit_curve, hits_at, smallest_capacity
from kvcap.kernels.dealing import deal_to_least_loaded, deal_to_longest_prefix
from kvcap.kernels.dealt_runs import blocks_in_caches, dealt_runs, weigh_runs
from kvcap.kernels.keys import chain_keys
from kvcap.kernels.reuse_runs import ReuseRuns, ReuseRunScanner
from kvcap.kernels.run_tables import WeightedRuns, split_by_weight
from kvcap.kernels.segments import SegmentPaths, segment_paths

ORDERS = ["tail-first", "head-first"]
N = 3


def flat(requests: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(len(request) for request in requests)]).astype(np.int64)
    ids = np.array([block for request in requests for block in request], np.uint64)
    return chain_keys(ids, offsets), offsets


def scanned(requests: list[list[int]]) -> ReuseRuns:
    return ReuseRunScanner().feed(*flat(requests))


def paths_of(requests: list[list[int]]) -> SegmentPaths:
    return segment_paths(scanned(requests), np.array([len(request) for request in requests], np.int64))


def window_starts(times: list[int] | None, window: int, n_requests: int) -> np.ndarray:
    if times is None:
        return np.zeros(n_requests, np.int64)
    return np.searchsorted(times, np.array(times) - window, side="right").astype(np.int64)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int] | None, int]:
    """Requests with weights, ascending times or none, and a window."""
    requests = draw(prefix_forests().filter(bool))
    n = len(requests)
    weights = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    times = draw(st.none() | st.lists(st.integers(0, 20), min_size=n, max_size=n).map(sorted))
    return requests, weights, times, draw(st.integers(1, 10))


@given(stream=streams(), n=st.integers(1, 4))
def test_least_loaded_counts_what_was_dealt_inside_the_window(stream: tuple, n: int) -> None:
    requests, weights, times, window = stream
    dealt = deal_to_least_loaded(np.array(weights), window_starts(times, window, len(requests)), n)
    assert dealt.tolist() == plain.least_loaded(weights, times, window, n)


@pytest.mark.parametrize("order", ORDERS)
@given(
    stream=streams(),
    n=st.integers(1, 4),
    capacity=st.integers(0, 12),
    percent=st.sampled_from([100, 125, 400]),
)
def test_prefix_goes_where_most_leading_blocks_hit_within_the_load_bound(
    order: str, stream: tuple, n: int, capacity: int, percent: int
) -> None:
    requests, weights, times, window = stream
    chained = oracles.chained(requests)
    dealt = deal_to_longest_prefix(
        paths_of(requests),
        np.array(weights),
        window_starts(times, window, len(requests)),
        n,
        capacity,
        percent,
        tail_first=order == "tail-first",
    )
    expected = plain.longest_prefix(chained, weights, times, window, n, capacity, percent, order)
    assert (dealt.instances.tolist(), dealt.hit_blocks.tolist()) == expected


@pytest.mark.parametrize("order", ORDERS)
@given(stream=streams(), capacity=st.integers(0, 12))
def test_what_the_prefix_policy_saw_hit_is_what_its_instances_hit_when_replayed(
    order: str, stream: tuple, capacity: int
) -> None:
    requests, weights, times, window = stream
    paths = paths_of(requests)
    starts = window_starts(times, window, len(requests))
    dealt = deal_to_longest_prefix(
        paths, np.array(weights), starts, N, capacity, 125, tail_first=order == "tail-first"
    )
    runs = dealt_runs(paths, dealt.instances)
    hits = np.zeros(len(requests), np.int64)
    if order == "tail-first":
        np.add.at(hits, runs.request, np.clip(capacity - runs.depth, 0, runs.blocks))
    else:
        np.add.at(hits, runs.request, np.where(runs.depth_head_first < capacity, runs.blocks, 0))
    assert hits.tolist() == dealt.hit_blocks.tolist()


@given(requests=prefix_forests(), data=st.data())
def test_runs_of_a_dealt_stream_are_those_of_each_instance_on_its_own(
    requests: list[list[int]], data: st.DataObject
) -> None:
    n = len(requests)
    instances = np.array(data.draw(st.lists(st.integers(0, N - 1), min_size=n, max_size=n)), np.int32)
    found = dealt_runs(paths_of(requests), instances)
    for instance in range(N):
        own = np.flatnonzero(instances == instance)
        expected = scanned([requests[r] for r in own])
        mine = np.isin(found.request, own)
        for name, column in expected._asdict().items():
            wanted = own[column] if name in ("request", "source_request") else column
            np.testing.assert_array_equal(getattr(found, name)[mine], wanted)
    assert np.all(np.diff(found.request) >= 0)


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests().filter(bool), capacity=st.integers(0, 12), data=st.data())
def test_held_blocks_and_copies_are_those_of_a_direct_simulation(
    order: str, requests: list[list[int]], capacity: int, data: st.DataObject
) -> None:
    n = len(requests)
    instances = data.draw(st.lists(st.integers(0, N - 1), min_size=n, max_size=n))
    found = blocks_in_caches(
        paths_of(requests), np.array(instances, np.int32), capacity, tail_first=order == "tail-first"
    )
    assert found == plain.held(oracles.chained(requests), instances, capacity, order)


def by_block(runs: WeightedRuns) -> list[tuple[int, ...]]:
    """(request, source, block, tokens, depths) of every block: pieces may be cut finer than they need be."""
    return [
        (request, source, first + i, tokens, depth + i, depth_head_first)
        for request, source, first, blocks, tokens, depth, depth_head_first in zip(
            *map(list, runs), strict=True
        )
        for i in range(blocks)
    ]


@given(requests=prefix_forests().filter(bool), spare=st.integers(0, 5), data=st.data())
def test_weights_of_a_dealt_stream_are_those_of_the_whole_one(
    requests: list[list[int]], spare: int, data: st.DataObject
) -> None:
    keys, offsets = flat(requests)
    n = len(requests)
    covered = np.maximum(1, np.diff(offsets) * 4 - spare)
    instances = np.array(data.draw(st.lists(st.integers(0, N - 1), min_size=n, max_size=n)), np.int32)
    whole = split_by_weight(ReuseRunScanner().feed(keys, offsets), offsets, covered, 4, None)
    dealt = dealt_runs(paths_of(requests), instances)
    expected = split_by_weight(dealt, offsets, covered, 4, None)
    assert by_block(weigh_runs(dealt, whole)) == by_block(expected)


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests(), wanted=st.integers(0, 60))
def test_the_smallest_capacity_for_some_hits_is_the_first_that_has_them(
    order: str, requests: list[list[int]], wanted: int
) -> None:
    runs = scanned(requests)
    weighted = WeightedRuns(*runs[:4], np.ones_like(runs.blocks), *runs[4:])
    curve = hit_curve(weighted, tail_first=order == "tail-first")
    hits, _ = hits_at(curve, np.arange(300))
    expected = next((capacity for capacity in range(300) if hits[capacity] >= wanted), None)
    assert smallest_capacity(curve, wanted) == expected

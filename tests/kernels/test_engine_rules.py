from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles import chained, lru_hits
from policy_cases import keyed, prompts, scanned

from kvcap.kernels.engine_rules import (
    generated_blocks,
    held_blocks,
    hit_blocks_of_admitted,
    lookup_blocks,
    lru_hit_blocks,
    with_private_blocks,
    without_requests,
)
from kvcap.kernels.reuse_runs import ReuseRunScanner


def tail_first_hits(trace, capacity):
    return lru_hits(chained(trace), capacity, "tail-first")


def test_one_token_is_always_computed():
    tokens = np.array([0, 1, 15, 16, 17, 32, 33])
    assert lookup_blocks(tokens, 16).tolist() == [0, 0, 0, 0, 1, 1, 2]


def test_a_running_request_holds_its_incomplete_block_and_all_but_the_last_generated_token():
    tokens, generated = np.array([0, 16, 17, 16, 16, 16]), np.array([0, 0, 0, 1, 2, 17])
    assert held_blocks(tokens, generated, 16).tolist() == [0, 1, 2, 1, 2, 2]


def test_generated_tokens_fill_the_incomplete_block_first():
    tokens, generated = np.array([10, 10, 10, 16, 16]), np.array([0, 6, 7, 16, 17])
    assert generated_blocks(tokens, generated, 16).tolist() == [0, 0, 1, 0, 1]


@given(prompts())
def test_lru_hits_follow_from_depths_at_every_capacity(trace):
    runs, blocks = scanned(trace)
    capacities = np.arange(-1, 12)
    expected = [tail_first_hits(trace, max(0, int(capacity))) for capacity in capacities]
    assert lru_hit_blocks(runs, blocks, capacities).tolist() == expected


@given(prompts(), st.data())
def test_lru_hits_stop_at_the_limit_of_each_request(trace, data):
    runs, _ = scanned(trace)
    limits = np.array([data.draw(st.integers(0, len(prompt))) for prompt in trace])
    expected = np.minimum([tail_first_hits(trace, capacity) for capacity in range(12)], limits)
    assert np.array_equal(lru_hit_blocks(runs, limits, np.arange(12)), expected)


@given(prompts(), st.data())
def test_private_blocks_push_others_down_and_are_never_hit(trace, data):
    counts = [data.draw(st.integers(0, 3)) for _ in trace]
    longer = [
        prompt + tuple(f"{request}.{i}" for i in range(count))
        for request, (prompt, count) in enumerate(zip(trace, counts, strict=True))
    ]
    keys, offsets = with_private_blocks(*keyed(trace), np.array(counts))
    runs = ReuseRunScanner().feed(keys, offsets)
    capacities = np.arange(16)
    expected = [tail_first_hits(longer, int(capacity)) for capacity in capacities]
    assert np.diff(offsets).tolist() == [len(prompt) for prompt in longer]
    assert lru_hit_blocks(runs, np.diff(offsets), capacities).tolist() == expected


@given(prompts(), st.data())
def test_a_dropped_request_leaves_the_others_as_if_it_had_never_come(trace, data):
    dropped = np.array([data.draw(st.booleans()) for _ in trace])
    keys, offsets = without_requests(*keyed(trace), dropped)
    assert np.diff(offsets)[dropped].sum() == 0
    runs = ReuseRunScanner().feed(keys, offsets)
    hits = lru_hit_blocks(runs, np.diff(offsets), np.arange(12))
    left = [prompt for prompt, gone in zip(trace, dropped, strict=True) if not gone]
    assert hits[:, ~dropped].tolist() == [tail_first_hits(left, capacity) for capacity in range(12)]


@given(prompts(), st.integers(0, 2), st.data())
def test_a_request_larger_than_the_cache_is_out_of_the_stream_at_that_capacity_alone(trace, reserve, data):
    keys, offsets = keyed(trace)
    limits = np.array([data.draw(st.integers(0, len(prompt))) for prompt in trace])
    held = np.array([len(prompt) + data.draw(st.integers(0, 2)) for prompt in trace])
    capacities = np.array([9, 3, 12, 0, 4])
    hits = hit_blocks_of_admitted(keys, offsets, limits, held, capacities, reserve)
    for capacity, row in zip(capacities, hits, strict=True):
        stream = [prompt if size <= capacity else () for prompt, size in zip(trace, held, strict=True)]
        expected = tail_first_hits(stream, max(0, capacity - reserve))
        assert row.tolist() == np.minimum(expected, limits).tolist()

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import lru_hits
from policy_cases import keyed, prompts, scanned, small_traces

from kvcap.kernels.engine_rules import (
    generated_blocks,
    held_blocks,
    lookup_blocks,
    lru_hit_blocks,
    with_private_blocks,
    without_requests,
)
from kvcap.kernels.reuse_runs import ReuseRunScanner


def test_one_token_is_always_computed():
    tokens = np.array([0, 1, 15, 16, 17, 32, 33])
    assert lookup_blocks(tokens, 16).tolist() == [0, 0, 0, 0, 1, 1, 2]


def test_a_running_request_holds_its_incomplete_block_and_all_but_the_last_generated_token():
    tokens, generated = np.array([0, 16, 17, 16, 16, 16]), np.array([0, 0, 0, 1, 2, 17])
    assert held_blocks(tokens, generated, 16).tolist() == [0, 1, 2, 1, 2, 2]


def test_generated_tokens_fill_the_incomplete_block_first():
    tokens, generated = np.array([10, 10, 10, 16, 16]), np.array([0, 6, 7, 16, 17])
    assert generated_blocks(tokens, generated, 16).tolist() == [0, 0, 1, 0, 1]


@small_traces
@given(prompts())
def test_lru_hits_follow_from_depths_at_every_capacity(trace):
    runs, blocks = scanned(trace)
    capacities = np.arange(-1, 12)
    expected = [lru_hits(trace, max(0, int(capacity))) for capacity in capacities]
    assert lru_hit_blocks(runs, blocks, capacities).tolist() == expected


@small_traces
@given(prompts(), st.data())
def test_lru_hits_stop_at_the_limit_of_each_request(trace, data):
    runs, _ = scanned(trace)
    limits = np.array([data.draw(st.integers(0, len(prompt))) for prompt in trace])
    expected = np.minimum([lru_hits(trace, capacity) for capacity in range(12)], limits)
    assert np.array_equal(lru_hit_blocks(runs, limits, np.arange(12)), expected)


@small_traces
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
    expected = [lru_hits(longer, int(capacity)) for capacity in capacities]
    assert np.diff(offsets).tolist() == [len(prompt) for prompt in longer]
    assert lru_hit_blocks(runs, np.diff(offsets), capacities).tolist() == expected


@small_traces
@given(prompts(), st.data())
def test_a_dropped_request_leaves_the_others_as_if_it_had_never_come(trace, data):
    dropped = np.array([data.draw(st.booleans()) for _ in trace])
    keys, offsets = without_requests(*keyed(trace), dropped)
    assert np.diff(offsets)[dropped].sum() == 0
    runs = ReuseRunScanner().feed(keys, offsets)
    hits = lru_hit_blocks(runs, np.diff(offsets), np.arange(12))
    left = [prompt for prompt, gone in zip(trace, dropped, strict=True) if not gone]
    assert hits[:, ~dropped].tolist() == [lru_hits(left, capacity) for capacity in range(12)]

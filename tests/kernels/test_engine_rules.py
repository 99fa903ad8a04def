from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles import chained, lru_hits
from policy_cases import keyed, prompts

from kvcap.kernels.engine_rules import generated_blocks, held_blocks, lookup_blocks, with_private_blocks
from kvcap.kernels.lru import lru_hit_blocks
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


@given(prompts(), st.data())
def test_private_blocks_push_others_down_and_are_never_hit(trace, data):
    counts = [data.draw(st.integers(0, 3)) for _ in trace]
    longer = [
        prompt + tuple(f"{request}.{i}" for i in range(count))
        for request, (prompt, count) in enumerate(zip(trace, counts, strict=True))
    ]
    keys, offsets = with_private_blocks(*keyed(trace), np.array(counts))
    assert np.diff(offsets).tolist() == [len(prompt) for prompt in longer]
    runs = ReuseRunScanner().feed(keys, offsets)
    hits = lru_hit_blocks(runs, len(trace), np.arange(16), tail_first=True)
    for capacity, row in enumerate(hits):
        assert row.tolist() == lru_hits(chained(longer), capacity, "tail-first")


def test_private_blocks_of_later_calls_are_new_ones():
    nothing, offsets = np.empty(0, np.uint64), np.array([0, 0])
    first, _ = with_private_blocks(nothing, offsets, np.array([3]))
    second, _ = with_private_blocks(nothing, offsets, np.array([3]), first.size)
    assert len({*first.tolist(), *second.tolist()}) == 6

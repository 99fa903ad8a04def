from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import radix_tree_hits
from policy_cases import BLOCK_SIZE, prompts, scanned

from kvcap.kernels.engine_rules import held_blocks, lookup_blocks
from kvcap.kernels.node_lru import node_lru_hit_blocks
from kvcap.kernels.segments import segment_paths

CAPACITIES = np.arange(14)


def hits(trace, tails, capacities):
    """Return the hits of prompts that have ``tails`` tokens more than their full blocks."""
    runs, blocks = scanned(trace)
    tokens = blocks * BLOCK_SIZE + np.asarray(tails)
    lookups = lookup_blocks(tokens, BLOCK_SIZE)
    held = held_blocks(tokens, np.zeros_like(tokens), BLOCK_SIZE)
    paths = segment_paths(runs, blocks, lookups)
    return node_lru_hit_blocks(paths, lookups, held, np.asarray(capacities)).tolist(), lookups, held


@given(prompts(), st.data())
def test_every_request_finds_what_a_radix_tree_with_time_stamps_holds(trace, data):
    tails = [data.draw(st.integers(0, BLOCK_SIZE - 1)) for _ in trace]
    found, lookups, held = hits(trace, tails, CAPACITIES)
    for capacity, row in zip(CAPACITIES, found, strict=True):
        assert row == radix_tree_hits(trace, lookups.tolist(), held.tolist(), capacity)


def test_a_node_goes_whole_where_block_lru_would_keep_its_head():
    trace = [(1, 1, 1, 1), (2,), (3,), (1, 1, 1, 1)]
    assert hits(trace, [1, 1, 1, 1], [7])[0] == [[0, 0, 0, 0]]
    assert hits(trace, [1, 1, 1, 1], [8])[0] == [[0, 0, 0, 4]]


def test_one_block_more_than_the_new_ones_must_be_free():
    trace = [(1,), (2,), (1,)]
    assert hits(trace, [1, 1, 1], [3])[0] == [[0, 0, 0]]
    assert hits(trace, [1, 1, 1], [4])[0] == [[0, 0, 1]]


def test_the_part_of_a_split_node_that_did_not_match_counts_as_just_used():
    # (1, 2) splits (1, 1); its rest outlives (3,), which came in after it.
    trace = [(1, 1), (3,), (1, 2), (4,), (1, 1), (3,)]
    assert hits(trace, [1] * 6, [6])[0] == [[0, 0, 1, 0, 2, 0]]


def test_the_last_block_of_a_prompt_without_a_tail_is_computed_again():
    assert hits([(1, 1), (1, 1)], [0, 0], [9])[0] == [[0, 1]]


def test_a_request_larger_than_the_cache_is_computed_but_not_kept():
    assert hits([(1,), (1, 2, 3, 4), (1, 2, 3, 4)], [1, 0, 0], [3])[0] == [[0, 1, 1]]

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import radix_tree_hits
from policy_cases import BLOCK_SIZE, prompts, scanned

from kvcap.kernels.engine_rules import held_blocks, lookup_blocks
from kvcap.kernels.node_policies import FIFO, FILO, LFU, MRU, SLRU, node_policy_hit_blocks
from kvcap.kernels.segments import segment_paths

POLICIES = {"lfu": LFU, "slru": SLRU, "fifo": FIFO, "filo": FILO, "mru": MRU}
CAPACITIES = np.arange(2, 14, 3)


def hits(trace, tails, capacities, policy):
    """Return the hits of prompts that have ``tails`` tokens more than their full blocks."""
    runs, blocks = scanned(trace)
    tokens = blocks * BLOCK_SIZE + np.asarray(tails)
    lookups = lookup_blocks(tokens, BLOCK_SIZE)
    held = held_blocks(tokens, np.zeros_like(tokens), BLOCK_SIZE)
    paths = segment_paths(runs, blocks, lookups)
    found = node_policy_hit_blocks(paths, lookups, held, np.asarray(capacities), POLICIES[policy])
    return found.tolist(), lookups, held


@pytest.mark.parametrize("policy", POLICIES)
@given(prompts(most_requests=24), st.data())
def test_every_request_finds_what_a_radix_tree_with_ranks_holds(policy, trace, data):
    tails = [data.draw(st.integers(0, BLOCK_SIZE - 1)) for _ in trace]
    found, lookups, held = hits(trace, tails, CAPACITIES, policy)
    for capacity, row in zip(CAPACITIES, found, strict=True):
        assert row == radix_tree_hits(trace, lookups.tolist(), held.tolist(), capacity, policy)


RE_SENT = [(1,), (2,), (2,), (3,), (1,), (2,)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("lfu", [0, 0, 1, 0, 0, 1]),
        ("slru", [0, 0, 1, 0, 0, 1]),
        ("fifo", [0, 0, 1, 0, 0, 0]),
        ("filo", [0, 0, 1, 0, 1, 0]),
        ("mru", [0, 0, 1, 0, 1, 0]),
    ],
)
def test_what_goes_when_a_third_prompt_comes_into_a_cache_for_two(policy, expected):
    assert hits(RE_SENT, [1] * 6, [4], policy)[0] == [expected]

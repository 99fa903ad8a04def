"""Policies and engine rules of one cache, against plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import chained, lru_hits
from oracles_policies import block_queue_hits, fifo_hits, optimal_hits, radix_tree_hits
from policy_cases import prompts, scanned

from kvcap.engines import POLICIES
from kvcap.engines.simulate import Requests, simulate, simulation_points

CAPACITIES = [9, 3, 12, 0, 4]


def expected_hits(policy, trace, limits, held, capacity):
    """Return hits with at most ``limits`` blocks of each prompt looked up."""
    if policy.startswith("sglang-"):
        return radix_tree_hits(trace, limits, held, capacity, policy.removeprefix("sglang-"))
    if policy == "vllm-lru":
        return block_queue_hits(trace, limits, held, capacity)
    if policy == "lru":
        found = lru_hits(chained(trace), capacity, "tail-first")
    else:
        found = {"fifo": fifo_hits, "optimal": optimal_hits}[policy](trace, capacity)
    return np.minimum(found, limits).tolist()


def simulated(trace, limits, held, policies, *, factor=Fraction(1), reserve=0, oversize="keep"):
    """Return hits by policy, capacity and reserve."""
    runs, blocks = scanned(trace)
    requests = Requests(runs, blocks, np.array(limits), np.array(held), tail_first=True)
    points = simulation_points(CAPACITIES, factor, reserve)
    return {
        (policy, int(points.capacity_blocks[point]), int(points.reserved_blocks[point])): hits.tolist()
        for policy, point, hits in simulate(requests, points, policies, oversize)
    }


@pytest.mark.parametrize("policy", ["lru", "fifo", "vllm-lru", "sglang-lru"])
@given(trace=prompts(), data=st.data())
def test_every_policy_finds_at_most_what_a_request_looks_up(policy, trace, data):
    limits = [data.draw(st.integers(0, len(prompt))) for prompt in trace]
    held = [len(prompt) + data.draw(st.integers(0, 1)) for prompt in trace]
    found = simulated(trace, limits, held, [policy])
    for capacity in CAPACITIES:
        assert found[policy, capacity, 0] == expected_hits(policy, trace, limits, held, capacity)


@given(trace=prompts(), data=st.data())
def test_optimal_keeps_nothing_for_blocks_that_may_not_hit(trace, data):
    limits = [len(prompt) - data.draw(st.integers(0, min(1, len(prompt)))) for prompt in trace]
    held = [len(prompt) for prompt in trace]
    found = simulated(trace, limits, held, ["optimal", "lru", "fifo"])
    for capacity in CAPACITIES:
        optimal = sum(found["optimal", capacity, 0])
        assert optimal >= sum(np.minimum(optimal_hits(trace, capacity), limits))
        assert optimal >= max(sum(found["lru", capacity, 0]), sum(found["fifo", capacity, 0]))


@given(trace=prompts(), reserve=st.integers(0, 3), data=st.data())
def test_a_request_larger_than_the_cache_is_out_of_the_stream_at_that_capacity_alone(trace, reserve, data):
    limits = [data.draw(st.integers(0, len(prompt))) for prompt in trace]
    held = [len(prompt) + data.draw(st.integers(0, 2)) for prompt in trace]
    found = simulated(trace, limits, held, ["lru"], reserve=reserve, oversize="drop")
    for capacity in CAPACITIES:
        stream = [prompt if size <= capacity else () for prompt, size in zip(trace, held, strict=True)]
        kept = [limit if size <= capacity else 0 for limit, size in zip(limits, held, strict=True)]
        for reserved in {0, reserve}:
            expected = expected_hits("lru", stream, kept, held, max(0, capacity - reserved))
            assert found["lru", capacity, reserved] == expected


@given(trace=prompts())
def test_dropped_requests_are_as_if_they_had_never_come_under_any_policy(trace):
    held = [len(prompt) for prompt in trace]
    policies = [name for name, policy in POLICIES.items() if not policy.is_hybrid]
    found = simulated(trace, held, held, policies, oversize="drop")
    for capacity in CAPACITIES:
        left = [prompt for prompt in trace if len(prompt) <= capacity]
        sizes = [len(prompt) for prompt in left]
        for policy in policies:
            hits = [
                hit
                for hit, prompt in zip(found[policy, capacity, 0], trace, strict=True)
                if len(prompt) <= capacity
            ]
            assert hits == expected_hits(policy, left, sizes, sizes, capacity)


def test_a_share_of_each_capacity_holds_data_and_admits_requests():
    points = simulation_points([8, 1, 9, 8], Fraction(7, 8), 2)
    assert points.capacity_blocks.tolist() == [1, 1, 8, 8, 9, 9]
    assert points.reserved_blocks.tolist() == [0, 2] * 3
    assert points.admitted_blocks.tolist() == [0, 0, 7, 7, 7, 7]
    assert points.data_blocks.tolist() == [0, 0, 7, 5, 7, 5]

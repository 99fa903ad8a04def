from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from oracles import chained, lru_hits
from oracles_policies import fifo_hits, most_hits_possible, optimal_hits
from policy_cases import prompts, scanned

from kvcap.kernels.optimal import optimal_hit_blocks

CAPACITIES = np.arange(12)


def hits(trace, capacities):
    runs, _ = scanned(trace)
    return optimal_hit_blocks(runs, len(trace), np.asarray(capacities)).tolist()


@given(prompts())
def test_every_request_hits_what_was_kept_because_it_is_needed_soonest(trace):
    assert hits(trace, CAPACITIES) == [optimal_hits(trace, capacity) for capacity in CAPACITIES]


@settings(max_examples=30)
@given(prompts(most_requests=6, most_blocks=3))
def test_no_choice_of_what_to_keep_hits_more(trace):
    for capacity, row in enumerate(hits(trace, np.arange(5))):
        assert sum(row) == most_hits_possible(trace, capacity)


@given(prompts())
def test_optimal_is_never_below_lru_or_fifo(trace):
    for capacity, row in enumerate(hits(trace, CAPACITIES)):
        assert sum(row) >= sum(lru_hits(chained(trace), capacity, "tail-first"))
        assert sum(row) >= sum(fifo_hits(trace, capacity))


def test_a_block_that_is_never_used_again_takes_no_space():
    assert hits([(1,), (2,), (3,), (1,)], [1]) == [[0, 0, 0, 1]]


def test_what_does_not_fit_is_trimmed_at_its_deep_end():
    assert hits([(1, 1, 1, 1), (2,), (1, 1, 1, 1)], [3]) == [[0, 0, 3]]


def test_capacities_come_back_in_the_order_given():
    assert hits([(1, 2), (1, 2)], [2, -1, 1]) == [[0, 2], [0, 0], [0, 1]]


def test_a_trace_without_reuse_hits_nothing():
    assert hits([(1,), (2,)], [5]) == [[0, 0]]

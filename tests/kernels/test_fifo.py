from __future__ import annotations

import numpy as np
from hypothesis import given
from oracles_policies import fifo_hits
from policy_cases import prompts, scanned

from kvcap.kernels.fifo import fifo_hit_blocks
from kvcap.kernels.segments import segment_paths

CAPACITIES = np.arange(12)


def hits(trace, capacities):
    return fifo_hit_blocks(segment_paths(*scanned(trace)), np.asarray(capacities)).tolist()


@given(prompts())
def test_every_request_hits_as_in_a_queue_of_blocks(trace):
    assert hits(trace, CAPACITIES) == [fifo_hits(trace, capacity) for capacity in CAPACITIES]


def test_a_hit_does_not_save_a_block_from_going_first():
    assert hits([(1,), (2,), (1,), (3,), (1,)], [2]) == [[0, 0, 1, 0, 0]]


def test_a_block_behind_a_missing_one_is_no_hit():
    # (1, 1) goes in after (1,), so (1,) is pushed out alone by the prompt in between.
    assert hits([(1, 1), (2,), (1, 1)], [2]) == [[0, 0, 0]]


def test_a_larger_cache_can_hit_less():
    trace = [(content,) for content in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)]
    assert [sum(row) for row in hits(trace, [3, 4])] == [3, 2]


def test_capacities_come_back_in_the_order_given():
    trace = [(1, 2), (3,), (1, 2)]
    assert hits(trace, [3, 0, -1, 1]) == [[0, 0, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0]]

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import block_queue_hits
from policy_cases import prompts, scanned

from kvcap.kernels.block_lru import block_lru_hit_blocks
from kvcap.kernels.segments import segment_paths

CAPACITIES = np.arange(16)


def hits(trace, lookups, held, capacities):
    runs, blocks = scanned(trace)
    paths = segment_paths(runs, blocks, np.asarray(lookups))
    return block_lru_hit_blocks(paths, np.asarray(lookups), np.asarray(held), np.asarray(capacities)).tolist()


@given(prompts(most_requests=24), st.data())
def test_every_request_finds_what_a_queue_of_blocks_holds(trace, data):
    lookups = [max(0, len(prompt) - data.draw(st.integers(0, 2))) for prompt in trace]
    held = [len(prompt) + data.draw(st.integers(0, 2)) for prompt in trace]
    found = hits(trace, lookups, held, CAPACITIES)
    for capacity, row in zip(CAPACITIES, found, strict=True):
        assert row == block_queue_hits(trace, lookups, held, int(capacity))


def test_an_incomplete_block_takes_one_of_the_cache_while_it_is_held():
    trace = [(1,), (2,), (1,)]
    assert hits(trace, [1, 1, 1], [1, 1, 1], [2])[0] == [0, 0, 1]
    assert hits(trace, [1, 1, 1], [2, 2, 2], [2])[0] == [0, 0, 0]


def test_a_block_that_is_computed_again_is_there_twice():
    trace = [(1, 1), (1, 1), (2,), (1, 1, 1)]
    assert hits(trace, [1, 1, 1, 2], [2, 2, 1, 3], [4])[0] == [0, 1, 0, 2]
    assert hits(trace, [1, 1, 1, 2], [2, 2, 1, 3], [3])[0] == [0, 1, 0, 2]
    # The older copy of the last block goes first, and (2,) needs no other.
    assert hits(trace, [1, 1, 1, 3], [2, 2, 1, 3], [3])[0] == [0, 1, 0, 2]


def test_a_request_larger_than_the_cache_never_enters_it():
    trace = [(1,), (2, 2, 2), (1,)]
    assert hits(trace, [1, 3, 1], [1, 3, 1], [2])[0] == [0, 0, 1]

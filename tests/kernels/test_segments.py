from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import blocks_of
from policy_cases import prompts, scanned

from kvcap.kernels.segments import path_keys, segment_paths


def blocks_on_path(paths, request):
    """Return a request's path block by block: (segment, place in it)."""
    steps = paths.path_segments[paths.path_offsets[request] : paths.path_offsets[request + 1]]
    return [(int(s), place) for s in steps for place in range(paths.segment_blocks[s])]


@given(prompts())
def test_two_requests_step_on_one_block_exactly_where_their_prefixes_are_equal(trace):
    runs, blocks = scanned(trace)
    paths = segment_paths(runs, blocks)
    named = {}
    for request, prompt in enumerate(trace):
        stepped = blocks_on_path(paths, request)
        assert len(stepped) == len(prompt)
        for block, place in zip(blocks_of(prompt), stepped, strict=True):
            assert named.setdefault(block, place) == place
    assert len(set(named.values())) == len(named) == paths.segment_blocks.sum()


@given(prompts())
def test_a_segment_ends_only_where_some_request_ends_or_parts_from_another(trace):
    runs, blocks = scanned(trace)
    paths = segment_paths(runs, blocks)
    known = {block for prompt in trace for block in blocks_of(prompt)}
    ends = {()}
    for block in known:
        followers = [other for other in known if len(other) == len(block) + 1 and other[:-1] == block]
        if len(followers) != 1 or block in trace:
            ends.add(block)
    for prompt in trace:
        for after in blocks_of(prompt):
            if after[:-1] in ends:
                ends.add(after[:-1])
    assert len(paths.segment_blocks) == len(ends) - 1


@given(prompts(), st.data())
def test_a_segment_ends_where_a_lookup_stops_on_known_ground(trace, data):
    runs, blocks = scanned(trace)
    lookups = np.array([data.draw(st.integers(0, len(prompt))) for prompt in trace], np.int64)
    paths = segment_paths(runs, blocks, lookups)
    seen = set()
    for request, prompt in enumerate(trace):
        steps = paths.path_segments[paths.path_offsets[request] : paths.path_offsets[request + 1]]
        bounds = np.cumsum(paths.segment_blocks[steps])
        if prompt[: lookups[request]] in seen:
            assert lookups[request] in bounds
        assert len(blocks_on_path(paths, request)) == len(prompt)
        seen.update(blocks_of(prompt))


@given(prompts())
def test_a_segment_hangs_below_the_one_that_every_path_steps_on_before_it(trace):
    runs, blocks = scanned(trace)
    paths = segment_paths(runs, blocks)
    for request in range(len(trace)):
        above = -1
        for segment in paths.path_segments[paths.path_offsets[request] : paths.path_offsets[request + 1]]:
            assert paths.segment_parents[segment] == above
            above = segment


def test_prompts_that_part_after_two_blocks_make_three_segments():
    runs, blocks = scanned([(7, 7, 1, 1, 1), (7, 7, 2)])
    paths = segment_paths(runs, blocks)
    assert paths.segment_blocks.tolist() == [2, 3, 1]
    assert paths.segment_parents.tolist() == [-1, 0, 0]
    assert paths.path_segments.tolist() == [0, 1, 0, 2]
    assert paths.path_offsets.tolist() == [0, 2, 4]


def test_a_trace_without_blocks_has_no_segments():
    runs, blocks = scanned([(), ()])
    paths = segment_paths(runs, blocks)
    assert paths.segment_blocks.size == 0
    assert paths.path_offsets.tolist() == [0, 0, 0]


@given(prompts(), st.data())
def test_keys_of_some_requests_are_equal_exactly_where_their_prefixes_are(trace, data):
    chosen = [request for request in range(len(trace)) if data.draw(st.booleans())]
    keys, offsets = path_keys(segment_paths(*scanned(trace)), np.array(chosen, np.int64))
    assert np.diff(offsets).tolist() == [len(trace[request]) for request in chosen]
    blocks = [block for request in chosen for block in blocks_of(trace[request])]
    pairs = set(zip(blocks, keys.tolist(), strict=True))
    assert len(pairs) == len({block for block, _ in pairs}) == len({key for _, key in pairs})

from __future__ import annotations

import numpy as np
from hybrid_cases import group_rows, id_paths, models, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_hybrid import Group, Prompt
from oracles_hybrid_vllm import VllmHybrid

from kvcap.kernels.hybrid.vllm import vllm_hybrid_hit_tokens
from kvcap.kernels.hybrid.vllm_steps import vllm_rules

WINDOW_AND_FULL = [Group("window", 512, 128), Group("full", 512)]


def hits(groups, alignment, id_tokens, prompts, capacities, retention=0, step_tokens=0, in_flight=False):
    paths = id_paths(prompts)
    rules = vllm_rules(
        group_rows(groups),
        alignment,
        retention_tokens=retention,
        step_tokens=step_tokens,
        async_scheduling=in_flight,
    )
    return vllm_hybrid_hit_tokens(
        paths,
        paths.segment_blocks * id_tokens,
        np.array([prompt.tokens for prompt in prompts]),
        np.array([prompt.generated for prompt in prompts]),
        rules,
        np.asarray(capacities),
    ).tolist()


@settings(max_examples=200)
@given(streams(), models(), st.data())
def test_every_request_finds_what_a_queue_of_blocks_of_all_groups_holds(stream, model, data):
    id_tokens, prompts = stream
    groups, alignment = model
    capacities = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=3))
    retention = data.draw(st.sampled_from([0, 0, None, alignment, 3 * alignment]))
    step_tokens = data.draw(st.sampled_from([0, alignment, 2 * alignment, 3 * alignment + 1]))
    in_flight = data.draw(st.booleans())
    found = hits(groups, alignment, id_tokens, prompts, capacities, retention, step_tokens, in_flight)
    for capacity, row in zip(capacities, found, strict=True):
        pool = VllmHybrid(groups, alignment, capacity, id_tokens, retention, step_tokens, in_flight)
        assert row == [pool.request(prompt) for prompt in prompts]


def test_more_blocks_may_find_less():
    """There is no stack property, so a request has no single capacity that it needs."""
    prompts = [
        Prompt(tuple("abcd"), 2048),
        Prompt(tuple("efghi"), 2460),
        Prompt(tuple("abj"), 1536),
        Prompt(tuple("ak"), 924),
    ]
    assert hits(WINDOW_AND_FULL, 512, 512, prompts, [11, 12]) == [[0, 0, 0, 512], [0, 0, 0, 0]]

from __future__ import annotations

import numpy as np
from hybrid_cases import id_paths, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_hybrid import Prompt
from oracles_hybrid_sglang import SglangHybrid

from kvcap.kernels.hybrid.sglang import sglang_hybrid_hit_tokens
from kvcap.kernels.hybrid.sglang_rules import sglang_rules


def hits(id_tokens, prompts, outputs, capacity, *, window=None, window_pool=0, states=None, **options):
    """Return the hits of prompts in the kernel, with the oracle's names for pools and rules."""
    paths = id_paths(prompts)
    rules = sglang_rules(
        page_tokens=options.get("page", 1),
        window_tokens=window,
        has_states=states is not None,
        step_tokens=options["step_tokens"],
        extra_buffer=options.get("extra_buffer", True),
        state_tokens=options.get("state_step", 64),
        track_tokens=options.get("track_tokens", 256),
        slide_tokens=options.get("slide_every", 128),
    )
    return sglang_hybrid_hit_tokens(
        paths,
        paths.segment_blocks * id_tokens,
        np.array([prompt.tokens for prompt in prompts]),
        np.array(outputs),
        rules,
        np.array([[capacity, window_pool, states or 0]]),
    )[0].tolist()


@st.composite
def pools(draw):
    """Tokens of the full-attention pool, and what else a model keeps under which rules."""
    page = draw(st.sampled_from([1, 1, 2, 3]))
    capacity = draw(st.integers(12, 150)) // page * page
    options = {"page": page, "step_tokens": draw(st.sampled_from([page, 4 * page, 8192]))}
    kind = draw(st.sampled_from(["full", "window", "states"]))
    if kind == "window":
        options["window"] = draw(st.integers(1, 12))
        options["window_pool"] = draw(st.integers(8, capacity)) // page * page
        options["slide_every"] = draw(st.sampled_from([3, 128]))
    elif kind == "states":
        options["states"] = draw(st.integers(4, 12))
        options["extra_buffer"] = draw(st.booleans())
        options["state_step"] = draw(st.sampled_from([1, 2, 4]))
        options["track_tokens"] = draw(st.sampled_from([4, 8]))
    return capacity, options


@settings(max_examples=200)
@given(streams(), pools(), st.data())
def test_every_request_finds_what_a_radix_tree_with_time_stamps_holds(stream, pool, data):
    id_tokens, prompts = stream
    capacity, options = pool
    outputs = [data.draw(st.sampled_from([1, 1, 2, 9, 20])) for _ in prompts]
    tree = SglangHybrid(capacity, id_tokens, **options)
    expected = [tree.request(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
    assert hits(id_tokens, prompts, outputs, capacity, **options) == expected


PARTING = [Prompt((1, 2, 3, 4), 40), Prompt((1, 2, 5), 30), Prompt((1, 2, 6), 30)]
"""Prompts of 10-token ids of which the second and third leave the first after 20 tokens."""


def test_full_attention_alone_hits_where_prompts_part():
    assert hits(10, PARTING, [1, 1, 1], 500, step_tokens=8192) == [0, 20, 20]


def test_a_window_is_there_where_a_prompt_ended_and_after_a_second_prompt_where_they_part():
    # The window in front of token 20 is gone when the second prompt comes, which leaves one there.
    windows = {"window": 4, "window_pool": 60, "step_tokens": 8192}
    assert hits(10, PARTING, [2, 2, 2], 500, **windows) == [0, 0, 20]


def test_a_state_is_there_where_a_prompt_ended_and_after_a_second_prompt_where_they_part():
    states = {"states": 20, "state_step": 5, "step_tokens": 8192}
    assert hits(10, PARTING, [2, 2, 2], 500, **states) == [0, 0, 20]

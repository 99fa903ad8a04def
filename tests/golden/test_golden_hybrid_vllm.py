"""Hit tokens of every request under vLLM's own cache manager, for hybrid models on real traces."""

from __future__ import annotations

import gzip
import json
import re
from typing import NamedTuple

import numpy as np
import pytest
from golden_traces import golden_trace
from hybrid_cases import group_rows, id_paths
from oracles_hybrid import Group, Prompt
from oracles_hybrid_vllm import VllmHybrid
from shared_data import shared_path

from kvcap.kernels.hybrid.lookup import FULL, LOCAL, STATE, WINDOW
from kvcap.kernels.hybrid.vllm import vllm_hybrid_hit_tokens
from kvcap.kernels.hybrid.vllm_steps import vllm_rules
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths


def groups_of_one_block(block, *groups):
    """Rows of groups (kind, window or chunk, checkpoint) that have the same block, and their alignment."""
    return [(kind, block, span, checkpoint) for kind, span, checkpoint in groups], block


MODELS = {
    **{f"gptoss20b-b{b}": groups_of_one_block(b, (WINDOW, 128, 0), (FULL, 0, 0)) for b in (16, 64, 256)},
    "gemma3-12b-b16": groups_of_one_block(16, *[(WINDOW, 1024, 0)] * 5, (FULL, 0, 0)),
    "gemma3-27b-b64": groups_of_one_block(64, *[(WINDOW, 1024, 0)] * 6, (FULL, 0, 0)),
    **{f"llama4-scout-b{b}": groups_of_one_block(b, *[(LOCAL, 8192, 0)] * 3, (FULL, 0, 0)) for b in (16, 64)},
    "qwen3next-b544": groups_of_one_block(544, *[(STATE, 0, 0)] * 3, (FULL, 0, 0)),
    "mamba2ck-b544": groups_of_one_block(544, *[(STATE, 0, 1)] * 3, (FULL, 0, 0)),
    "dsv4": (
        [
            (WINDOW, 64, 128, 0),
            (WINDOW, 64, 128, 0),
            (FULL, 256, 0, 0),
            (WINDOW, 4, 8, 0),
            (WINDOW, 8, 128, 0),
        ],
        256,
    ),
}

NAME = re.compile(r"(.+)__([\w-]+?)__n(\d+)__chunk(\d+)__out(\d)__ret(\w+)__async(\d)")
ID_TOKENS = 512
"""Of every trace: the expected values take each 64-token id of agentic_coding for 512 tokens."""


class Stream(NamedTuple):
    """Segments of ids, tokens of each, and of each prompt and output."""

    paths: object
    segment_tokens: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray


def golden_names():
    try:
        folder = shared_path("golden/hybrid/vllm")
    except pytest.skip.Exception:
        return []
    return sorted(path.stem for path in folder.glob("*.npz"))


def stream(name, n_requests):
    """Read the first requests of a trace; ``-trim`` lets prompts end where ids end, and one token later."""
    file, _, trimmed = name.partition("-")
    file = "agentic_coding.jsonl.xz" if file == "agentic" else f"mooncake_{file}.jsonl.gz"
    trace = golden_trace(file, n_requests=n_requests)
    blocks = np.diff(trace.request_offsets)
    paths = segment_paths(ReuseRunScanner().feed(trace.block_keys, trace.request_offsets), blocks)
    prompt_tokens = trace.input_tokens
    if trimmed:
        prompt_tokens = (prompt_tokens - 1) // ID_TOKENS * ID_TOKENS + 1
    return Stream(paths, paths.segment_blocks * ID_TOKENS, prompt_tokens, trace.output_tokens)


def differing(name):
    model, trace, n_requests, step_tokens, outputs, retention, in_flight = NAME.fullmatch(name).groups()
    requests = stream(trace, int(n_requests))
    generated = np.maximum(requests.output_tokens - 1, 0) * int(outputs)
    groups, alignment = MODELS[model]
    rules = vllm_rules(
        np.array(groups),
        alignment,
        retention_tokens=None if retention == "None" else int(retention),
        step_tokens=int(step_tokens),
        async_scheduling=in_flight == "1",
    )
    with np.load(shared_path(f"golden/hybrid/vllm/{name}.npz")) as arrays:
        expected = {int(key[1:]): arrays[key] for key in arrays.files}
    usable = np.array(sorted(expected)) - 1
    found = vllm_hybrid_hit_tokens(
        requests.paths, requests.segment_tokens, requests.prompt_tokens, generated, rules, usable
    )
    return {
        pool: np.count_nonzero(hits != expected[pool])
        for pool, hits in zip(sorted(expected), found, strict=True)
    }


@pytest.mark.parametrize("name", golden_names())
def test_every_request_hits_what_it_hits_in_vllm(name):
    assert set(differing(name).values()) == {0}


STRESSED = {
    "windows alone": ([Group("window", 64, 4096)], 64),
    "blocks of 192 and 128": ([Group("full", 192), Group("window", 128, 700)], 384),
    "two windows": ([Group("full", 64), Group("window", 64, 512), Group("window", 64, 2048)], 64),
    "three kinds": ([Group("full", 512), Group("window", 512, 1024), Group("state", 512)], 512),
    "checkpoints": ([Group("state", 544, 0, True), Group("full", 544)], 544),
}


@pytest.mark.parametrize("model", STRESSED)
@pytest.mark.parametrize(("retention", "step_tokens"), [(0, 8192), (None, 2048), (4608, 0)])
def test_a_stream_of_turns_branches_and_re_sends_hits_what_plain_rules_say(model, retention, step_tokens):
    with gzip.open(shared_path("traces/stress/stress_a700.jsonl.gz"), "rt") as lines:
        rows = [json.loads(line) for line in lines]
    prompts = [
        Prompt(tuple(row["hash_ids"]), row["input_length"], row["output_length"] - 1) for row in rows[:300]
    ]
    groups, alignment = STRESSED[model]
    rules = vllm_rules(group_rows(groups), alignment, retention_tokens=retention, step_tokens=step_tokens)
    paths = id_paths(prompts)
    capacity = 120_000 // groups[0].block
    found = vllm_hybrid_hit_tokens(
        paths,
        paths.segment_blocks * ID_TOKENS,
        np.array([prompt.tokens for prompt in prompts]),
        np.array([prompt.generated for prompt in prompts]),
        rules,
        np.array([capacity]),
    )
    pool = VllmHybrid(groups, alignment, capacity, ID_TOKENS, retention, step_tokens)
    expected = [pool.request(prompt) for prompt in prompts]
    assert found[0].tolist() == expected
    assert sum(expected) > 0

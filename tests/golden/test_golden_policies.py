"""Hit tokens equal the public C++ simulator's at every budget it reports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_traces import golden_trace
from shared_data import shared_path

from kvcap.kernels.engine_rules import lru_hit_blocks
from kvcap.kernels.fifo import fifo_hit_blocks
from kvcap.kernels.optimal import optimal_hit_blocks
from kvcap.kernels.prefix_tokens import prefix_tokens
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths

TRACES = {
    "conversation": "mooncake_conversation.jsonl.gz",
    "synthetic": "mooncake_synthetic.jsonl.gz",
    "agentic": "agentic_coding.jsonl.xz",
}


def replayed(name):
    golden = json.loads(shared_path(f"golden/kvcache_simulator_{name}.json").read_text())
    trace = golden_trace(TRACES[name])
    runs = ReuseRunScanner().feed(trace.block_keys, trace.request_offsets)
    capacities = np.array([point["cache_blocks"] for point in golden["points"]])
    return golden, trace, runs, capacities


def measured_tokens(hit_blocks, trace, golden):
    covered = np.minimum(trace.input_tokens, np.diff(trace.request_offsets) * trace.block_size)
    tokens = prefix_tokens(hit_blocks, trace.request_offsets, covered, trace.block_size)
    return tokens[:, golden["warm_up_requests"] :].sum(axis=1).tolist()


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_fifo_equals_the_public_simulator_at_every_budget(name):
    golden, trace, runs, capacities = replayed(name)
    hits = fifo_hit_blocks(segment_paths(runs, np.diff(trace.request_offsets)), capacities)
    assert measured_tokens(hits, trace, golden) == [point["fifo"] for point in golden["points"]]


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_optimal_equals_the_public_simulator_at_every_budget(name):
    golden, trace, runs, capacities = replayed(name)
    hits = optimal_hit_blocks(runs, len(trace.input_tokens), capacities)
    assert measured_tokens(hits, trace, golden) == [point["optimal"] for point in golden["points"]]


@pytest.mark.parametrize(
    "name", ["conversation", "synthetic", pytest.param("agentic", marks=pytest.mark.slow)]
)
def test_lru_equals_the_public_simulator_where_every_request_fits(name):
    golden, trace, runs, capacities = replayed(name)
    blocks = np.diff(trace.request_offsets)
    tokens = measured_tokens(lru_hit_blocks(runs, blocks, capacities), trace, golden)
    compared = [
        (ours, point["lru"])
        for ours, point in zip(tokens, golden["points"], strict=True)
        if point["cache_blocks"] >= blocks.max()
    ]
    assert len(compared) >= 6
    assert all(ours == expected for ours, expected in compared)

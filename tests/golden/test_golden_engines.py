"""Hit blocks equal those of the engines' own cache managers, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from golden_traces import golden_trace
from shared_data import shared_path

from kvcap.kernels.engine_rules import (
    generated_blocks,
    held_blocks,
    hit_blocks_of_admitted,
    lookup_blocks,
    with_private_blocks,
)
from kvcap.kernels.node_lru import node_lru_hit_blocks
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths

NAMES = ["conversation", "synthetic"]
VLLM_RESERVED_BLOCKS = 1


def full_blocks(name):
    return golden_trace(f"mooncake_{name}.jsonl.gz", full_blocks_only=True)


def expected_hits(archive):
    with np.load(shared_path(f"golden/engines/{archive}.npz")) as arrays:
        return {key: arrays[key] for key in arrays.files}


def radix_tree_hits(trace, capacities):
    runs = ReuseRunScanner().feed(trace.block_keys, trace.request_offsets)
    lookups = lookup_blocks(trace.input_tokens, trace.block_size)
    held = held_blocks(trace.input_tokens, np.zeros_like(trace.input_tokens), trace.block_size)
    paths = segment_paths(runs, np.diff(trace.request_offsets), lookups)
    return dict(zip(capacities, node_lru_hit_blocks(paths, lookups, held, np.array(capacities)), strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("archive", ["vllm", "vllm_outputs"])
def test_one_pass_depths_equal_vllm(archive, name):
    trace = full_blocks(name)
    generated = np.zeros_like(trace.output_tokens) if archive == "vllm" else trace.output_tokens
    private = generated_blocks(trace.input_tokens, generated, trace.block_size)
    keys, offsets = with_private_blocks(trace.block_keys, trace.request_offsets, private)
    held = held_blocks(trace.input_tokens, generated, trace.block_size)
    expected = expected_hits(f"{archive}_{name}")
    capacities = np.array([int(key[1:]) for key in expected])
    limits = lookup_blocks(trace.input_tokens, trace.block_size)
    hits = hit_blocks_of_admitted(keys, offsets, limits, held, capacities, VLLM_RESERVED_BLOCKS)
    assert len(expected) >= 2
    for row, array in zip(hits, expected.values(), strict=True):
        assert np.count_nonzero(row != array) == 0


@pytest.mark.parametrize("name", NAMES)
def test_node_eviction_equals_sglang(name):
    expected = expected_hits(f"sglang_{name}")
    hits = radix_tree_hits(full_blocks(name), [int(key[1:]) for key in expected])
    assert len(hits) == 4
    for key, array in expected.items():
        assert np.count_nonzero(hits[int(key[1:])] != array) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_write_through_host_tier_finds_what_one_tier_of_the_larger_size_would(name):
    expected = expected_hits(f"sglang_hicache_write_through_{name}")
    pairs = {key.rsplit("_", 1)[0] for key in expected}
    assert len(pairs) == 2
    for pair in pairs:
        device, host = (int(part[1:]) for part in pair.split("_"))
        hits = radix_tree_hits(full_blocks(name), [device, max(device, host)])
        assert np.count_nonzero(hits[device] != expected[f"{pair}_l1"]) == 0
        both = expected[f"{pair}_l1"] + expected[f"{pair}_l2"]
        assert np.count_nonzero(hits[max(device, host)] != both) == 0

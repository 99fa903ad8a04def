"""Simulations of hybrid models after the pass over agentic_coding, beside full attention alone.

``pytest -m bench tests/bench/test_bench_hybrid.py -s`` prints seconds; memory grows with spans, not blocks.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from golden_traces import golden_trace

from kvcap.kernels.hybrid.lookup import FULL, STATE, WINDOW
from kvcap.kernels.hybrid.vllm import vllm_hybrid_hit_tokens
from kvcap.kernels.hybrid.vllm_steps import vllm_rules
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths

pytestmark = pytest.mark.bench

MODELS = {
    "full attention": ([(FULL, 64, 0, 0)], 1_572_864 * 2),
    "gpt-oss-20b": ([(WINDOW, 64, 128, 0), (FULL, 64, 0, 0)], 1_572_864),
    "gemma-3-27b": ([(WINDOW, 64, 1024, 0)] * 6 + [(FULL, 64, 0, 0)], 5_242_880),
    "qwen3-next": ([(STATE, 544, 0, 0)] * 3 + [(FULL, 544, 0, 0)], 13_369_344),
}
"""Groups, and bytes of a block of the pool."""


def test_hybrid_simulations_after_the_pass() -> None:
    trace = golden_trace("agentic_coding.jsonl.xz")
    blocks = np.diff(trace.request_offsets)
    paths = segment_paths(ReuseRunScanner().feed(trace.block_keys, trace.request_offsets), blocks)
    requests = (
        paths,
        paths.segment_blocks * trace.block_size,
        trace.input_tokens,
        np.maximum(trace.output_tokens - 1, 0),
    )
    print(f"\nagentic_coding: {len(blocks):,} requests, {blocks.sum():,} blocks")
    for name, (groups, block_bytes) in MODELS.items():
        rules = vllm_rules(np.array(groups), groups[0][1], step_tokens=8192)
        for gib in ([60], np.linspace(20, 600, 10), [1 << 20]):
            pool = (np.array(gib) * 2**30 // block_bytes).astype(np.int64)
            started = time.perf_counter()
            found = vllm_hybrid_hit_tokens(*requests, rules, pool)
            seconds = time.perf_counter() - started
            rate = np.maximum(found[0], 0).sum() / trace.input_tokens.sum()
            print(
                f"{name}: {len(pool)} capacities from {gib[0]:,} GiB: {seconds:.2f} s, hits {rate:.4f} there"
            )

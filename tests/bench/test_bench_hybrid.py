"""Simulations of hybrid models after the pass over agentic_coding, beside full attention alone.

``pytest -m bench tests/bench/test_bench_hybrid.py -s`` prints seconds, and how much more memory was in use.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest
from golden_traces import golden_trace

from kvcap.kernels.hybrid.lookup import FULL, STATE, WINDOW
from kvcap.kernels.hybrid.sglang import sglang_hybrid_hit_tokens
from kvcap.kernels.hybrid.sglang_rules import sglang_rules
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
    nobody = (*requests[:2], trace.input_tokens[:0], trace.output_tokens[:0])
    vllm_hybrid_hit_tokens(*nobody, vllm_rules(np.array(MODELS["gpt-oss-20b"][0]), 64), np.array([1]))
    sglang_hybrid_hit_tokens(*nobody, sglang_rules(), np.array([[1, 1, 1]]))
    print(f"\nagentic_coding: {len(blocks):,} requests, {blocks.sum():,} blocks")
    for name, (groups, block_bytes) in MODELS.items():
        rules = vllm_rules(np.array(groups), groups[0][1], step_tokens=8192)
        for gib in ([60], np.linspace(20, 600, 10), [1 << 20]):
            pool = (np.array(gib) * 2**30 // block_bytes).astype(np.int64)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            started = time.perf_counter()
            found = vllm_hybrid_hit_tokens(*requests, rules, pool)
            seconds = time.perf_counter() - started
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
            rate = np.maximum(found[0], 0).sum() / trace.input_tokens.sum()
            print(
                f"{name}: {len(pool)} capacities from {gib[0]:,} GiB: {seconds:.2f} s, "
                f"hits {rate:.4f} there, {grown:,.0f} MiB more at the peak"
            )
    pools = np.array([[1_500_000, 1_200_000, 300]])
    for name, options in (("windows", {"window_tokens": 127}), ("states", {"has_states": True})):
        started = time.perf_counter()
        found = sglang_hybrid_hit_tokens(*requests[:3], trace.output_tokens, sglang_rules(**options), pools)
        seconds = time.perf_counter() - started
        rate = np.maximum(found[0], 0).sum() / trace.input_tokens.sum()
        print(f"SGLang, {name}: one set of pools: {seconds:.2f} s, hits {rate:.4f}")

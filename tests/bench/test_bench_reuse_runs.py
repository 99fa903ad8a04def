"""The one-pass kernel alone, beside a plain block-level Fenwick tree on the same keys.

``pytest -m bench tests/bench/test_bench_reuse_runs.py -s`` prints blocks/s, runs/s and the ratio of one run.
"""

from __future__ import annotations

import time
from statistics import median

import numba
import numpy as np
import pytest
from shared_data import shared_path

from kvcap.blocks.keyer import list_arrays
from kvcap.formats import ReadOptions, open_trace
from kvcap.kernels.keys import chain_keys
from kvcap.kernels.reuse_runs import ReuseRunScanner

pytestmark = pytest.mark.bench

TRACES = {
    "mooncake_conversation": ("traces/mooncake_conversation.jsonl.gz", 512),
    "agentic_coding": ("traces/agentic_coding.jsonl.xz", 64),
}


@numba.njit(cache=True)
def block_level_depths(blocks, offsets, n_distinct):  # type: ignore[no-untyped-def]
    """Tail-first depth of every access with a Fenwick tree over all touches (Olken 1981)."""
    n = blocks.size
    tree = np.zeros(n + 1, np.int64)
    last = np.full(n_distinct, -1, np.int64)
    depths = np.empty(n, np.int64)
    live = 0
    for r in range(offsets.size - 1):
        for i in range(offsets[r], offsets[r + 1]):
            time_of_touch = last[blocks[i]]
            if time_of_touch < 0:
                depths[i] = -1
                continue
            older = 0
            j = time_of_touch + 1
            while j > 0:
                older += tree[j]
                j -= j & -j
            depths[i] = live - older
        for i in range(offsets[r + 1] - 1, offsets[r] - 1, -1):
            block = blocks[i]
            if last[block] >= 0:
                j = last[block] + 1
                while j <= n:
                    tree[j] -= 1
                    j += j & -j
                live -= 1
            touch = offsets[r] + offsets[r + 1] - 1 - i
            last[block] = touch
            j = touch + 1
            while j <= n:
                tree[j] += 1
                j += j & -j
            live += 1
    return depths


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    path, block_size = TRACES[name]
    trace = open_trace([str(shared_path(path))], ReadOptions(block_size=block_size))
    ids, lengths = [], []
    for batch in trace.batches():
        values, offsets = list_arrays(batch.column("hash_ids"), np.dtype(np.uint64))
        ids.append(values)
        lengths.append(np.diff(offsets))
    trace.close()
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return chain_keys(np.concatenate(ids), offsets), offsets


def seconds(call, repeats: int) -> float:  # type: ignore[no-untyped-def]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)


@pytest.mark.parametrize("name", TRACES)
def test_blocks_per_second_of_the_one_pass_kernel(name: str) -> None:
    keys, offsets = load(name)
    distinct, blocks = np.unique(keys, return_inverse=True)
    runs = ReuseRunScanner().feed(keys, offsets)
    block_level_depths(blocks[:1], np.array([0, 1]), distinct.size)
    depths = block_level_depths(blocks, offsets, distinct.size)
    assert np.array_equal(depths[offsets[runs.request] + runs.first_block], runs.depth)
    one_pass = seconds(lambda: ReuseRunScanner().feed(keys, offsets), 5)
    plain = seconds(lambda: block_level_depths(blocks, offsets, distinct.size), 1)
    print(
        f"\n{name}: {keys.size:,} blocks, {runs.request.size:,} runs: one pass {one_pass:.3f} s = "
        f"{keys.size / one_pass / 1e6:,.0f} M blocks/s, {runs.request.size / one_pass / 1e6:.2f} M runs/s; "
        f"block-level Fenwick {plain:.2f} s = {keys.size / plain / 1e6:,.1f} M blocks/s; "
        f"ratio {plain / one_pass:,.0f}"
    )

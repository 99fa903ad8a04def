"""Drive vLLM's own KVCacheManager over requests of token ids, without a model, one request at a time.

Runs in a Python that has vLLM (its CPU wheel will do) and needs nothing else. Reads one JSON object a line
from standard input: first ``{"block_size": 16, "capacities": [500, 2000]}``, then ``{"prompt": [...],
"output": [...]}`` for each request. Prints ``{"version": ..., "hit_blocks": {"500": [...], "2000": [...]}}``.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable
from typing import Any

import torch
import vllm
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

MAX_MODEL_LEN = 1 << 22


def manager_of(capacity: int, block_size: int) -> KVCacheManager:
    """Return a manager with so many blocks for data, beside the null block that vLLM keeps for itself."""
    attention = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float16)
    config = KVCacheConfig(
        num_blocks=capacity + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)]
    )
    options = {
        "max_model_len": MAX_MODEL_LEN,
        "scheduler_block_size": block_size,
        "hash_block_size": block_size,
        "enable_caching": True,
    }
    known = inspect.signature(KVCacheManager.__init__).parameters
    return KVCacheManager(config, **{name: value for name, value in options.items() if name in known})


def hit_blocks(manager: KVCacheManager, request: Request, output: list[int]) -> int | None:
    """Prefill a request, append all but its last generated token, free it; None if it does not fit."""
    found, computed_tokens = manager.get_computed_blocks(request)[:2]
    hits = len(found.blocks[0])
    new_tokens = request.num_tokens - computed_tokens
    if manager.allocate_slots(request, new_tokens, computed_tokens, found) is None:
        return None
    request.num_computed_tokens = request.num_tokens
    if output[:-1]:
        request.append_output_token_ids(output[:-1])
        if manager.allocate_slots(request, len(output) - 1) is None:
            return None
        request.num_computed_tokens = request.num_tokens
    manager.free(request)
    return hits


def fits(capacity: int, block_size: int, prompt: list[int], output: list[int]) -> bool:
    """Return whether a request could run at all; the scheduler admits no other."""
    return -(-(len(prompt) + max(0, len(output) - 1)) // block_size) <= capacity


def drive(capacity: int, block_size: int, requests: Iterable[tuple[list[int], list[int]]]) -> list[int]:
    """Return every request's hits at one capacity."""
    manager = manager_of(capacity, block_size)
    hasher = get_request_block_hasher(block_size, sha256)
    hits = []
    for number, (prompt, output) in enumerate(requests):
        if not prompt or not fits(capacity, block_size, prompt, output):
            hits.append(0)
            continue
        sampling = SamplingParams(max_tokens=max(1, len(output)))
        request = Request(str(number), prompt, sampling, None, block_hasher=hasher)
        found = hit_blocks(manager, request, output)
        if found is None:
            raise SystemExit(f"request {number} did not get its blocks, though it fits")
        hits.append(found)
    return hits


def main() -> None:
    """Answer what is asked on standard input."""
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    requests = [(record["prompt"], record["output"]) for record in map(json.loads, sys.stdin)]
    init_none_hash(sha256)
    found = {
        str(capacity): drive(capacity, asked["block_size"], requests) for capacity in asked["capacities"]
    }
    print(json.dumps({"version": vllm.__version__, "hit_blocks": found}))


if __name__ == "__main__":
    main()

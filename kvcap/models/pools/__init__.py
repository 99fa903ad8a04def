"""What an engine makes of a model: groups of layers, blocks of a pool, and the figures that it prints.

Examples
--------
>>> from kvcap.models import ModelBytesOptions, resolve_model
>>> from kvcap.models.pools import VllmOptions, vllm_pool
>>> deployment = ModelBytesOptions(kv_precision="fp8")
>>> pool = vllm_pool(resolve_model("qwen3.6-35b-a3b"), deployment, VllmOptions(max_model_len=131072))
>>> pool.printed_tokens(pool.pool_blocks(6_420_976_107))
567978
"""

from __future__ import annotations

from kvcap.models.pools.groups import CacheGroup, CacheKind, CacheLayers
from kvcap.models.pools.sglang import SglangOptions, SglangPool, SglangSizes, sglang_pool
from kvcap.models.pools.vllm import VllmOptions, VllmPool, vllm_pool
from kvcap.models.pools.vllm_grouping import group_layers, pool_block_bytes

__all__ = [
    "CacheGroup",
    "CacheKind",
    "CacheLayers",
    "SglangOptions",
    "SglangPool",
    "SglangSizes",
    "VllmOptions",
    "VllmPool",
    "group_layers",
    "pool_block_bytes",
    "sglang_pool",
    "vllm_pool",
]

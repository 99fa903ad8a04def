"""The rule of every router of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kvcap.routers.cache_aware import (
    ProductionStackPrefix,
    RayPrefix,
    SglangCacheAware,
    SmgCacheAware,
    VllmRouterCacheAware,
)
from kvcap.routers.dynamo import DynamoKv
from kvcap.routers.rule import Rule

RULES: Final[Mapping[str, type[Rule]]] = MappingProxyType(
    {
        "sglang-cache-aware": SglangCacheAware,
        "vllm-router-cache-aware": VllmRouterCacheAware,
        "smg-cache-aware": SmgCacheAware,
        "dynamo-kv": DynamoKv,
        "ray-prefix": RayPrefix,
        "production-stack-prefix": ProductionStackPrefix,
    }
)
"""Rules by the names of :data:`kvcap.routers.catalog.ROUTERS`."""

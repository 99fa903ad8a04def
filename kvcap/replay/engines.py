"""Options that make a replay predict a serving engine, each of them to be overridden.

Every preset is what the engine does by default: which blocks it keeps, how much of a capacity holds data,
what it evicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from kvcap.errors import UsageError
from kvcap.replay.options import ReplayOptions

ENGINE_PRESETS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "vllm": {
            "partial_block": "drop",
            "compute_last_token": True,
            "output_blocks": True,
            "token_block_size": 16,
            "policies": ("vllm-lru",),
        },
        "sglang": {
            "partial_block": "drop",
            "compute_last_token": True,
            "token_block_size": 1,
            "policies": ("sglang-lru",),
        },
        "lmcache": {
            "partial_block": "drop",
            "chunk_tokens": 256,
            "policies": ("lru",),
        },
        "mooncake": {
            "partial_block": "drop",
            "policies": ("lru",),
            "capacity_factor": Fraction(7, 8),
        },
    }
)


def engine_options(engine: str, **overrides: Any) -> ReplayOptions:
    """Return the options that predict an engine.

    Parameters
    ----------
    engine
        ``vllm``, ``sglang``, ``lmcache`` or ``mooncake``.
    overrides
        Fields of :class:`ReplayOptions`; what is given here wins over the preset.

    Raises
    ------
    UsageError
        If there is no such engine, or options contradict each other.
    """
    if engine not in ENGINE_PRESETS:
        raise UsageError(f"engine is {engine!r}, expected one of {', '.join(ENGINE_PRESETS)}")
    return ReplayOptions(**{"engine": engine, **ENGINE_PRESETS[engine], **overrides})

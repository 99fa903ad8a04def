"""Engines, each with what it does by default: which blocks it keeps, how much holds data, what it evicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from kvcap.blocks.options import BlockOptions
from kvcap.engines.rules import Rules


@dataclass(frozen=True)
class Engine:
    """What predicts a serving engine.

    Parameters
    ----------
    blocks
        What a block of it is.
    rules
        With its name as ``engine``.
    """

    blocks: BlockOptions
    rules: Rules


ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        engine.rules.engine: engine
        for engine in (
            Engine(
                BlockOptions(partial_block="drop", output_blocks=True, token_block_size=16),
                Rules(("vllm-lru",), "vllm", compute_last_token=True),
            ),
            Engine(
                BlockOptions(partial_block="drop", token_block_size=1),
                Rules(("sglang-lru",), "sglang", compute_last_token=True),
            ),
            Engine(BlockOptions(partial_block="drop", chunk_tokens=256), Rules(("lru",), "lmcache")),
            Engine(
                BlockOptions(partial_block="drop"),
                Rules(("lru",), "mooncake", capacity_factor=Fraction(7, 8)),
            ),
        )
        if engine.rules.engine is not None
    }
)
"""Every engine by its name."""

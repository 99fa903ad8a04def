"""vLLM's pool: blocks that all groups of layers share, and the figures that it prints at its start.

Source: ``v1/core/kv_cache_utils.py`` and ``v1/kv_cache_interface.py`` of vLLM 0.32. Before 0.21 the line
*GPU KV cache size* was blocks over groups times the block size, whatever a request needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kvcap.errors import UsageError
from kvcap.models.deployment import parse_version
from kvcap.models.pools.groups import CacheGroup
from kvcap.models.pools.vllm_grouping import group_layers, pool_block_bytes
from kvcap.models.pools.vllm_layers import vllm_layers

if TYPE_CHECKING:
    from kvcap.models.catalog import Model
    from kvcap.models.deployment import ModelBytesOptions

DEFAULT_MAX_NUM_BATCHED_TOKENS: Final = 8192
_COUNTS_REQUESTS_FROM: Final = (0, 21)


@dataclass(frozen=True)
class VllmOptions:
    """How vLLM is started, as far as its pool is concerned.

    Parameters
    ----------
    max_model_len
        The longest request; None takes the model's context.
    max_num_batched_tokens
        Tokens of one step, which decide what a window keeps while a prompt is computed; 0 for all of it.
    async_scheduling
        Whether the next step is scheduled while one is under way.
    prefix_caching
        Whether blocks are kept for later requests; without it a state takes one block and not two.
    block_tokens
        ``--block-size``; None for the engine's default.
    dp
        Engines that share the requests, each with a pool of its own.
    """

    max_model_len: int | None = None
    max_num_batched_tokens: int = DEFAULT_MAX_NUM_BATCHED_TOKENS
    async_scheduling: bool = True
    prefix_caching: bool = True
    block_tokens: int | None = None
    dp: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("max_model_len", 1),
            ("max_num_batched_tokens", 0),
            ("block_tokens", 1),
            ("dp", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name.replace('_', ' ')} is {value}, expected a whole number from {least}")


@dataclass(frozen=True)
class VllmPool:
    """One pool of equal blocks, on one rank.

    Attributes
    ----------
    groups
        The groups that share it, in the engine's order.
    block_bytes
        Bytes of a block of the pool: those of the widest group.
    max_model_len
        Tokens of the longest request.
    group_request_blocks
        Blocks that such a request may take of each group.
    prints_blocks
        Whether the engine is so old that it prints blocks over groups times their tokens.
    notes
        What was assumed, one sentence each.
    """

    groups: tuple[CacheGroup, ...]
    block_bytes: int
    max_model_len: int
    group_request_blocks: tuple[int, ...]
    prints_blocks: bool = False
    notes: tuple[str, ...] = ()

    @property
    def request_blocks(self) -> int:
        """Blocks that a request of ``max_model_len`` tokens may take, over all groups."""
        return sum(self.group_request_blocks)

    @property
    def alignment_tokens(self) -> int:
        """Tokens to whose multiples a reused prefix is cut: the least common multiple of all blocks."""
        return math.lcm(*(group.block_tokens for group in self.groups))

    def pool_blocks(self, memory_bytes: int) -> int:
        """Return the blocks that fit into the cache's memory of one GPU, the null block included."""
        return memory_bytes // self.block_bytes

    def concurrency(self, blocks: int) -> float:
        """Return the *maximum concurrency* that the engine prints for a pool of ``blocks``."""
        return blocks / self.request_blocks

    def printed_tokens(self, blocks: int) -> int:
        """Return the *GPU KV cache size* that the engine prints for a pool of ``blocks``, digit by digit."""
        if self.prints_blocks:
            return blocks // len(self.groups) * min(group.block_tokens for group in self.groups)
        return int(self.concurrency(blocks) * self.max_model_len)

    def blocks_from_printed(self, tokens: int) -> range:
        """Return every number of blocks for which the engine prints ``tokens``; empty when there is none."""
        step = (
            min(group.block_tokens for group in self.groups) / len(self.groups)
            if self.prints_blocks
            else self.max_model_len / self.request_blocks
        )
        guess = max(0, int(tokens / step) - len(self.groups) - 2)
        first = next(
            n for n in range(guess, guess + 10 * len(self.groups) + 10) if self.printed_tokens(n) >= tokens
        )
        after = first
        while self.printed_tokens(after) == tokens:
            after += 1
        return range(first, after)


def vllm_pool(model: Model, deployment: ModelBytesOptions, options: VllmOptions | None = None) -> VllmPool:
    """Return the pool that vLLM makes of a model.

    Parameters
    ----------
    model
        From :func:`kvcap.models.resolve_model`.
    deployment
        Precisions and parallel sizes; its layout and scope play no part.
    options
        How the engine is started.

    Raises
    ------
    UsageError
        If the longest request is unknown, heads do not split over the ranks, or a window is to be
        spread over ranks of decode context parallelism.
    """
    options = VllmOptions() if options is None else options
    max_model_len = options.max_model_len or model.max_context
    if max_model_len is None:
        raise UsageError(f"the context of {model.name} is unknown, expected --max-model-len")
    layers = vllm_layers(model, deployment, options.block_tokens)
    if deployment.dcp > 1 and any(kind.kind in {"window", "chunked"} for kind in layers.layers):
        raise UsageError(
            f"dcp is {deployment.dcp} for layers with windows, expected 1: vLLM does not split those"
        )
    groups = group_layers(
        layers.layers, block_outermost=layers.block_outermost, stages=deployment.pp, dcp=deployment.dcp
    )
    version = parse_version(deployment.engine_version)
    notes = []
    if deployment.pp > 1 and len(groups) > 1:
        notes.append(f"every group's layers are taken as spread evenly over {deployment.pp} stages")
    if options.dp > 1:
        notes.append(f"each of {options.dp} engines (dp) has a pool like this one")
    return VllmPool(
        groups=groups,
        block_bytes=pool_block_bytes(groups),
        max_model_len=max_model_len,
        group_request_blocks=request_blocks(groups, max_model_len, options, deployment),
        prints_blocks=version is not None and version < _COUNTS_REQUESTS_FROM,
        notes=tuple(notes),
    )


def request_blocks(
    groups: Sequence[CacheGroup], tokens: int, options: VllmOptions, deployment: ModelBytesOptions
) -> tuple[int, ...]:
    """Return the blocks that one request of ``tokens`` may take of each group, as vLLM admits it."""
    batches = deployment.pp + options.async_scheduling
    in_flight = batches * (options.max_num_batched_tokens or tokens)
    drafts = deployment.num_speculative_tokens
    return tuple(_group_blocks(group, tokens, in_flight, drafts, options.prefix_caching) for group in groups)


def _group_blocks(group: CacheGroup, tokens: int, in_flight: int, drafts: int, prefix_caching: bool) -> int:
    if group.kind == "ring":
        return 1
    if group.kind == "state":
        return drafts + (2 + group.checkpoint_blocks if prefix_caching else 1)
    window = group.window_tokens
    if window is None:
        return -(-tokens // group.block_tokens)
    if group.kind == "chunked":
        return -(-min(window + in_flight, tokens) // group.block_tokens)
    return -(-min(window - 1 + in_flight, tokens) // group.block_tokens) + 1

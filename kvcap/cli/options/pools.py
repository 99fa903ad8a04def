"""How an engine is started, as far as the pools of its cache are concerned."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvcap.cli.options.values import whole_number

if TYPE_CHECKING:
    from kvcap.models.pools import SglangOptions, VllmOptions


def add_pool_options(group: argparse._ActionsContainer) -> None:
    """Add what sizes an engine's pools; :func:`vllm_options` and :func:`sglang_options` collect it."""
    group.add_argument(
        "--engine-block-size",
        type=whole_number(1),
        metavar="TOKENS",
        help="the engine's own block (SGLang's page; default: the engine's)",
    )
    group.add_argument(
        "--max-model-len",
        type=whole_number(1),
        metavar="N",
        help="vllm: tokens of the longest request (default: the model's context)",
    )
    group.add_argument(
        "--max-num-batched-tokens",
        type=whole_number(0),
        default=8192,
        metavar="N",
        help="vllm: tokens of one step, 0 for a whole prompt (default: %(default)s)",
    )
    group.add_argument(
        "--async-scheduling",
        choices=["on", "off"],
        default="on",
        help="vllm: whether a step is scheduled while one is under way (default: %(default)s)",
    )
    group.add_argument(
        "--prefix-caching",
        choices=["on", "off"],
        default="on",
        help="vllm: whether blocks are kept for later requests (default: %(default)s)",
    )
    group.add_argument(
        "--dp",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="engines that share the requests, each with pools of its own (default: %(default)s)",
    )
    group.add_argument(
        "--swa-full-tokens-ratio",
        metavar="R",
        help="sglang: tokens of the window pool for each of the full one (default: 0.8, for some models 0.1)",
    )
    group.add_argument(
        "--mamba-full-memory-ratio",
        metavar="R",
        default="0.9",
        help="sglang: memory of states for each byte of the full pool (default: %(default)s)",
    )
    group.add_argument(
        "--mamba-states",
        type=whole_number(1),
        metavar="N",
        help="sglang: states kept (default: by the ratio)",
    )
    group.add_argument(
        "--max-running-requests",
        type=whole_number(1),
        metavar="N",
        help="sglang: requests for which DeepSeek V4's states are reserved (default: its estimate)",
    )


def vllm_options(args: argparse.Namespace) -> VllmOptions:
    """Return how vLLM is started."""
    from kvcap.models.pools import VllmOptions

    return VllmOptions(
        max_model_len=args.max_model_len,
        max_num_batched_tokens=args.max_num_batched_tokens,
        async_scheduling=args.async_scheduling == "on",
        prefix_caching=args.prefix_caching == "on",
        block_tokens=args.engine_block_size,
        dp=args.dp,
    )


def sglang_options(args: argparse.Namespace) -> SglangOptions:
    """Return how SGLang is started.

    Raises
    ------
    UsageError
        If a ratio is no number above 0.
    """
    from kvcap.models.pools import SglangOptions
    from kvcap.units import parse_number

    ratio = args.swa_full_tokens_ratio
    return SglangOptions(
        page_tokens=args.engine_block_size,
        window_ratio=None if ratio is None else parse_number(ratio, "--swa-full-tokens-ratio"),
        state_ratio=parse_number(args.mamba_full_memory_ratio, "--mamba-full-memory-ratio"),
        state_slots=args.mamba_states,
        max_running_requests=args.max_running_requests,
        dp=args.dp,
    )

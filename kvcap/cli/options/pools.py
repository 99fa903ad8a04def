"""How an engine is started, as far as the pools of its cache are concerned."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kvcap.cli.options.derived import add_fields, options_from
from kvcap.cli.options.values import whole_number
from kvcap.engines.hybrid_options import HybridOptions

if TYPE_CHECKING:
    from kvcap.models import Model, ModelBytesOptions
    from kvcap.models.memory import Basis, CacheMemory, MemoryOptions
    from kvcap.models.pools import SglangOptions, VllmOptions


def add_pool_options(group: argparse._ActionsContainer) -> None:
    """Add what sizes an engine's pools; :func:`vllm_options` and :func:`sglang_options` collect it."""
    add_fields(group, HybridOptions, only=["engine_block_size", "max_num_batched_tokens", "async_scheduling"])
    group.add_argument(
        "--max-model-len",
        type=whole_number(1),
        metavar="N",
        help="vllm: tokens of the longest request (default: the model's context)",
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


def add_memory_options(group: argparse._ActionsContainer) -> None:
    """Add what says the memory of the cache on one GPU; :func:`cache_memory` computes it."""
    group.add_argument("--memory", metavar="SIZE", help="memory of the cache on one GPU, such as 47.4GiB")
    group.add_argument(
        "--gpu", metavar="NAME", help="take the memory that this GPU leaves, such as h100, b200 or mi355x"
    )
    group.add_argument(
        "--weights",
        metavar="SIZE|PRECISION",
        help="with --gpu: weights of a replica, or a precision in which they are known (default: any)",
    )
    group.add_argument(
        "--memory-utilization",
        metavar="R",
        help="with --gpu: --gpu-memory-utilization or --mem-fraction-static (default: the engine's)",
    )
    group.add_argument(
        "--reserve",
        metavar="SIZE",
        help="with --gpu: what running takes beside weights and cache (default: typical or by formula)",
    )


def cache_memory(
    args: argparse.Namespace, model: Model, deployment: ModelBytesOptions
) -> CacheMemory | int | None:
    """Return the memory of the cache in bytes as given, or what a GPU leaves, term by term.

    Raises
    ------
    UsageError
        If the options contradict each other, or nothing is left.
    ModelError
        If the GPU or the model's weights are not known.
    """
    from kvcap.errors import UsageError
    from kvcap.units import parse_size_bytes

    given = [name for name in ("--memory", "--gpu") if getattr(args, name[2:]) is not None]
    if given and args.engine is None:
        raise UsageError(f"{given[0]} needs --engine vllm or sglang, whose pools it fills")
    if len(given) > 1:
        raise UsageError("--memory and --gpu both say the memory of the cache, expected one of them")
    if args.memory is not None:
        return parse_size_bytes(args.memory, "--memory")
    beside = [
        name for name in ("weights", "memory_utilization", "reserve") if getattr(args, name) is not None
    ]
    if args.gpu is None:
        if beside:
            raise UsageError(f"--{beside[0].replace('_', '-')} needs --gpu, of whose memory it is a part")
        return None
    from kvcap.models.groups import LatentGroup
    from kvcap.models.hardware import find_gpu
    from kvcap.models.memory import sglang_memory, vllm_memory

    gpu, options = find_gpu(args.gpu), _memory_options(args, model)
    if args.engine == "vllm":
        return vllm_memory(gpu, deployment, options)
    latent = any(isinstance(group, LatentGroup) for group in model.attention.groups(include_draft=False))
    return sglang_memory(gpu, deployment, options, latent=latent)


def _memory_options(args: argparse.Namespace, model: Model) -> MemoryOptions:
    from kvcap.models.hardware import find_weights, weights
    from kvcap.models.memory import MemoryOptions
    from kvcap.units import parse_number, parse_size_bytes

    known = [entry for entry in weights() if entry.model == model.id]
    utilization = args.memory_utilization
    settings = MemoryOptions(
        weights_bytes=0,
        experts=any(entry.experts for entry in known),
        utilization=None if utilization is None else parse_number(utilization, "--memory-utilization"),
        reserve_bytes=None if args.reserve is None else parse_size_bytes(args.reserve, "--reserve"),
        step_tokens=args.max_num_batched_tokens if args.engine == "vllm" else None,
    )
    if args.weights is not None and args.weights[0].isdigit():
        return replace(settings, weights_bytes=parse_size_bytes(args.weights, "--weights"))
    found = find_weights(model.id, args.weights)
    size = int(found.weights_gib * 1024**3)
    return replace(settings, weights_bytes=size, weights_basis=cast("Basis", found.basis))


def vllm_options(args: argparse.Namespace) -> VllmOptions:
    """Return how vLLM is started."""
    from kvcap.models.pools import VllmOptions

    options = options_from(args, HybridOptions())
    return VllmOptions(
        max_model_len=args.max_model_len,
        max_num_batched_tokens=options.max_num_batched_tokens,
        async_scheduling=options.async_scheduling,
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

"""What a token costs: given, calibrated, or from a model and its deployment."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvcap.cli.options.values import whole_number

if TYPE_CHECKING:
    from fractions import Fraction

    from kvcap.models import ModelBytes, ModelBytesOptions

_LONGEST_PATH: Final = 255
"""Characters beyond which start-up lines are no name of a file."""


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add what turns tokens into bytes; :func:`model_bytes_options` collects the deployment."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="take bytes per token from this model: a name that `kvcap models` lists, or a config.json",
    )
    group.add_argument(
        "--calibrate",
        metavar="LINES",
        help="take bytes per token from start-up lines of vLLM or SGLang, or a file with them; with --model "
        "hold them against its pools",
    )
    group.add_argument(
        "--max-model-len",
        type=whole_number(1),
        metavar="N",
        help="with --calibrate of a hybrid: tokens of vLLM's longest request, where the lines do not say it",
    )
    add_deployment_options(group)


def add_deployment_options(group: argparse._ActionsContainer) -> None:
    """Add how a model is deployed: precisions, layout, parallelism, and where its facts come from."""
    group.add_argument(
        "--kv-precision",
        metavar="NAME",
        help="bf16, fp8, fp4 (nvfp4), mxfp8 or fp32 (default: the model's, else bf16)",
    )
    group.add_argument(
        "--kv-unquantized-layers",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="layers of full attention that stay at 16 bits beside a quantized cache (default: none)",
    )
    group.add_argument(
        "--sparse-backend",
        choices=["flashmla", "flashinfer", "trtllm"],
        help="kernel of sparse latent attention: flashmla packs fp8 rows of 656 bytes, the others keep 576 "
        "(default: flashmla)",
    )
    group.add_argument(
        "--indexer-precision",
        metavar="NAME",
        help="of an indexer's keys: bf16, fp8 or fp4 (default: the model's, else as the KV cache)",
    )
    group.add_argument(
        "--state-precision",
        metavar="NAME",
        help="of recurrent states: fp32 or bf16 (default: the model's)",
    )
    group.add_argument(
        "--include-draft-kv-cache", action="store_true", help="add the layers that draft tokens (MTP)"
    )
    group.add_argument(
        "--include-state",
        action="store_true",
        help="count one recurrent state and the replayed windows of every sequence",
    )
    group.add_argument(
        "--num-speculative-tokens",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="tokens drafted ahead: adds draft layers, and in vLLM what states keep for them (default: none)",
    )
    group.add_argument(
        "--engine-version",
        metavar="VERSION",
        help="of the engine, such as 0.5.22, where layouts changed (default: the newest that is known)",
    )
    group.add_argument(
        "--layout",
        choices=["logical", "sglang", "vllm"],
        help="logical counts elements; the others what that engine's memory pool takes, scales included "
        "(default: that of --engine, else logical)",
    )
    group.add_argument(
        "--tp",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="tensor-parallel ranks (default: %(default)s)",
    )
    group.add_argument(
        "--pp", type=whole_number(1), default=1, metavar="N", help="pipeline stages (default: %(default)s)"
    )
    group.add_argument(
        "--dcp",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="ranks of a replica that split the tokens of a sequence (decode context parallelism; default: "
        "%(default)s)",
    )
    group.add_argument(
        "--dp-attention",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="attention replicas among the tensor-parallel ranks, each with a cache of its own "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--scope",
        choices=["rank", "replica"],
        default="rank",
        help="whose bytes: those on one rank, or on all ranks of a replica together (default: %(default)s)",
    )
    group.add_argument(
        "--assume",
        metavar="KIND",
        help="take a config.json as this kind of attention in spite of fields that are not understood",
    )
    group.add_argument(
        "--models-file", metavar="FILE", help="more models, in the form of the catalog; they come first"
    )


def model_bytes_options(args: argparse.Namespace) -> ModelBytesOptions:
    """Return what :func:`add_deployment_options` collected.

    Raises
    ------
    UsageError
        If a precision is unknown or the parallel sizes do not divide.
    """
    from kvcap.models import ModelBytesOptions

    return ModelBytesOptions(
        kv_precision=args.kv_precision,
        indexer_precision=args.indexer_precision,
        state_precision=args.state_precision,
        include_draft_kv_cache=args.include_draft_kv_cache,
        include_state=args.include_state,
        layout=args.layout or _engine_layout(args),
        tp=args.tp,
        pp=args.pp,
        dp_attention=args.dp_attention,
        scope=args.scope,
        dcp=args.dcp,
        sparse_backend=args.sparse_backend or _gpu_backend(args),
        unquantized_layers=args.kv_unquantized_layers,
        num_speculative_tokens=args.num_speculative_tokens,
        engine_version=args.engine_version,
    )


def _engine_layout(args: argparse.Namespace) -> str:
    from kvcap.models import LAYOUTS

    engine = getattr(args, "engine", None)
    return engine if engine in LAYOUTS else "logical"


def _gpu_backend(args: argparse.Namespace) -> str | None:
    gpu = getattr(args, "gpu", None)
    if gpu is None or args.engine is None:
        return None
    from kvcap.models.hardware import default_sparse_backend, find_gpu

    return default_sparse_backend(find_gpu(gpu), args.engine)


def given_bytes_per_token(args: argparse.Namespace) -> Fraction | None:
    """Return the bytes per token that were given, or calibrated without a model."""
    from kvcap.errors import UsageError

    if args.kv_bytes_per_token is not None and (args.model is not None or args.calibrate is not None):
        other = "--model" if args.model is not None else "--calibrate"
        raise UsageError(
            f"--kv-bytes-per-token and {other} both say the bytes per token, expected one of them"
        )
    if args.calibrate is not None and args.model is None:
        from kvcap.models import calibrate

        return calibrate(start_up_text(args.calibrate))
    bytes_per_token: Fraction | None = args.kv_bytes_per_token
    return bytes_per_token


def given_model_bytes(args: argparse.Namespace) -> ModelBytes | None:
    """Return the bytes of the model that was given, in its deployment."""
    if args.model is None:
        return None
    from kvcap.models import model_bytes, resolve_model

    model = resolve_model(args.model, models_file=args.models_file, assume=args.assume)
    if args.calibrate is None:
        return model_bytes(model, model_bytes_options(args))
    from kvcap.models import calibrated, calibration, read_start_up
    from kvcap.models.pools import VllmOptions

    start_up = read_start_up(start_up_text(args.calibrate))
    deployment = replace(model_bytes_options(args), layout=args.layout or start_up.engine)
    options = VllmOptions(max_model_len=args.max_model_len)
    return calibrated(model_bytes(model, deployment), calibration(model, deployment, start_up, options))


def start_up_text(lines: str) -> str:
    """Return start-up lines as they were given, or those of the file that was named."""
    if "\n" in lines or len(lines) > _LONGEST_PATH or not Path(lines).is_file():
        return lines
    return Path(lines).read_text(encoding="utf-8", errors="replace")

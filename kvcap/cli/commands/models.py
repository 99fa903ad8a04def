"""``kvcap models``: bytes of a model's KV cache."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import (
    add_deployment_options,
    add_force,
    add_format,
    add_output,
    model_bytes_options,
    whole_number,
)
from kvcap.cli.options.model import start_up_text
from kvcap.cli.options.pools import (
    add_memory_options,
    add_pool_options,
    cache_memory,
    sglang_options,
    vllm_options,
)

if TYPE_CHECKING:
    from kvcap.models import Model, ModelBytesOptions
    from kvcap.models.pools import SglangPool, VllmPool

HELP: Final = "List the models, or say what a token of one costs: every term, logical and per engine."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a name of the catalog, a config.json or a directory with one (default: list the catalog)",
    )
    parser.add_argument(
        "--tokens",
        type=whole_number(1),
        metavar="N",
        help="length of the sequence (default: several, where the cost is not linear)",
    )
    add_deployment_options(parser.add_argument_group("deployment"))
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine",
        choices=["vllm", "sglang"],
        help="show what this engine makes of the model: groups of layers, blocks, and what it prints",
    )
    add_memory_options(engine)
    engine.add_argument(
        "--calibrate",
        metavar="LINES",
        help="hold the engine's start-up lines, or a file with them, against the model's pools",
    )
    add_pool_options(engine)
    add_format(parser)
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """List the catalog, or print one model's bytes."""
    from kvcap.cli.model_layout import CATALOG, MODEL, ModelAnswer
    from kvcap.cli.writer import text_output, write
    from kvcap.errors import UsageError
    from kvcap.models import calibration, known_models, model_bytes, read_start_up, resolve_model

    if args.calibrate is not None and args.model is None:
        raise UsageError("--calibrate needs a MODEL, against whose pools it holds the lines")
    if args.model is None:
        models = known_models(args.models_file)
        with text_output(args.output, force=args.force) as stream:
            write(CATALOG, models, args.format, stream)
        return 0
    model = resolve_model(args.model, models_file=args.models_file, assume=args.assume)
    start_up = None if args.calibrate is None else read_start_up(start_up_text(args.calibrate))
    if start_up is not None:
        args.engine = args.engine or start_up.engine
    deployment = model_bytes_options(args)
    cost = model_bytes(model, deployment)
    found = (
        None
        if start_up is None
        else calibration(model, deployment, start_up, vllm_options(args), sglang_options(args))
    )
    pool = _pool(args, model, deployment)
    memory = cache_memory(args, model, deployment)
    with text_output(args.output, force=args.force) as stream:
        write(MODEL, ModelAnswer(cost, args.tokens, pool, memory, found), args.format, stream)
    return 0


def _pool(
    args: argparse.Namespace, model: Model, deployment: ModelBytesOptions
) -> VllmPool | SglangPool | None:
    from kvcap.models.pools import sglang_pool, vllm_pool

    if args.engine == "vllm":
        return vllm_pool(model, deployment, vllm_options(args))
    return None if args.engine is None else sglang_pool(model, deployment, sglang_options(args))

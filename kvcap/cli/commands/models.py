"""``kvcap models``: bytes of a model's KV cache."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.cli.options import (
    add_deployment_options,
    add_force,
    add_output,
    model_bytes_options,
    whole_number,
)

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
    parser.add_argument(
        "--format",
        choices=["table", "json"],
        default="table",
        help="form of the answer (default: %(default)s)",
    )
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """List the catalog, or print one model's bytes."""
    from kvcap.cli.model_text import write_catalog, write_model
    from kvcap.cli.output import text_output
    from kvcap.models import known_models, model_bytes, resolve_model

    if args.model is None:
        models = known_models(args.models_file)
        with text_output(args.output, force=args.force) as stream:
            write_catalog(models, args.format, stream)
        return 0
    model = resolve_model(args.model, models_file=args.models_file, assume=args.assume)
    cost = model_bytes(model, model_bytes_options(args))
    with text_output(args.output, force=args.force) as stream:
        write_model(cost, args.tokens, args.format, stream)
    return 0

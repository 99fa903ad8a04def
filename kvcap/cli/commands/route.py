"""``kvcap route``: what-ifs of routing."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.analysis.routing.options import RouteOptions
from kvcap.cli.options import (
    add_force,
    add_format,
    add_model_options,
    add_output,
    add_quiet,
    add_reading_options,
    add_replay_options,
    read_options,
    replay_options,
)
from kvcap.cli.options.derived import add_fields, given

HELP: Final = "Deal recorded requests to several instances: local caches against one shared store."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    add_fields(parser.add_argument_group("routing"), RouteOptions)
    add_replay_options(parser, without=["chunk_tokens", "output_blocks", "max_capacity"])
    add_model_options(parser)
    add_reading_options(parser)
    add_format(parser, "csv")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Deal, and print the answer."""
    from kvcap.analysis.routing.answer import route
    from kvcap.cli.layouts import ROUTE
    from kvcap.cli.progress import Progress
    from kvcap.cli.writer import text_output, write

    options = RouteOptions(**given(args, RouteOptions))
    with text_output(args.output, force=args.force) as stream:
        with Progress(quiet=args.quiet) as progress:
            answer = route(
                args.trace, options, replay_options(args), reading=read_options(args), progress=progress
            )
        write(ROUTE, answer, args.format, stream, raw=args.raw)
    return 0

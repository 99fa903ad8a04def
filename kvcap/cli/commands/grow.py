"""``kvcap grow``: what if the traffic grows."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.analysis.growing.options import GrowOptions
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

HELP: Final = "Say what capacity and hit rates will be with more users, longer contexts or other growth."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    add_fields(parser.add_argument_group("growth"), GrowOptions)
    add_replay_options(parser, without=["chunk_tokens", "output_blocks", "max_capacity"])
    add_model_options(parser)
    add_reading_options(parser)
    add_format(parser, "csv")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Grow, and print the answer."""
    options = GrowOptions(**given(args, GrowOptions))

    from kvcap.analysis.growing.answer import grow_log
    from kvcap.cli.grow_layout import GROW
    from kvcap.cli.progress import Progress, announce_compilation
    from kvcap.cli.writer import text_output, write

    announce_compilation(quiet=args.quiet)
    with text_output(args.output, force=args.force) as stream:
        with Progress(quiet=args.quiet) as progress:
            answer = grow_log(
                args.trace, options, replay_options(args), reading=read_options(args), progress=progress
            )
        write(GROW, answer, args.format, stream, raw=args.raw)
    return 0

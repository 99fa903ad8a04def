"""``kvcap replay``: the main job."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.cli.options import (
    add_capacities,
    add_force,
    add_max_capacity,
    add_model_options,
    add_output,
    add_quiet,
    add_reading_options,
    add_replay_options,
    add_tokenizer_options,
    read_options,
    replay_options,
    tokenize_options,
)

HELP: Final = "Replay request logs: exact hit rates at every capacity, and what each request needed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    add_replay_options(parser)
    add_model_options(parser)
    add_capacities(parser)
    add_max_capacity(parser)
    add_reading_options(parser)
    add_tokenizer_options(parser)
    parser.add_argument("--out", metavar="DIR", help="keep the results as Parquet in this directory")
    parser.add_argument(
        "--format",
        choices=["table", "json", "csv"],
        default="table",
        help="form of the answer (default: %(default)s)",
    )
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Replay and print the answer."""
    options, reading = replay_options(args), read_options(args)
    has_tokenizer = args.tokenizer is not None or args.engine_url is not None
    tokenizing = tokenize_options(args) if has_tokenizer else None

    from kvcap.analysis import answer
    from kvcap.cli.answer_text import write_csv, write_json, write_text
    from kvcap.cli.output import text_output
    from kvcap.cli.progress import Progress
    from kvcap.replay import replay

    with text_output(args.output, force=args.force) as stream:
        with Progress(quiet=args.quiet) as progress:
            results = replay(
                args.trace,
                options,
                reading=reading,
                tokenizing=tokenizing,
                out=args.out,
                force=args.force,
                progress=progress,
            )
        with results:
            write = {"table": write_text, "json": write_json, "csv": write_csv}[args.format]
            write(answer(results, args.capacities), stream)
    return 0

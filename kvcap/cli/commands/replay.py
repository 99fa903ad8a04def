"""``kvcap replay``: the main job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, TextIO

from kvcap.cli.options import (
    add_force,
    add_format,
    add_model_options,
    add_output,
    add_policy_options,
    add_quiet,
    add_reading_options,
    add_replay_options,
    add_tokenizer_options,
    read_options,
    replay_options,
    tokenize_options,
)

if TYPE_CHECKING:
    from kvcap.options import ReplayOptions
    from kvcap.queries import Results

HELP: Final = "Replay request logs: exact hit rates at every capacity, and what each request needed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    add_replay_options(parser)
    add_model_options(parser)
    add_policy_options(parser)
    add_reading_options(parser)
    add_tokenizer_options(parser)
    parser.add_argument("--out", metavar="DIR", help="keep the results as Parquet in this directory")
    add_format(parser, "csv")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Replay and print the answer."""
    options, reading = replay_options(args), read_options(args)
    _check(args, options)
    has_tokenizer = args.tokenizer is not None or args.engine_url is not None
    tokenizing = tokenize_options(args) if has_tokenizer else None

    from kvcap.analysis import answer
    from kvcap.cli.answer_layout import ANSWER
    from kvcap.cli.progress import Progress, announce_compilation
    from kvcap.cli.writer import text_output, write
    from kvcap.replay import replay

    announce_compilation(quiet=args.quiet)
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
            found = answer(results, omit_underfilled=args.omit_underfilled)
            write(ANSWER, found, args.format, stream, raw=args.raw)
            if args.format == "table" and stream.isatty():
                _print_chart(results, stream)
    return 0


def _check(args: argparse.Namespace, options: ReplayOptions) -> None:
    from kvcap.errors import UsageError

    if args.omit_underfilled and not options.rules.policies:
        raise UsageError("--omit-underfilled goes with --policies or --engine")
    if args.request_hits and args.out is None:
        raise UsageError("--request-hits goes with --out")


def _print_chart(results: Results, stream: TextIO) -> None:
    """Print the curve, where there is one."""
    from kvcap.analysis.figures import load_figures
    from kvcap.cli.text_chart import curve_chart
    from kvcap.cli.writer import terminal_width

    figures = load_figures(results)
    if figures.ceiling_blocks.any():
        unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
        chart = curve_chart(figures, width=terminal_width(stream), unicode=unicode)
        print("", *chart, sep="\n", file=stream)

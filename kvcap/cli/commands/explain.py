"""``kvcap explain``: what the cache really did beside what was to be expected."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.analysis.explain.options import ExplainOptions
from kvcap.cli.options import (
    add_force,
    add_format,
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
from kvcap.cli.options.derived import add_fields, options_from
from kvcap.engines import ENGINES

HELP: Final = (
    "Say why prompt tokens that a log counts as cached or not were: capacity, TTL, router, restarts."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "trace",
        nargs="+",
        metavar="TRACE|RESULTS_DIR",
        help="logs in order of arrival, or what `kvcap replay --out` wrote with its trace; - is stdin",
    )
    group = parser.add_argument_group("explaining")
    add_fields(group, ExplainOptions)
    group.add_argument(
        "--engine",
        choices=list(ENGINES),
        help="also simulate this engine at the effective capacities, with blocks as it has them, and say how "
        "much of the gap that closes",
    )
    group.add_argument(
        "--by",
        choices=["hour", "instance", "session", "model"],
        action="append",
        default=[],
        help="also show observed and expected by this; may be given several times; JSON has all of them",
    )
    group.add_argument(
        "--max-unexplained",
        metavar="PERCENT",
        help="exit 1 if more than this share of the prompt tokens stays unexplained, such as 2%%",
    )
    group.add_argument("--out", metavar="DIR", help="keep the results, and the explanation, as Parquet here")
    add_replay_options(parser, without=["max_capacity", "touch_order", "target"])
    add_model_options(parser)
    add_reading_options(parser)
    add_tokenizer_options(parser)
    add_format(parser, "csv")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Explain, and print the answer."""
    from kvcap.analysis.explain.answer import explain
    from kvcap.cli.explain_layout import explain_layout
    from kvcap.cli.progress import Progress, announce_compilation
    from kvcap.cli.writer import text_output, write
    from kvcap.units import parse_percent

    most = None
    if args.max_unexplained is not None:
        most = parse_percent(args.max_unexplained, "--max-unexplained", zero_allowed=True)
    has_tokenizer = args.tokenizer is not None or args.engine_url is not None
    announce_compilation(quiet=args.quiet)
    with text_output(args.output, force=args.force) as stream:
        with Progress(quiet=args.quiet) as progress:
            answer = explain(
                args.trace,
                options_from(args, ExplainOptions()),
                replay_options(args),
                reading=read_options(args),
                tokenizing=tokenize_options(args) if has_tokenizer else None,
                out=args.out,
                force=args.force,
                progress=progress,
            )
        write(explain_layout(args.by), answer, args.format, stream, raw=args.raw)
    return 0 if most is None or answer.unexplained.share <= most else 1

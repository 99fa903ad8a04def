"""``kvcap convert``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from kvcap.cli.options import add_force, add_output, add_quiet, add_reading_options, read_options
from kvcap.cli.options.derived import add_fields, given
from kvcap.convert import ConvertOptions

HELP: Final = "Write one Parquet trace from one or many request logs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``kvcap convert``."""
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="a file, directory, glob or URL, or - for standard input"
    )
    add_output(parser, "the trace to write", required=True)
    add_fields(parser, ConvertOptions)
    add_reading_options(parser)
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was read."""
    from kvcap.cli.layouts import reading_lines
    from kvcap.cli.progress import Progress
    from kvcap.cli.writer import print_parts
    from kvcap.convert import convert

    with Progress(quiet=args.quiet) as progress:
        result = convert(
            args.inputs,
            args.output,
            read_options(args),
            ConvertOptions(**given(args, ConvertOptions), force=args.force),
            progress=progress,
        )
    if not args.quiet:
        print(f"{result.path}: {result.report.requests:,} requests ({result.kind})", file=sys.stderr)
        print_parts(reading_lines(result.report), sys.stderr)
    return 0

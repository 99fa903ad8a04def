"""``kvcap diff``: two replays side by side."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.cli.options import add_force, add_format, add_output
from kvcap.engines.rules import DEFAULT_CAPACITIES

HELP: Final = "Compare the results of two replays side by side."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("a", metavar="RESULTS_DIR_A", help="what `kvcap replay --out` wrote")
    parser.add_argument("b", metavar="RESULTS_DIR_B", help="the same of the other run")
    parser.add_argument(
        "--capacities",
        metavar="LIST",
        help=f"where to compare hit rates, as replay takes it (default: what both runs know of "
        f"{DEFAULT_CAPACITIES}; powers of two in tokens where one has no bytes per token)",
    )
    add_format(parser, "csv", what="comparison")
    add_output(parser, "write the comparison to this file (default: stdout)")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print."""
    from kvcap.analysis.diff import diff
    from kvcap.cli.layouts import DIFF
    from kvcap.cli.writer import text_output, write
    from kvcap.queries import open_results

    with open_results(args.a) as first, open_results(args.b) as second:
        found = diff(first, second, args.capacities)
    with text_output(args.output, force=args.force) as stream:
        write(DIFF, found, args.format, stream, raw=args.raw)
    return 0

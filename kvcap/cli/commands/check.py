"""``kvcap check``: exit 1 when the results of a replay break a limit, and 2 when that cannot be told."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from kvcap.analysis.check_options import CheckOptions
from kvcap.cli.options import add_format
from kvcap.cli.options.derived import add_fields, options_from

HELP: Final = "Hold the results of a replay against limits; exit 1 when one is broken, 2 on any error."
ERROR_CODE: Final = 2
"""Of every error, since 1 says that a limit is broken."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="RESULTS_DIR", help="what `kvcap replay --out` wrote")
    add_fields(parser.add_argument_group("limits"), CheckOptions)
    add_format(parser, "csv")


def run(args: argparse.Namespace) -> int:
    """Check and print every limit."""
    wanted = options_from(args, CheckOptions())

    from kvcap.analysis.check import check
    from kvcap.cli.layouts import CHECKS
    from kvcap.cli.writer import write
    from kvcap.queries import open_results

    with open_results(args.results) as results:
        checks = check(results, wanted)
    write(CHECKS, checks, args.format, sys.stdout, raw=args.raw)
    return 0 if all(one.holds for one in checks) else 1

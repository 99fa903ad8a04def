"""``kvcap check``: exit 1 when the results of a replay break a limit, and 2 when that cannot be told."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import add_format, whole_number

if TYPE_CHECKING:
    from kvcap.analysis.check import Limits

HELP: Final = "Hold the results of a replay against limits; exit 1 when one is broken, 2 on any error."
ERROR_CODE: Final = 2
"""Of every error, since 1 says that a limit is broken."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="RESULTS_DIR", help="what `kvcap replay --out` wrote")
    add_limits(parser)
    add_format(parser, "csv")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits; :func:`limits` collects them."""
    group = parser.add_argument_group("limits")
    group.add_argument("--max-p99", metavar="SIZE", help="largest p99 of the capacity that requests required")
    group.add_argument(
        "--min-hit-rate", metavar="RATE", help="smallest block hit rate at --capacity, above 0 to 1"
    )
    group.add_argument(
        "--min-token-hit-rate", metavar="RATE", help="smallest token hit rate at --capacity, above 0 to 1"
    )
    group.add_argument(
        "--capacity", metavar="SIZE", help="where the hit rates are taken (default: unlimited storage)"
    )
    group.add_argument(
        "--min-requests", type=whole_number(1), metavar="N", help="fewest requests, to notice a short log"
    )


def limits(args: argparse.Namespace) -> Limits:
    """Return what :func:`add_limits` collected.

    Raises
    ------
    UsageError
        If a value is not what its option expects.
    """
    from kvcap.analysis.check import Limits
    from kvcap.analysis.plan_options import parse_rate
    from kvcap.units import parse_capacity

    return Limits(
        max_p99=None if args.max_p99 is None else parse_capacity(args.max_p99, "--max-p99"),
        min_hit_rate=None if args.min_hit_rate is None else parse_rate(args.min_hit_rate, "--min-hit-rate"),
        min_token_hit_rate=None
        if args.min_token_hit_rate is None
        else parse_rate(args.min_token_hit_rate, "--min-token-hit-rate"),
        capacity=None if args.capacity is None else parse_capacity(args.capacity, "--capacity"),
        min_requests=args.min_requests,
    )


def run(args: argparse.Namespace) -> int:
    """Check and print every limit."""
    wanted = limits(args)

    from kvcap.analysis.check import check
    from kvcap.cli.layouts import CHECKS
    from kvcap.cli.writer import write
    from kvcap.queries import open_results

    with open_results(args.results) as results:
        checks = check(results, wanted)
    write(CHECKS, checks, args.format, sys.stdout, raw=args.raw)
    return 0 if all(one.holds for one in checks) else 1

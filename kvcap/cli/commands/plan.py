"""``kvcap plan``: how much storage, in which tiers, worth what, how sure."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import add_force, add_format, add_output, whole_number

if TYPE_CHECKING:
    from fractions import Fraction

    from kvcap.analysis.plan_options import PlanOptions

HELP: Final = "Plan storage from the results of a replay: capacity for a goal, tiers, worth, and trust."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="RESULTS_DIR", help="what `kvcap replay --out` wrote")
    add_plan_options(parser)
    add_format(parser, what="plan")
    add_output(parser, "write the plan to this file (default: stdout)")
    add_force(parser)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add what a plan is asked; :func:`plan_options` collects it."""
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--goal",
        nargs="+",
        default=["request-p99"],
        metavar=("KIND", "VALUE"),
        help="request-p99 (so many requests reach the run's target; any percentile), ceiling-share 95 "
        "(percent of the hits of unlimited storage) or hit-rate 0.6 (of blocks) (default: request-p99)",
    )
    group.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="NAME=SIZE[:PRICE]",
        help="a tier of storage and its price per GiB and month, the fastest first, such as dram=2TiB:4.5; "
        "may be given several times",
    )
    group.add_argument(
        "--inclusive",
        action="store_true",
        help="each tier also holds what the tiers above it hold (default: sizes add up)",
    )
    group.add_argument(
        "--prefill-tokens-per-second", metavar="N", help="prompt tokens that one GPU computes in a second"
    )
    group.add_argument("--gpu-hour", metavar="PRICE", help="price of an hour of that GPU, in any currency")
    group.add_argument(
        "--step",
        default="100GiB",
        metavar="SIZE",
        help="the further capacity to value (default: %(default)s)",
    )
    group.add_argument(
        "--requests-per-day",
        metavar="N",
        help="traffic to scale to (default: the trace's own, from timestamps)",
    )
    group.add_argument(
        "--window-seconds",
        type=whole_number(1),
        default=60,
        metavar="N",
        help="windows over which the p99 of reads is taken (default: %(default)s)",
    )


def plan_options(args: argparse.Namespace) -> PlanOptions:
    """Return what :func:`add_plan_options` collected.

    Raises
    ------
    UsageError
        If a value is not what its option expects.
    """
    from kvcap.analysis.plan_options import PlanOptions, parse_goal, parse_tier
    from kvcap.units import parse_capacity, parse_number

    def number(text: str | None, name: str) -> Fraction | None:
        return None if text is None else parse_number(text, name)

    return PlanOptions(
        goal=parse_goal(" ".join(args.goal)),
        tiers=tuple(parse_tier(text) for text in args.tier),
        inclusive=args.inclusive,
        prefill_tokens_per_second=number(args.prefill_tokens_per_second, "--prefill-tokens-per-second"),
        gpu_hour=number(args.gpu_hour, "--gpu-hour"),
        step=parse_capacity(args.step, "--step"),
        requests_per_day=number(args.requests_per_day, "--requests-per-day"),
        window_seconds=args.window_seconds,
    )


def run(args: argparse.Namespace) -> int:
    """Plan and print it."""
    options = plan_options(args)

    from kvcap.analysis.plan import plan
    from kvcap.cli.layouts import PLAN
    from kvcap.cli.writer import text_output, write
    from kvcap.queries import open_results

    with open_results(args.results) as results:
        planned = plan(results, options)
    with text_output(args.output, force=args.force) as stream:
        write(PLAN, planned, args.format, stream)
    return 0

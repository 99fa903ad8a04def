"""``kvcap plan``: how much storage, in which tiers, worth what, how sure."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.analysis.plan_options import PlanOptions
from kvcap.cli.options import add_force, add_format, add_output
from kvcap.cli.options.derived import add_fields, options_from

HELP: Final = "Plan storage from the results of a replay: capacity for a goal, tiers, worth, and trust."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="RESULTS_DIR", help="what `kvcap replay --out` wrote")
    add_plan_options(parser)
    add_format(parser, what="plan")
    add_output(parser, "write the plan to this file (default: stdout)")
    add_force(parser)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add what a plan is asked."""
    add_fields(parser.add_argument_group("plan"), PlanOptions)


def run(args: argparse.Namespace) -> int:
    """Plan and print it."""
    options = options_from(args, PlanOptions())

    from kvcap.analysis.plan import plan
    from kvcap.cli.layouts import PLAN
    from kvcap.cli.writer import text_output, write
    from kvcap.queries import open_results

    with open_results(args.results) as results:
        planned = plan(results, options)
    with text_output(args.output, force=args.force) as stream:
        write(PLAN, planned, args.format, stream)
    return 0

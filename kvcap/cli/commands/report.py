"""``kvcap report``: one HTML file to read and to forward."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kvcap.analysis.plan_options import PlanOptions
from kvcap.cli.commands.plan import add_plan_options
from kvcap.cli.options import add_force, add_output
from kvcap.cli.options.derived import options_from

if TYPE_CHECKING:
    from kvcap.report import Page

HELP: Final = "Write a report with charts: one HTML file that opens offline."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="RESULTS_DIR", help="what `kvcap replay --out` wrote")
    add_plan_options(parser)
    parser.add_argument("--title", metavar="TEXT", help="what was replayed (default: the names of the logs)")
    parser.add_argument("--png", metavar="DIR", help="also write each chart as PNG into this directory")
    add_output(parser, "write the report to this file (default: stdout)")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    options = options_from(args, PlanOptions())

    from kvcap.analysis.report import report
    from kvcap.cli.writer import text_output
    from kvcap.queries import open_results
    from kvcap.report import render

    with open_results(args.results) as results:
        page = report(results, options, title=args.title)
    with text_output(args.output, force=args.force) as stream:
        stream.write(render(page))
    if args.png is not None:
        _write_png(page, args.png, force=args.force)
    return 0


def _write_png(page: Page, directory: str, *, force: bool) -> None:
    from pathlib import Path

    from kvcap.report import chart_png
    from kvcap.writing import written_beside

    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for section in page.sections:
        for chart in section.charts:
            name = "_".join(chart.title.lower().split())
            with written_beside(target / f"{name}.png", force=force) as beside:
                beside.write_bytes(chart_png(chart))

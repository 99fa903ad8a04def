"""``kvcap route``: what-ifs of routing."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.cli.options import (
    add_force,
    add_format,
    add_model_options,
    add_output,
    add_quiet,
    add_reading_options,
    add_replay_options,
    read_options,
    replay_options,
    whole_number,
)

HELP: Final = "Deal recorded requests to several instances: local caches against one shared store."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    group = parser.add_argument_group("routing")
    group.add_argument(
        "--instances",
        default="16",
        metavar="LIST",
        help="comma list of numbers of instances to try (default: %(default)s)",
    )
    group.add_argument(
        "--policy",
        metavar="LIST",
        help="comma list of how to deal: round-robin, random, session (sticky), least-loaded, prefix "
        "(longest resident prefix, within a bound on loads) (default: all that the log allows)",
    )
    group.add_argument(
        "--capacity-per-instance",
        required=True,
        metavar="SIZE",
        help="each instance's cache, such as 640GiB or 5000blocks; the shared pool has the total",
    )
    group.add_argument(
        "--load-window-seconds",
        default="60",
        metavar="S",
        help="least-loaded and prefix: an instance's load is the prompt tokens dealt to it in so many "
        "seconds (default: %(default)s; all of the stream so far where a log has no timestamps)",
    )
    group.add_argument(
        "--max-load-percent",
        type=whole_number(100),
        default=125,
        metavar="P",
        help="prefix: an instance above this percentage of the mean load takes no request (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--seed", type=whole_number(0), default=0, metavar="N", help="of random (default: %(default)s)"
    )
    add_replay_options(parser, without=["chunk_tokens", "output_blocks", "max_capacity"])
    add_model_options(parser)
    add_reading_options(parser)
    add_format(parser, "csv")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Deal, and print the answer."""
    from kvcap.analysis.routing import RouteOptions, route
    from kvcap.cli.layouts import ROUTE
    from kvcap.cli.progress import Progress
    from kvcap.cli.writer import text_output, write
    from kvcap.units import parse_number

    options = RouteOptions(
        capacity_per_instance=args.capacity_per_instance,
        instances=_numbers(args.instances),
        policies=None if args.policy is None else tuple(name.strip() for name in args.policy.split(",")),
        load_window_seconds=parse_number(args.load_window_seconds, "--load-window-seconds"),
        max_load_percent=args.max_load_percent,
        seed=args.seed,
    )
    with text_output(args.output, force=args.force) as stream:
        with Progress(quiet=args.quiet) as progress:
            answer = route(
                args.trace, options, replay_options(args), reading=read_options(args), progress=progress
            )
        write(ROUTE, answer, args.format, stream, raw=args.raw)
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    from kvcap.errors import UsageError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--instances is {text!r}, expected whole numbers such as 8,16") from None

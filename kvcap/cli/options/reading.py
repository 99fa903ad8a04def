"""How logs are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kvcap.cli.options.values import whole_number

if TYPE_CHECKING:
    from kvcap.formats.base import ReadOptions


_NAMED_FIELDS: Final = {
    "session": "the session",
    "time": "the time",
    "model": "the model",
    "output": "the number of generated tokens",
    "cached": "how many prompt tokens came from a cache",
    "instance": "who served the request",
    "queue": "the time from arrival to the end of waiting",
    "ttft": "the time from arrival to the first token",
    "duration": "the time from arrival to the end",
}


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how logs are read; :func:`read_options` collects them."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--input-format",
        metavar="NAME",
        help="how to read the log, as `kvcap formats` lists them (default: detected from the content)",
    )
    group.add_argument(
        "--block-size",
        "--page-size",
        dest="block_size",
        type=whole_number(1),
        metavar="TOKENS",
        help="tokens per block: 64 by default for token ids; for hash ids only where a record declares "
        "none, since a declared size wins",
    )
    group.add_argument(
        "--pool", metavar="COLUMN", help="one cache per value of this column (default: one cache)"
    )
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="carry this scalar column of the log along; may be given several times",
    )
    group.add_argument(
        "--skip-bad",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="leave out up to N bad records and count them (default: %(default)s)",
    )
    group.add_argument(
        "--max-requests",
        type=whole_number(1),
        metavar="N",
        help="stop after N requests, for a first look (default: all)",
    )
    group.add_argument(
        "--session-mode",
        choices=["cumulative", "delta"],
        help="whether the prompt of a session's later row repeats the earlier ones or only adds to them; "
        "asked for where a log can mean both",
    )
    group.add_argument(
        "--timestamp-unit",
        choices=["s", "ms", "us", "ns"],
        help="unit of numeric timestamps (default: detected)",
    )
    group.add_argument(
        "--sort-by-time",
        action="store_true",
        help="order requests by timestamp, stably (default: file order)",
    )
    for name, what in _NAMED_FIELDS.items():
        group.add_argument(
            f"--{name}-field",
            metavar="PATH",
            help=f"the field, as usage.cached, that holds {what} (default: as the log's kind has it)",
        )
    group.add_argument(
        "--duration-unit",
        choices=["s", "ms", "us", "ns"],
        help="unit of the queue, ttft and duration fields (default: detected)",
    )
    group.add_argument(
        "--timestamp-is",
        choices=["start", "end"],
        default="start",
        help="end for logs that are stamped when a request ends: its duration is taken off, and requests are "
        "put in the order of their arrival (default: %(default)s)",
    )
    group.add_argument(
        "--threads",
        type=whole_number(1),
        metavar="N",
        help="threads that read and replay (default: one per core)",
    )


def read_options(args: argparse.Namespace) -> ReadOptions:
    """Return what :func:`add_reading_options` collected."""
    from kvcap.formats.base import ReadOptions
    from kvcap.formats.fields import FieldOptions

    named = {name: getattr(args, f"{name}_field") for name in _NAMED_FIELDS}
    return ReadOptions(
        input_format=args.input_format,
        block_size=args.block_size,
        pool=args.pool,
        keep=tuple(args.keep),
        skip_bad=args.skip_bad,
        max_requests=args.max_requests,
        session_mode=args.session_mode,
        timestamp_unit=args.timestamp_unit,
        sort_by_time=args.sort_by_time,
        fields=FieldOptions(**named, duration_unit=args.duration_unit, timestamp_is=args.timestamp_is),
        threads=args.threads,
    )

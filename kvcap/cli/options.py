"""Every option that more than one command takes, defined once: name, default and help."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of an option's whole number, at least ``least``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number from {least}")
        return value

    return parse


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
    group.add_argument(
        "--threads",
        type=whole_number(1),
        metavar="N",
        help="workers that read and parse (default: one per core)",
    )


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress and no notices on stderr")


def add_output(parser: argparse.ArgumentParser, *, required: bool, what: str) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=what)

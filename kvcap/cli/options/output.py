"""Where an answer goes."""

from __future__ import annotations

import argparse


def add_format(parser: argparse.ArgumentParser, *forms: str, what: str = "answer") -> None:
    """Add ``--format`` with ``table``, ``json``, ``html`` and further forms; for CSV also ``--raw``."""
    parser.add_argument(
        "--format",
        choices=["table", "json", *forms, "html"],
        default="table",
        help=f"form of the {what} (default: %(default)s)",
    )
    if "csv" in forms:
        parser.add_argument(
            "--raw",
            action="store_true",
            help="csv: leave texts as they are (default: a ' before what a spreadsheet would run, since it "
            "begins with = + - or @)",
        )


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress and no notices on stderr")


def add_output(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=what)

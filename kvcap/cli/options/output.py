"""Where an answer goes."""

from __future__ import annotations

import argparse


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress and no notices on stderr")


def add_output(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=what)

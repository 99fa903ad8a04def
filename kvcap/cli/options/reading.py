"""How logs are read."""

from __future__ import annotations

import argparse

from kvcap.cli.options.derived import add_fields, options_from
from kvcap.formats.options import ReadOptions


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how logs are read; :func:`read_options` collects them."""
    add_fields(parser.add_argument_group("reading"), ReadOptions)


def read_options(args: argparse.Namespace) -> ReadOptions:
    """Return what :func:`add_reading_options` collected."""
    return options_from(args, ReadOptions())

"""``kvcap formats``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

HELP: Final = "List the log formats that kvcap reads, and those that it refuses with a reason."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: none."""


def run(args: argparse.Namespace) -> int:
    """Print one line per format."""
    from kvcap.cli.layouts import dialect_parts
    from kvcap.cli.writer import print_parts
    from kvcap.formats.registry import DIALECTS

    print_parts(dialect_parts(DIALECTS), sys.stdout)
    return 0

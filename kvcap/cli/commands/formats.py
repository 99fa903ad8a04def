"""``kvcap formats``."""

from __future__ import annotations

import argparse
from typing import Final

HELP: Final = "List the log formats that kvcap reads, and those that it refuses with a reason."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: none."""


def run(args: argparse.Namespace) -> int:
    """Print one line per format."""
    from kvcap.formats.registry import DIALECTS

    width = max(len(dialect.name) for dialect in DIALECTS)
    for refused in (False, True):
        chosen = [dialect for dialect in DIALECTS if (dialect.refusal is not None) == refused]
        if refused and chosen:
            print("\nRecognized, but no log of these can drive a replay:")
        for dialect in chosen:
            print(f"{dialect.name:<{width}}  {dialect.summary}")
    return 0

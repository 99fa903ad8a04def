"""The command line: arguments in, one line per error out, no algorithms."""

from kvcap.cli.main import main

__all__ = ["main"]

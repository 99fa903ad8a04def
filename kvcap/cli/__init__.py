"""The command line: arguments in, one line per error out, no algorithms."""

from kvcap.cli.main import main, run_process

__all__ = ["main", "run_process"]

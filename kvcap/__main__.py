"""Run the command line as ``python -m kvcap``."""

import sys

from kvcap.cli import run_process

if __name__ == "__main__":
    sys.exit(run_process())

"""Run the command line as ``python -m kvcap``."""

import sys

from kvcap.cli import main

if __name__ == "__main__":
    sys.exit(main())

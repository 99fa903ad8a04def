"""Run the main job on a trace as if for the first time, and print the modules of all that is compiled.

NUMBA_CACHE_DIR=$(mktemp -d) python tests/guards/first_run.py TRACE
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from numba.core import event

import kvcap


class Compilations(event.Listener):
    """Collects the functions that are compiled, by module."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()

    def on_start(self, event: Any) -> None:
        self.modules[event.data["dispatcher"].py_func.__module__] += 1

    def on_end(self, event: Any) -> None:
        pass


def main() -> None:
    """Print one JSON object."""
    seen = Compilations()
    event.register("numba:compile", seen)
    kvcap.replay(sys.argv[1], kvcap.ReplayOptions()).close()
    print(json.dumps(seen.modules))


if __name__ == "__main__":
    main()

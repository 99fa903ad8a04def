"""Progress on stderr: only on a terminal, only for what takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

_SILENT_SECONDS: Final = 1.0
_INTERVAL_SECONDS: Final = 0.2


def announce_compilation(*, quiet: bool) -> None:
    """Say on a terminal why a first run takes seconds longer, and anywhere why every run does."""
    if quiet:
        return
    from kvcap.kernels.reuse_runs import scanner_is_compiled, scanner_is_kept

    if not scanner_is_kept():
        print(
            "kvcap: no directory for compiled kernels can be written, so every run compiles them: set "
            "NUMBA_CACHE_DIR to one",
            file=sys.stderr,
        )
    elif sys.stderr.isatty() and not scanner_is_compiled():
        print("kvcap: compiling kernels for this machine; later runs start at once", file=sys.stderr)


class Progress:
    """A line on stderr that says how many requests have passed.

    Parameters
    ----------
    quiet
        Say nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._enabled = not quiet and sys.stderr.isatty()
        self._started = time.monotonic()
        self._next = self._started + _SILENT_SECONDS
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, n_requests: int) -> None:
        """Show the number of requests so far."""
        now = time.monotonic()
        if self._enabled and now >= self._next:
            rate = n_requests / (now - self._started)
            print(f"\r\x1b[K{n_requests:,} requests ({rate:,.0f}/s)", end="", file=sys.stderr, flush=True)
            self._next = now + _INTERVAL_SECONDS
            self._shown = True

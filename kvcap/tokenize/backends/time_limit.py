"""An end to Python code that would run for ever: a template is a program, and its loops have no other bound.

Threads cannot be stopped from outside, but the interpreter raises what another thread asks it to at the next
bytecode. Code that loops in bytecode ends so; a single call into C does not.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_POLL_S: Final = 0.1


class TookTooLongError(Exception):
    """Code ran into its time limit."""


class _Watch:
    """Raises :class:`TookTooLongError` in threads whose time is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[int, float] = {}
        self._runs = False

    def begin(self, thread: int, deadline: float) -> None:
        with self._lock:
            self._deadlines[thread] = deadline
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._watch, name="kvcap-time-limit", daemon=True).start()

    def end(self, thread: int) -> None:
        with self._lock:
            self._deadlines.pop(thread, None)
            # What was asked for a moment ago must not be raised in what follows.
            _raise_in(thread, None)

    def _watch(self) -> None:
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                if not self._deadlines:
                    self._runs = False
                    return
                now = time.monotonic()
                for thread, deadline in self._deadlines.items():
                    if now >= deadline:
                        # Asked again at every look: code may swallow it once.
                        _raise_in(thread, TookTooLongError)


_WATCH: Final = _Watch()


def _raise_in(thread: int, error: type[Exception] | None) -> None:
    value = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TookTooLongError` in the block when it takes longer; limits do not nest."""
    thread = threading.get_ident()
    _WATCH.begin(thread, time.monotonic() + seconds)
    try:
        yield
    finally:
        _WATCH.end(thread)

"""An end to Python code that would run for ever: a template is a program, and its loops have no other bound.

Threads cannot be stopped from outside, but the interpreter raises what another thread asks it to at the next
bytecode. Code that loops in bytecode ends so; a single call into C does not. The loops have to stand in
functions that the limited block calls: CPython 3.13 raises from some jumps outside of the block they are in.
"""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType
from typing import Final

_POLL_S: Final = 0.1
_MOST_ASKED: Final = 50
"""How often a thread is asked to end: code may swallow the error, but nothing is asked for ever."""


class TookTooLongError(Exception):
    """Code ran into its time limit."""


class _Watch:
    """Raises :class:`TookTooLongError` in threads whose time is over, at most once a look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[int, float] = {}
        self._asked: dict[int, int] = {}
        self._runs = False

    def begin(self, thread: int, deadline: float) -> None:
        with self._lock:
            self._deadlines[thread] = deadline
            self._asked[thread] = 0
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._watch, name="kvcap-time-limit", daemon=True).start()

    def end(self, thread: int) -> None:
        with self._lock:
            self._deadlines.pop(thread, None)
        if self._asked.pop(thread, 0):
            # What was asked for a moment ago is raised in this loop, and not in what follows. To take it back
            # would leave the interpreter looking for it at every step.
            for _ in range(1000):
                pass

    def _watch(self) -> None:
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                if not self._deadlines:
                    self._runs = False
                    return
                now = time.monotonic()
                for thread, deadline in list(self._deadlines.items()):
                    if now < deadline:
                        continue
                    self._asked[thread] += 1
                    if self._asked[thread] >= _MOST_ASKED:
                        del self._deadlines[thread]
                    error = ctypes.py_object(TookTooLongError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


_WATCH: Final = _Watch()


class time_limit:  # noqa: N801 - used as a function
    """Raise :class:`TookTooLongError` in the block when it takes longer; limits do not nest.

    Parameters
    ----------
    seconds
        How long the block may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread = threading.get_ident()

    def __enter__(self) -> None:
        _WATCH.begin(self._thread, time.monotonic() + self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The error may come up here as well, once: the next one is a look away.
        try:
            _WATCH.end(self._thread)
        except TookTooLongError:
            _WATCH.end(self._thread)
            if kind is None:
                raise

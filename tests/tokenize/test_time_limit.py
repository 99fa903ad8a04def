"""Code that would run for ever ends, and what follows it is left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from counting import instructions

from kvcap.tokenize.backends.time_limit import TookTooLongError, time_limit


def endless() -> None:
    while True:
        pass


def stubborn() -> None:
    try:
        endless()
    except Exception:
        endless()


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def limited(work: Callable[[], None], seconds: float) -> None:
    with time_limit(seconds):
        work()


def test_a_loop_without_end_ends() -> None:
    begin = time.monotonic()
    with pytest.raises(TookTooLongError):
        limited(endless, 0.2)
    assert time.monotonic() - begin < 5


def test_code_that_swallows_the_error_once_ends_all_the_same() -> None:
    with pytest.raises(TookTooLongError):
        limited(stubborn, 0.1)


def test_what_is_in_time_is_left_alone_and_so_is_what_follows() -> None:
    for _ in range(200):
        with time_limit(0.05):
            sum(range(100))
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass


def test_each_thread_has_its_own_limit() -> None:
    ended: list[str] = []

    def loop(name: str, seconds: float, work: float) -> None:
        try:
            with time_limit(seconds):
                busy(work)
            ended.append(f"{name} done")
        except TookTooLongError:
            ended.append(f"{name} stopped")

    threads = [
        threading.Thread(target=loop, args=("long", 0.1, 30.0)),
        threading.Thread(target=loop, args=("short", 20.0, 0.3)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(ended) == ["long stopped", "short done"]


def test_the_interpreter_is_as_it_was_after_a_limit() -> None:
    """One that is asked and taken back leaves CPython 3.11 looking for it at every step, tracers for ever."""
    with time_limit(5.0):
        pass
    with pytest.raises(TookTooLongError):
        limited(endless, 0.1)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: instructions(lambda: seen.append("done")), daemon=True)
    thread.start()
    thread.join(10)
    assert seen == ["done"]
    assert instructions(lambda: len(seen))[0] == 1

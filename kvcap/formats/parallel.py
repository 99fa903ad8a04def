"""Map over a stream in threads, in order and in bounded memory."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

READING_THREADS: Final = 2
"""So many are busy with reading a log, in which whoever draws its batches takes part; more are to spare."""

_MOST_ITEMS_AHEAD: Final = 3
_SECONDS_TO_STOP: Final = 1.0
"""How long the end waits for threads; one that reads from a pipe may never come back."""


def working_threads(asked: int | None) -> int:
    """Return the number of threads that was asked for, else that of cores that this process may use."""
    if asked is not None:
        return asked
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Generator[_Result, None, None]:
    """Yield ``function(item)`` for every item, in order, computed by ``threads`` threads.

    The caller's is one of them: it takes part where it would have to wait otherwise, so no more threads than
    that ever compete for cores. Whoever computes an item draws it, one at a time: reading and decompression
    go on while others compute. At most twice as many items as threads are under way. Closing the iterator
    stops the threads.
    """
    if threads == 1:
        yield from map(function, items)
        return
    work = _SharedWork(function, iter(items), most_items=2 * threads)
    with _threads(work, threads - 1):
        yield from work.results(takes_part=True)


def ahead(items: Iterable[_Item], spare_threads: int) -> Generator[_Item, None, None]:
    """Yield items that a spare thread draws meanwhile, a few ahead; without one, as they are."""
    if spare_threads < 1:
        yield from items
        return
    work = _SharedWork(_same, iter(items), most_items=_MOST_ITEMS_AHEAD)
    with _threads(work, 1):
        yield from work.results(takes_part=False)


def close_batches(batches: Iterator[object] | None) -> None:
    """Close a generator, unless a thread is drawing from it, which stops after that."""
    if batches is not None:
        with suppress(ValueError):
            batches.close()  # type: ignore[attr-defined]


def _same(item: _Item) -> _Item:
    return item


@contextmanager
def _threads(work: _SharedWork[_Item, _Result], n_threads: int) -> Iterator[None]:
    """Let threads work, and stop them in the end."""
    # Daemons, since one may wait for standard input for ever.
    workers = [
        threading.Thread(target=work.work, name=f"kvcap-work-{number}", daemon=True)
        for number in range(n_threads)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        work.stop()
        deadline = time.monotonic() + _SECONDS_TO_STOP
        for worker in workers:
            worker.join(timeout=max(0.0, deadline - time.monotonic()))


class _SharedWork(Generic[_Item, _Result]):
    """Items that several threads draw and compute, and the results in the order in which they were drawn."""

    def __init__(self, function: Callable[[_Item], _Result], items: Iterator[_Item], most_items: int) -> None:
        self._function = function
        self._items = items
        self._most_items = most_items
        self._pending: deque[Future[_Result]] = deque()
        self._is_drawing = self._is_ended = False
        self._changed = threading.Condition()

    def work(self) -> None:
        """Draw and compute until nothing is left or wanted."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended or self._may_draw())
                if self._is_ended:
                    return
                self._is_drawing = True
            self._draw_and_compute()

    def results(self, *, takes_part: bool) -> Iterator[_Result]:
        """Yield the results, computing some of them where that is wanted."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_next_known() or (takes_part and self._may_draw()))
                if self._is_next_known():
                    if not self._pending:
                        return
                    future = self._pending.popleft()
                    self._changed.notify_all()
                else:
                    future = None
                    self._is_drawing = True
            if future is None:
                self._draw_and_compute()
            else:
                yield future.result()

    def stop(self) -> None:
        """Draw no more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def _may_draw(self) -> bool:
        has_room = len(self._pending) < self._most_items
        return has_room and not self._is_drawing and not self._is_ended

    def _is_next_known(self) -> bool:
        """Whether the next result is there, or it is certain that there is none."""
        return self._pending[0].done() if self._pending else self._is_ended

    def _draw_and_compute(self) -> None:
        """Draw an item and compute it; what goes wrong comes out in its place."""
        future: Future[_Result] = Future()
        try:
            item = next(self._items)
        except StopIteration:
            self._drawn(None, is_last=True)
            return
        except BaseException as error:
            future.set_exception(error)
            self._drawn(future, is_last=True)
            return
        self._drawn(future, is_last=False)
        try:
            future.set_result(self._function(item))
        except BaseException as error:
            future.set_exception(error)
        with self._changed:
            self._changed.notify_all()

    def _drawn(self, future: Future[_Result] | None, *, is_last: bool) -> None:
        with self._changed:
            self._is_drawing = False
            self._is_ended = self._is_ended or is_last
            if future is not None:
                self._pending.append(future)
            self._changed.notify_all()

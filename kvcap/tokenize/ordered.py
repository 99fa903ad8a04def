"""Work in parallel, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

ITEMS_PER_WORKER: Final = 8
"""Items in flight per worker: enough that a slow one does not idle the others, few enough for memory."""


def ordered_map(
    work: Callable[[_Item], _Result], items: Iterable[_Item], workers: int
) -> Generator[tuple[_Item, Callable[[], _Result]], None, None]:
    """Yield each item with a function that gives its result or raises its error, in the order of the items.

    Parameters
    ----------
    work
        Called once per item, on any of ``workers`` threads.
    items
        Read on the caller's thread, at most ``workers * ITEMS_PER_WORKER`` ahead of what was yielded.
    workers
        Threads; 1 calls ``work`` on the caller's.

    Notes
    -----
    When the consumer stops early, what has not begun is dropped and what has is waited for.
    """
    if workers == 1:
        for item in items:
            yield item, _bound(work, item)
        return
    executor = ThreadPoolExecutor(workers, thread_name_prefix="kvcap-tokenize")
    flight: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        for item in items:
            flight.append((item, executor.submit(work, item)))
            if len(flight) >= workers * ITEMS_PER_WORKER:
                first, future = flight.popleft()
                yield first, future.result
        while flight:
            first, future = flight.popleft()
            yield first, future.result
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _bound(work: Callable[[_Item], _Result], item: _Item) -> Callable[[], _Result]:
    return lambda: work(item)

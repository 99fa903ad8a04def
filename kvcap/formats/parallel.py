"""Map over a stream in threads, in order and in bounded memory."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Generator[_Result, None, None]:
    """Yield ``function(item)`` for every item, in order, computed by ``threads`` threads.

    A thread of its own draws the items (so that reading and decompression go on meanwhile), and at most
    ``threads + 2`` are under way. With one thread everything happens in the caller's. Closing the
    iterator stops the threads.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pending: queue.Queue[Future[_Result] | BaseException | None] = queue.Queue(maxsize=threads + 1)
    stopped = threading.Event()
    executor = ThreadPoolExecutor(threads, thread_name_prefix="kvcap-parse")
    # A daemon, since it may wait for standard input for ever.
    feeder = threading.Thread(
        target=_feed, args=(function, items, executor, pending, stopped), name="kvcap-read", daemon=True
    )
    feeder.start()
    try:
        while True:
            future = pending.get()
            if future is None:
                return
            if isinstance(future, BaseException):
                raise future
            yield future.result()
    finally:
        stopped.set()
        executor.shutdown(wait=True, cancel_futures=True)
        feeder.join(timeout=1.0)


def ahead(items: Iterable[_Item], threads: int) -> Generator[_Item, None, None]:
    """Yield items that a thread of its own draws meanwhile, a few ahead; with one thread, as they are."""
    return map_in_order(_same, items, threads)


def close_batches(batches: Iterator[object] | None) -> None:
    """Close a generator, unless a thread is drawing from it, which stops after that."""
    if batches is not None:
        with suppress(ValueError):
            batches.close()  # type: ignore[attr-defined]


def _same(item: _Item) -> _Item:
    return item


def _feed(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    executor: ThreadPoolExecutor,
    pending: queue.Queue[Future[_Result] | BaseException | None],
    stopped: threading.Event,
) -> None:
    def put(entry: Future[_Result] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                pending.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return

    try:
        for item in items:
            if stopped.is_set():
                return
            put(executor.submit(function, item))
        put(None)
    except BaseException as error:
        if not stopped.is_set():
            put(error)

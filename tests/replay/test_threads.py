"""Threads change when things happen, never what comes out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest
from fleet_logs import write_fleet

import kvcap
from kvcap.errors import TraceError
from kvcap.formats.parallel import ahead, close_batches
from kvcap.kernels._jit import kernel_threads


@pytest.mark.parametrize("pool", [None, "instance"])
def test_results_do_not_depend_on_threads(pool: str | None, tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", requests=200)
    tables = []
    for threads in (1, 2, 5):
        reading = kvcap.ReadOptions(pool=pool, threads=threads)
        with kvcap.replay(str(logs), kvcap.ReplayOptions.of(block_size=4), reading=reading) as results:
            tables.append([results.table(name) for name in ("requests", "reuse_runs", "curve")])
    assert tables[0] == tables[1] == tables[2]


def test_parallel_kernels_keep_to_the_threads_they_are_given() -> None:
    before = numba.get_num_threads()
    with kernel_threads(1):
        assert numba.get_num_threads() == 1
        with kernel_threads(10**6):
            assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS
    assert numba.get_num_threads() == before


def test_items_are_drawn_ahead_in_order_and_not_without_bound() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    stream = ahead(items(), 1)
    assert next(stream) == 0
    time.sleep(0.3)
    assert 1 < len(drawn) < 20
    assert list(stream) == list(range(1, 100))


def test_an_error_of_the_source_comes_out_where_it_happened() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise TraceError("log.jsonl", "is damaged")

    stream = ahead(items(), 1)
    assert next(stream) == 1
    with pytest.raises(TraceError, match="is damaged"):
        next(stream)


def test_stopping_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    stream = ahead(iter(range(10**9)), 1)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_closing_batches_that_a_thread_draws_from_waits_for_nobody() -> None:
    entered, leave = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        entered.set()
        leave.wait(10)
        yield 1

    batches = items()
    thread = threading.Thread(target=lambda: next(batches))
    thread.start()
    entered.wait(10)
    close_batches(batches)
    leave.set()
    thread.join()
    close_batches(batches)
    assert list(batches) == []

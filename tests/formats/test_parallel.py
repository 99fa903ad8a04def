"""Mapping in threads: the order, the errors and the bounds of mapping in one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.formats.parallel import map_in_order

THREADS = pytest.mark.parametrize("threads", [1, 2, 3, 8])
MOST_SECONDS = 0.002


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, MOST_SECONDS), max_size=12),
    st.lists(st.floats(0, MOST_SECONDS), min_size=12, max_size=12),
    st.floats(0, MOST_SECONDS),
    st.integers(1, 5),
)
def test_results_come_in_order_however_long_each_step_takes(
    computing: list[float], drawing: list[float], using: float, threads: int
) -> None:
    def items() -> Iterator[int]:
        for number, seconds in zip(range(len(computing)), drawing, strict=False):
            time.sleep(seconds)
            yield number

    def square(number: int) -> int:
        time.sleep(computing[number])
        return number**2

    found = []
    for result in map_in_order(square, items(), threads):
        time.sleep(using)
        found.append(result)
    assert found == [number**2 for number in range(len(computing))]


@THREADS
def test_an_error_comes_out_in_the_place_of_its_result(threads: int) -> None:
    def items() -> Iterator[int]:
        yield from range(7)
        raise OSError("the disk is gone")

    def reciprocal(number: int) -> float:
        return 1 / (number - 5)

    results = map_in_order(reciprocal, items(), threads)
    assert [next(results) for _ in range(5)] == [1 / (number - 5) for number in range(5)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    whole = map_in_order(str, items(), threads)
    assert [next(whole) for _ in range(7)] == list("0123456")
    with pytest.raises(OSError, match="the disk is gone"):
        next(whole)


@THREADS
def test_as_many_threads_compute_as_are_asked_for_and_the_callers_is_one(threads: int) -> None:
    all_are_here = threading.Barrier(threads)
    names = set()

    def meet(number: int) -> int:
        names.add(threading.current_thread().name)
        if number < threads:
            all_are_here.wait(10)
        return number

    assert list(map_in_order(meet, range(50), threads)) == list(range(50))
    assert threading.current_thread().name in names
    assert len(names) == threads


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_no_more_than_twice_as_many_items_as_threads_are_under_way(threads: int) -> None:
    drawn: list[int] = []
    leave = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    def wait_for_the_first(number: int) -> int:
        if number == 0:
            leave.wait(10)
        return number

    results = map_in_order(wait_for_the_first, items(), threads)
    timer = threading.Timer(0.2, leave.set)
    timer.start()
    assert next(results) == 0
    timer.join()
    time.sleep(0.1)
    assert len(drawn) <= 2 * threads + 1
    assert list(results) == list(range(1, 100))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_closing_stops_all_threads(threads: int) -> None:
    before = threading.active_count()
    results = map_in_order(str, iter(range(10**9)), threads)
    assert next(results) == "0"
    results.close()
    assert threading.active_count() == before

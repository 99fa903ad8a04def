"""Axes: round labels, ends that hold the data, positions between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcap.report import linear_axis, linear_size_axis, size_axis, time_axis
from kvcap.report.axes import count_text, percent_text, size_text, times_text

GIB = 1 << 30


@given(high=st.floats(1e-6, 1e15), most=st.integers(2, 12))
def test_a_linear_axis_holds_its_values_and_labels_round_ones(high: float, most: int) -> None:
    axis = linear_axis("y", high, count_text)
    values = [value for value, _ in axis.ticks(most)]
    assert axis.low == 0 == values[0]
    assert high < axis.high <= 3 * high
    assert 2 <= len(values) <= most + 2
    assert values[-1] <= axis.high * (1 + 1e-9)


def test_labels_of_an_axis_from_1_are_round_all_the_same() -> None:
    labels = [label for _, label in linear_axis("y", 27.1, times_text, low=1.0).ticks(5)]
    assert labels == ["10x", "20x", "30x"]


def test_a_size_axis_is_labelled_at_powers_of_two() -> None:
    axis = size_axis("x", 3 * GIB, 900 * GIB, in_bytes=True)
    assert [label for _, label in axis.ticks(4)] == ["4 GiB", "16 GiB", "64 GiB", "256 GiB"]
    assert axis.position(3 * GIB) == 0
    assert axis.position(900 * GIB) == 1
    assert axis.position(1) == 0


def test_an_axis_of_blocks_is_labelled_at_powers_of_ten() -> None:
    axis = size_axis("x", 1, 25_000, in_bytes=False)
    assert [label for _, label in axis.ticks(9)] == ["1", "10", "100", "1 k", "10 k"]


def test_sizes_from_0_are_labelled_in_their_own_unit() -> None:
    labels = [label for _, label in linear_size_axis("y", 3.3 * 1024 * GIB).ticks(4)]
    assert labels == ["0 B", "1 TiB", "2 TiB", "3 TiB", "4 TiB"]


def test_time_is_said_as_a_clock_or_since_the_trace_began() -> None:
    noon = 1_764_504_000
    clock = [label for _, label in time_axis("t", noon, noon + 7200).ticks(5)]
    assert clock == ["12:00", "12:30", "13:00", "13:30", "14:00"]
    assert [label for _, label in time_axis("t", 0, 7200).ticks(5)][:3] == ["0 h", "0:30 h", "1 h"]
    assert time_axis("t", noon, noon + 60).text(noon + 5) == "2025-11-30 12:00:05"
    assert time_axis("t", 0, 60).text(3725) == "1:02:05 into the trace"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size_text(1536 * GIB), "1.5 TiB"),
        (size_text(640 * GIB), "640 GiB"),
        (count_text(6_037_445_403), "6.04 G"),
        (percent_text(0.36641), "36.6 %"),
        (percent_text(0.5), "50 %"),
        (times_text(22.18), "22.2x"),
    ],
)
def test_numbers_are_short(text: str, expected: str) -> None:
    assert text == expected

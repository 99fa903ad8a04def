"""Timestamps: units, dates, and the order of requests."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read_log, write_log

from kvcap.errors import RecordError, SchemaError
from kvcap.formats import sorting
from kvcap.formats.options import TimestampUnit
from kvcap.formats.rows import FieldError
from kvcap.formats.timestamps import detect_unit, to_microseconds

EPOCH_S = 1_730_000_000


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (27482, "ms", 27_482_000),
        (61.114, "s", 61_114_000),
        ("82", "s", 82_000_000),
        (" 82.5 ", "s", 82_500_000),
        (EPOCH_S * 10**9 + 1500, "ns", EPOCH_S * 10**6 + 2),
        (f"{EPOCH_S}123456789", "ns", EPOCH_S * 10**6 + 123_457),
        (1780722022391.4038, "ms", 1_780_722_022_391_404),
        (1760587801647311, "us", 1_760_587_801_647_311),
        (-5, "ms", -5000),
        ("2026-04-29T00:03:18Z", "ms", 1_777_420_998_000_000),
        ("2026-04-29T00:03:18", "s", 1_777_420_998_000_000),
        ("2026-04-29 00:03:18.25", "s", 1_777_420_998_250_000),
        ("2026-04-29T02:03:18.123456789+02:00", "s", 1_777_420_998_123_457),
        ("2026-04-28T19:03:18-0500", "s", 1_777_420_998_000_000),
        ("2026-04-29", "s", 1_777_420_800_000_000),
        (datetime(2026, 4, 29, 0, 3, 18), "s", 1_777_420_998_000_000),
    ],
)
def test_timestamps_are_whole_microseconds(value: Any, unit: TimestampUnit, expected: int) -> None:
    assert to_microseconds(value, unit) == expected


@pytest.mark.parametrize(
    "value",
    ["", "soon", "2026-13-01T00:00:00Z", "2026-04-29T25:00:00", True, [], {}, math.nan, math.inf, 10**30,
     "1e99", "1e999999999", "nan", "0x10", "2026-04-29T00:00:00+99:99x"],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(value: Any) -> None:
    with pytest.raises(FieldError, match="timestamp"):
        to_microseconds(value, "s")


@given(st.integers(-(2**50), 2**50), st.sampled_from([("s", 10**6), ("ms", 1000), ("us", 1)]))
def test_integers_and_their_decimal_strings_are_exact(number: int, unit: tuple[TimestampUnit, int]) -> None:
    name, factor = unit
    assert to_microseconds(number, name) == number * factor
    assert to_microseconds(str(number), name) == number * factor


@given(st.integers(-(2**60), 2**60))
def test_nanoseconds_are_rounded_to_the_nearest_microsecond(number: int) -> None:
    assert abs(Fraction(number, 1000) - to_microseconds(number, "ns")) <= Fraction(1, 2)


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))
def test_iso_dates_are_exact(date: datetime) -> None:
    expected = (date.replace(tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)) // (
        datetime.resolution
    )
    assert to_microseconds(date.isoformat(), "s") == expected


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([0, EPOCH_S], "s"),
        ([0, EPOCH_S + 0.5], "s"),
        ([EPOCH_S * 10**3], "ms"),
        ([str(EPOCH_S * 10**6)], "us"),
        ([EPOCH_S * 10**9], "ns"),
        ([0, 86_400_000], None),
        (["2026-04-29", None], None),
        ([], None),
    ],
)
def test_the_unit_shows_in_the_size_of_times_since_1970(
    values: list[Any], unit: TimestampUnit | None
) -> None:
    assert detect_unit(values) == unit


def timed(tmp_path: Path, *times: Any) -> Path:
    lines = (json.dumps({"tokens": [index], "timestamp": time}) for index, time in enumerate(times))
    return write_log(tmp_path / "t.jsonl", *lines)


def test_the_unit_is_said_and_can_be_overridden(tmp_path: Path) -> None:
    path = timed(tmp_path, 0, 1500)
    table, report = read_log(path)
    assert table["timestamp"].cast("int64").to_pylist() == [0, 1_500_000]
    assert any("read in ms" in notice for notice in report.notices)
    assert read_log(path, timestamp_unit="s")[0]["timestamp"].cast("int64").to_pylist()[1] == 1_500_000_000


def test_file_order_is_kept_and_backward_times_are_counted(tmp_path: Path) -> None:
    table, report = read_log(timed(tmp_path, 5, 3, None, 4, 3, 3, 9))
    assert table["token_ids"].to_pylist() == [[index] for index in range(7)]
    assert report.backward_timestamps == 2


def test_sorting_by_time_is_stable(tmp_path: Path) -> None:
    path = timed(tmp_path, 5, 3, 4, 3, 5, 3)
    table, report = read_log(path, sort_by_time=True)
    assert table["token_ids"].to_pylist() == [[1], [3], [5], [2], [0], [4]]
    assert report.backward_timestamps == 0


def test_sorting_needs_a_time_in_every_request(tmp_path: Path) -> None:
    path = timed(tmp_path, 5, None, 3)
    with pytest.raises(RecordError, match=r":2: timestamp is missing, .*order of time"):
        read_log(path, sort_by_time=True)
    assert read_log(path, sort_by_time=True, skip_bad=1)[0]["token_ids"].to_pylist() == [[2], [0]]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 40))
def test_sorting_in_pieces_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], limit: int
) -> None:
    path = timed(tmp_path_factory.mktemp("sort"), *times)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "MAX_BATCH_IDS", limit)
        patch.setattr("kvcap.formats.assemble.MAX_BATCH_IDS", limit)
        table, _ = read_log(path, sort_by_time=True)
    order = sorted(range(len(times)), key=times.__getitem__)
    assert table["token_ids"].to_pylist() == [[index] for index in order]


def test_stored_traces_are_sorted_too(tmp_path: Path) -> None:
    from kvcap.convert import convert

    convert([str(timed(tmp_path, 5, 3, 4))], str(tmp_path / "t.parquet"))
    table, report = read_log(tmp_path / "t.parquet", sort_by_time=True)
    assert table["token_ids"].to_pylist() == [[1], [2], [0]]
    assert report.backward_timestamps == 0
    convert([str(timed(tmp_path, 5, None))], str(tmp_path / "n.parquet"))
    with pytest.raises(SchemaError, match="a timestamp in every request"):
        read_log(tmp_path / "n.parquet", sort_by_time=True)

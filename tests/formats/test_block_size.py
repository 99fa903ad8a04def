"""Block sizes that follow from ids and lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read_log, write_log

import kvcap
from kvcap.errors import RecordError, UsageError
from kvcap.formats.block_size import fitting_sizes
from kvcap.formats.rows import Ids, Row

SIZES = st.sampled_from([1, 3, 16, 64, 100, 512])


def rows(pairs: list[tuple[int, int]]) -> list[Row]:
    return [Row(ids=Ids(np.zeros(n, np.uint64)), input_length=length) for n, length in pairs]


def allowed(pairs: list[tuple[int, int]], most: int) -> list[set[int]]:
    """Return which sizes up to ``most`` fit all pairs, by rounding up and by rounding down."""
    sizes = range(1, most + 1)
    return [
        {b for b in sizes if all(-(-length // b) == n for n, length in pairs)},
        {b for b in sizes if all(length // b == n for n, length in pairs)},
    ]


@given(size=SIZES, lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=12), up=st.booleans())
def test_bounds_are_those_of_trying_every_size(size: int, lengths: list[int], up: bool) -> None:
    pairs = [(-(-length // size) if up else length // size, length) for length in lengths]
    found = fitting_sizes(rows(pairs))
    assert found is not None
    assert found.fitting == found.requests == len(pairs)
    by_up, by_down = allowed(pairs, 4000)
    assert {b for b in range(1, 4001) if b in found} == by_up | by_down


@given(size=SIZES, lengths=st.lists(st.integers(2000, 9000), min_size=20, max_size=40, unique=True))
def test_some_odd_requests_do_not_hide_the_size(size: int, lengths: list[int]) -> None:
    pairs = [(-(-length // size), length) for length in lengths]
    pairs[7] = (pairs[7][0] + 9, pairs[7][1])
    found = fitting_sizes(rows(pairs))
    assert found is not None
    assert found.is_sure
    assert size in found
    assert found.fitting >= len(pairs) - 1


def hashed(size: int, lengths: list[int], **more: Any) -> list[str]:
    return [
        json.dumps({"hash_ids": list(range(-(-length // size))), "input_length": length, **more})
        for length in lengths
    ]


def test_a_log_without_a_size_is_read_with_the_one_that_fits(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", *hashed(48, [4800, 4801, 4847, 95, 9999]))
    table, report = read_log(path)
    assert set(table["block_size"].to_pylist()) == {48}
    assert "blocks of 48 tokens, as ids and lengths of all 5 requests show" in report.notices
    odd = write_log(tmp_path / "odd", *hashed(48, [4800 + n for n in range(97)]), *hashed(40, [4800]))
    assert "blocks of 48 tokens, as ids and lengths of 97 of 98 requests show" in read_log(odd)[1].notices


def test_where_bounds_stay_apart_the_usual_size_or_the_power_of_two_is_taken(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", *hashed(64, [700, 300]))
    table, report = read_log(path)
    assert set(table["block_size"].to_pylist()) == {64}
    assert any(
        "blocks of 64 tokens, the only power of two among the 59 to 60 or 64 to 69" in text
        for text in report.notices
    )
    mooncake = write_log(tmp_path / "mooncake", *hashed(512, [700], timestamp=0))
    assert read_log(mooncake)[0]["block_size"].to_pylist() == [512]
    assert "as published traces of this kind have" in " ".join(read_log(mooncake)[1].notices)
    few = write_log(tmp_path / "few", *hashed(512, [700]))
    with pytest.raises(
        RecordError, match="block_size is missing, expected it in the record or as --block-size"
    ):
        read_log(few)


def test_a_log_without_lengths_takes_the_size_of_published_ones(tmp_path: Path) -> None:
    event = {"type": "GetCacheLocation", "trigger_time_us": 1763975741548745, "keys": [1, 2]}
    table, report = read_log(write_log(tmp_path / "log", json.dumps(event)))
    assert table["block_size"].to_pylist() == [256]
    assert any(text.startswith("blocks of 256 tokens, as published traces") for text in report.notices)


def test_an_option_that_every_request_contradicts_is_refused_with_the_size_that_fits(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", *hashed(16, [271, 288, 257, 348, 339]))
    with pytest.raises(
        UsageError, match=r"--block-size 512 contradicts .* first 5 requests: --block-size 16 fits"
    ):
        read_log(path, block_size=512)
    with pytest.raises(UsageError, match="--block-size 16 fits"):
        kvcap.replay(path, kvcap.ReplayOptions.of(block_size=128))
    assert read_log(path, block_size=16)[0].num_rows == 5


def test_single_requests_that_contradict_an_option_are_counted(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", *hashed(16, [160, 170, 180]), *hashed(4, [100]))
    assert read_log(path, block_size=16)[1].overfull_requests == 1
    declared = write_log(tmp_path / "declared", *hashed(16, [271, 288], block_size=4))
    assert read_log(declared)[1].underfull_requests == 2

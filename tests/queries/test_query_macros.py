"""The macros that SQL text may use."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_results import BLOCK_BYTES, EXAMPLE, SmallLog, small_logs

import kvcap
from kvcap.errors import QueryError
from kvcap.units import parse_size_bytes


@pytest.fixture(scope="module")
def results() -> Any:
    with SmallLog(
        [[1, 2], [1, 2], [3], [1]], [8, 8, 4, 4], [None] * 4, [None] * 4, [None] * 4, ["m"] * 4
    ).replayed() as opened:
        yield opened


def value(results: kvcap.Results, expression: str, **parameters: object) -> Any:
    return results.sql(f"SELECT {expression} AS x", parameters)["x"][0].as_py()


@pytest.mark.parametrize("size", ["1B", "1.5TiB", "640 GiB", "0.1kb", "2.25MB", "3 PiB", ".5GB", "7tib"])
def test_bytes_are_those_of_the_command_line(results: kvcap.Results, size: str) -> None:
    assert value(results, "bytes($size)", size=size) == parse_size_bytes(size)


@pytest.mark.parametrize("size", ["", "TiB", "1.5", "1,5TiB", "2 XiB", "-1GiB", "1 TiB 2"])
def test_what_is_no_size_says_what_was_expected(results: kvcap.Results, size: str) -> None:
    with pytest.raises(QueryError, match=r"expected a number and a unit, such as 1\.5TiB"):
        value(results, "bytes($size)", size=size)


@pytest.mark.parametrize(
    ("capacity", "blocks"),
    [
        ("17", 17),
        (17, 17),
        ("5blocks", 5),
        ("1 block", 1),
        ("1.5kblocks", 1500),
        ("2Mblocks", 2_000_000),
        ("11tokens", 2),
        ("1ktokens", 250),
        (f"{3 * BLOCK_BYTES}B", 3),
        (f"{3 * BLOCK_BYTES - 1}B", 2),
        ("1KiB", 1024 // BLOCK_BYTES),
        ("unlimited", 3),
        ("p50", 0),
        ("p75", 2),
        ("p99.9", 2),
        ("p100", 2),
    ],
)
def test_a_capacity_is_blocks_tokens_bytes_or_what_requests_required(
    results: kvcap.Results, capacity: object, blocks: int
) -> None:
    assert value(results, "capacity_blocks($capacity)", capacity=capacity) == blocks


@pytest.mark.parametrize("capacity", ["lots", "p101", "-5", "3 bananas", "1e3"])
def test_what_is_no_capacity_is_refused(results: kvcap.Results, capacity: str) -> None:
    with pytest.raises(QueryError, match="expected a number and a unit"):
        value(results, "capacity_blocks($capacity)", capacity=capacity)


def test_bytes_of_a_run_without_bytes_per_token_are_refused() -> None:
    with EXAMPLE.replayed(kv_bytes_per_token=None) as results:
        with pytest.raises(QueryError, match="no bytes per token: give capacities in blocks or tokens"):
            value(results, "capacity_blocks('2TiB')")
        assert value(results, "capacity_blocks('48tokens')") == 3
        assert results.query("tiers", tiers="a=5")["read_bytes"].to_pylist() == [None]


@given(st.integers(0, 10**15), st.decimals(0, 100, places=6))
@settings(max_examples=100)
def test_shares_round_up_exactly(total: int, percent: Any) -> None:
    with_share = Fraction(percent) * total / 100
    assert value(_shared(), "ceil_share($total, $percent)", total=total, percent=float(percent)) == ceil(
        with_share
    )


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.sampled_from(["0.1", "50", "90", "99", "99.9", "100"]),
)
@settings(max_examples=100)
def test_percentiles_are_nearest_rank(values: list[int], percent: str) -> None:
    found = value(
        _shared(), "nearest_rank(CAST($given AS BIGINT[]), $percent)", given=values, percent=percent
    )
    assert found == oracles.nearest_rank(values, Fraction(percent))


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(0, 20), st.sampled_from([50, 90, 99]))
@settings(max_examples=60)
def test_idle_windows_count_as_zero(busy: list[int], idle: int, percent: int) -> None:
    if not busy and not idle:
        return
    found = value(
        _shared(),
        "rank_with_idle(list_sort(CAST($busy AS BIGINT[])), $windows, $percent)",
        busy=busy,
        windows=len(busy) + idle,
        percent=percent,
    )
    assert found == oracles.nearest_rank([*busy, *[0] * idle], Fraction(percent))


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("1, 2", ["1", "2"]),
        ("[1, 2]", ["1", "2"]),
        ([1, 2], ["1", "2"]),
        (["a b", "c"], ["a b", "c"]),
        ("x", ["x"]),
        ("", []),
    ],
)
def test_lists_may_be_text(results: kvcap.Results, given: object, items: list[str]) -> None:
    assert value(results, "items($given)", given=given) == items


def test_the_hits_of_a_run_by_touch_order(results: kvcap.Results) -> None:
    assert [value(results, f"hit_blocks(4, 3, {c})") for c in (4, 5, 6, 7, 8)] == [0, 1, 2, 3, 3]
    assert [value(results, f"hit_blocks_head_first(4, 3, {c})") for c in (4, 5)] == [0, 3]
    assert value(results, "hits(4, 4, 3, 5)") == 1
    assert value(results, "pct(CAST(0.12345 AS DOUBLE))") == pytest.approx(12.35)


@settings(max_examples=10)
@given(small_logs())
def test_hits_by_request_add_up_to_the_hits_of_the_pool(log: SmallLog) -> None:
    with log.replayed(warm_up=Fraction(1, 3)) as results:
        summed = results.sql("SELECT sum(hit_blocks) AS b, sum(hit_tokens) AS t FROM request_hits(5)")
        row = results.query("hit_rate", capacity_blocks=5).to_pylist()[0]
    assert (summed["b"][0].as_py(), summed["t"][0].as_py()) == (row["hit_blocks"], row["hit_tokens"])


@cache
def _shared() -> kvcap.Results:
    """One replay for all examples of a property, which a fixture cannot give."""
    return EXAMPLE.replayed()

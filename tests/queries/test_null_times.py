"""What queries about time say of requests without a timestamp."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_results import EXAMPLE, SmallLog

from kvcap.errors import QueryError

NO_TIMES = replace(EXAMPLE, timestamps_us=[None] * 12)

# The last request reuses two blocks: one of a request with a timestamp, one of a request without.
SOME_TIMES = SmallLog(
    requests=[[1, 2], [1], [1, 2]],
    input_lengths=[8, 4, 8],
    timestamps_us=[0, None, 10_000_000],
    pools=[None] * 3,
    session_ids=[None] * 3,
    models=["m"] * 3,
)


@pytest.mark.parametrize(
    ("query", "parameters"),
    [("ttl_surface", {"ttls_seconds": "60, none"}), ("miss_reasons", {"ttl_seconds": "60"})],
)
def test_a_ttl_is_refused_where_no_request_has_a_timestamp(query: str, parameters: dict[str, str]) -> None:
    with NO_TIMES.replayed() as results, pytest.raises(QueryError, match="no timestamps: ages are unknown"):
        results.query(query, **parameters)


def test_without_a_ttl_no_timestamps_are_needed() -> None:
    with NO_TIMES.replayed() as results, EXAMPLE.replayed() as timed:
        for query in ("ttl_surface", "miss_reasons"):
            parameter = {"ttl_surface": "ttls_seconds", "miss_reasons": "ttl_seconds"}[query]
            assert results.query(query, **{parameter: "none"}).equals(
                timed.query(query, **{parameter: "none"})
            )


def test_a_block_of_unknown_age_misses_under_a_ttl_and_is_counted() -> None:
    with SOME_TIMES.replayed() as results:
        found = results.query("ttl_surface", ttls_seconds="60, none", capacities_blocks=[9]).to_pylist()
        reasons = results.query("miss_reasons", capacity_blocks=9, ttl_seconds=60).to_pylist()
    assert [(row["ttl_seconds"], row["hit_blocks"], row["unknown_age_blocks"]) for row in found] == [
        (60, 1, 2),
        (None, 3, 0),
    ]
    assert {row["reason"]: row["missed_blocks"] for row in reasons}["ttl"] == 2


def test_requests_without_a_timestamp_stand_in_a_window_of_their_own() -> None:
    with SOME_TIMES.replayed() as results:
        found = results.query("by_hour", capacity_blocks="unlimited").to_pylist()
    assert [(row["window_start"] is None, row["requests"]) for row in found] == [(False, 2), (True, 1)]


@pytest.mark.parametrize("times", [[0, None, 1], [3, 20, 4]])
def test_a_working_set_is_unknown_where_windows_are_not_contiguous(times: list[int | None]) -> None:
    log = replace(SOME_TIMES, timestamps_us=[None if time is None else time * 1_000_000 for time in times])
    with log.replayed() as results:
        assert set(results.query("by_hour", window_seconds=10)["working_set_blocks"].to_pylist()) == {None}
        assert results.query("by_hour", window_seconds=3600)["working_set_blocks"].to_pylist() == (
            [None, None] if None in times else [2]
        )


def test_ages_that_are_unknown_stand_in_a_row_of_their_own() -> None:
    with SOME_TIMES.replayed() as results:
        found = results.query("reuse_time", ages_seconds="5").to_pylist()
    assert [
        (row["over_seconds"], row["to_seconds"], row["is_known"], row["hit_blocks"]) for row in found
    ] == [
        (None, 5, True, 0),
        (5, None, True, 1),
        (None, None, False, 2),
    ]


def test_tiers_without_timestamps_serve_but_have_no_rates() -> None:
    with NO_TIMES.replayed() as results, EXAMPLE.replayed() as timed:
        found = results.query("tiers", tiers="5, 20").to_pylist()
        expected = timed.query("tiers", tiers="5, 20").to_pylist()
    assert [row["hit_blocks"] for row in found] == [row["hit_blocks"] for row in expected]
    assert {row["read_blocks_per_second_p99"] for row in found} == {None}
    assert {row["read_bytes_per_second_p50"] for row in found} == {None}

"""Limits, and two runs side by side."""

from __future__ import annotations

from fractions import Fraction

import pytest
from replayed import replayed

from kvcap.analysis.check import check
from kvcap.analysis.check_options import CheckOptions
from kvcap.analysis.diff import diff
from kvcap.errors import UsageError
from kvcap.units import parse_capacity

REQUESTS = [[1], [2], [3], [1], [2], [1]]
"""Three of six blocks are known; depths 2, 2 and 1 need capacities of 3, 3 and 2 blocks of a GiB."""


def holds(**limits: object) -> list[bool]:
    with replayed(REQUESTS) as results:
        return [one.holds for one in check(results, CheckOptions(**limits))]


def test_a_limit_that_is_just_met_holds() -> None:
    assert holds(max_p99=parse_capacity("3GiB"), min_hit_rate=Fraction(1, 2), min_requests=6) == [True] * 3
    assert holds(min_token_hit_rate=Fraction(1, 2)) == [True]


def test_a_limit_that_is_just_missed_is_broken() -> None:
    below = parse_capacity(f"{(3 << 30) - 1}B")
    assert holds(max_p99=below, min_hit_rate=Fraction(500_001, 10**6), min_requests=7) == [False] * 3


def test_hit_rates_are_taken_at_the_capacity_given() -> None:
    at_two = {"min_hit_rate": Fraction(1, 6), "capacity": parse_capacity("2GiB")}
    assert holds(**at_two) == [True]
    assert holds(**{**at_two, "min_hit_rate": Fraction(1, 3)}) == [False]


def test_a_rate_is_compared_exactly() -> None:
    with replayed([[1], [1], [1]]) as results:
        assert check(results, CheckOptions(min_hit_rate=Fraction(2, 3)))[0].holds
        text = check(results, CheckOptions(min_hit_rate=Fraction(2, 3)))[0].text
    assert text == "block hit rate with unlimited storage 66.67 %, at least 66.67 %"


def test_no_limit_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one limit"):
        holds()


def test_a_run_compared_with_itself_differs_nowhere() -> None:
    with replayed(REQUESTS) as a, replayed(REQUESTS) as b:
        found = diff(a, b)
    assert found.definitions == {}
    assert all(row.a == row.b for row in found.rows)
    assert {row.kind for row in found.rows} == {"count", "rate", "bytes"}


def test_definitions_that_differ_are_named() -> None:
    with replayed(REQUESTS) as a, replayed(REQUESTS, target=Fraction(1, 2), bytes_per_token=None) as b:
        found = diff(a, b)
    assert found.definitions["target_percent"] == ("99", "50")
    assert found.definitions["kv_bytes_per_token"][1] is None
    # Without bytes on one side, both are compared in tokens: 3 blocks of 4.
    p99 = next(row for row in found.rows if row.name == "required capacity, p99")
    assert (p99.kind, p99.a, p99.b) == ("tokens", 12, 12)


def test_values_stand_on_their_own_side() -> None:
    with replayed(REQUESTS) as a, replayed(REQUESTS[:4]) as b:
        rows = {row.name: row for row in diff(a, b, "3GiB").rows}
    assert (rows["measured requests"].a, rows["measured requests"].b) == (6, 4)
    assert (rows["ceiling, blocks"].a, rows["ceiling, blocks"].b) == (0.5, 0.25)
    assert (rows["block hit rate at 3 GiB"].a, rows["block hit rate at 3 GiB"].b) == (0.5, 0.25)
    assert rows["required capacity, p99"].a == 3 << 30


@pytest.mark.parametrize(
    "other", [{}, {"max_capacity": "2GiB"}, {"max_capacity": "2GiB", "bytes_per_token": None}]
)
def test_runs_of_unequal_grids_and_bounds_are_compared_where_both_know(other: dict[str, object]) -> None:
    if other.get("bytes_per_token", True) is None:
        other = {**other, "max_capacity": "2blocks"}
    with replayed(REQUESTS, capacities="1GiB,2GiB,3GiB") as a, replayed(REQUESTS, **other) as b:
        there, back = diff(a, b), diff(b, a)
    assert [row.name for row in there.rows] == [row.name for row in back.rows]
    rates = [row for row in there.rows if row.name.startswith("block hit rate at")]
    assert rates
    assert all(row.a == row.b for row in rates)
    assert ("max_capacity_blocks" in there.definitions) == ("max_capacity" in other)
    if "max_capacity" in other:
        # A bound is where two runs can be compared last.
        assert rates[-1].name in ("block hit rate at 2 GiB", "block hit rate at 8 tokens")
        assert rates[-1].a == pytest.approx(1 / 6)


def test_rules_that_differ_are_named() -> None:
    with replayed(REQUESTS) as a, replayed(REQUESTS, compute_last_token=True) as b:
        assert diff(a, b).definitions == {"compute_last_token": (False, True)}

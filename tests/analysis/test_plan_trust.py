"""Growing prefixes, reuse cut off at the start, doubts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracles
import pytest
from hypothesis import given
from replayed import replayed
from strategies import prefix_forests

from kvcap.analysis.bootstrap import Interval
from kvcap.analysis.figures import load_figures
from kvcap.analysis.plan import plan
from kvcap.analysis.plan_options import DEFAULT_GOAL, PlanOptions, parse_goal
from kvcap.analysis.plan_trust import (
    PREFIX_PERCENTS,
    PrefixRow,
    Trust,
    _doubts,
    _inverse,
    assess,
    cut_off_share,
)

some_requests = prefix_forests().filter(any)


def trust(requests: list[list[int]], **options: object) -> Trust:
    with replayed(requests, **options) as results:
        figures = load_figures(results)
        return assess(figures, DEFAULT_GOAL, figures.percentile(DEFAULT_GOAL.share))


@given(requests=some_requests)
def test_a_prefix_row_is_what_a_replay_of_that_prefix_says(requests: list[list[int]]) -> None:
    rows = trust(requests).prefixes
    for percent, row in zip(PREFIX_PERCENTS, rows, strict=True):
        first = requests[: max(1, len(requests) * percent // 100)]
        assert row.requests == len(first)
        depths = oracles.depths(oracles.chained(first), "tail-first")
        total = sum(map(len, depths))
        known = sum(depth >= 0 for request in depths for depth in request)
        assert row.ceiling == (known / total if total else 0)
        required = [oracles.required_blocks(request, Fraction(99, 100)) for request in depths]
        assert row.p99_blocks == oracles.nearest_rank(required, Fraction(99))


@given(requests=prefix_forests().filter(lambda requests: len(requests) > 1 and any(requests)))
def test_reuse_cut_off_is_what_the_second_half_owes_to_the_first(requests: list[list[int]]) -> None:
    with replayed(requests) as results:
        found = cut_off_share(load_figures(results))
    blocks = oracles.chained(requests)
    middle = len(blocks) // 2
    seen = owed = 0
    last_toucher: dict[int, int] = {}
    for index, request in enumerate(blocks):
        for block in request:
            if block in last_toucher:
                seen += 1
                owed += index >= middle > last_toucher[block]
            last_toucher[block] = index
    assert found == (owed / (seen + owed) if seen else 0)


def test_a_warm_up_gives_the_later_beginning_a_warm_up_too() -> None:
    requests = [[1], [2], [1], [3], [2], [1]]
    with replayed(requests, warm_up=Fraction(1, 3)) as results:
        # Measured from request 2; begun two requests later, its warm-up begins at request 2: [2]'s
        # source is cut off, [1]'s is not.
        assert cut_off_share(load_figures(results)) == 1 / (3 + 1)


def test_a_single_request_says_nothing_of_its_past() -> None:
    assert trust([[1, 2]]).cut_off_share is None


def test_steady_traffic_leaves_no_doubt_but_that_it_has_no_timestamps() -> None:
    requests = [[i % 3] for i in range(3)] + [[i % 3] for i in range(1200)]
    assert trust(requests, warm_up=Fraction(1, 100)).doubts == (
        "there are no timestamps (nothing is known of rates)",
    )
    assert trust(requests, warm_up=Fraction(1, 100), seconds=range(1203)).doubts == ()


def test_growing_traffic_is_doubted() -> None:
    requests = [[i // 2 if i % 2 else 10_000 + i] for i in range(40)]
    requests += [[i] for i in range(20)] + [[i] for i in range(20)]
    doubts = " ".join(trust(requests, seconds=range(len(requests))).doubts)
    assert "ceiling still moves" in doubts
    assert "p99 still moves" in doubts
    assert "lies before the trace begins" in doubts


@pytest.mark.parametrize("goal", ["ceiling-share 90", "hit-rate 0.3"])
def test_the_interval_of_a_planned_capacity_holds_it(goal: str) -> None:
    requests = [[(i * i) % 17, i % 5] for i in range(400)]
    with replayed(requests) as results:
        planned = plan(results, PlanOptions(goal=parse_goal(goal)))
    found = planned.trust.goal_blocks
    assert found.value == planned.at_goal.capacity_blocks
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
@given(requests=some_requests)
def test_hit_rates_at_the_planned_capacity_are_those_of_a_cache_of_that_size(
    order: str, requests: list[list[int]]
) -> None:
    blocks = oracles.chained(requests)
    total = sum(map(len, blocks))
    with replayed(requests, touch_order=order) as results:
        figures = load_figures(results)
        for capacity in range(results.run.distinct_blocks + 1):
            rate = sum(oracles.lru_hits(blocks, capacity, order)) / total if capacity else 0
            found = assess(figures, DEFAULT_GOAL, capacity)
            assert found.block_hit_rate.value == found.token_hit_rate.value == rate


def test_a_capacity_between_two_of_the_grid_is_interpolated() -> None:
    grid = np.array([0, 10, 20, 40])
    hits = np.array([[0.0, 5.0, 20.0, 20.0]] * 7)
    needed = np.array([0.0, 2.5, 5.0, 12.5, 20.0, 25.0, 17.0])
    assert _inverse(grid, hits, needed).tolist() == [0, 5, 10, 15, 20, 40, 18]


@pytest.mark.parametrize(
    ("half", "whole", "cut_off", "interval", "doubt"),
    [
        ((0.96, 95), (1.0, 100), 0.05, (2, 3), None),
        ((1.04, 105), (1.0, 100), None, (0, 1), None),
        (
            (0.94, 95),
            (1.0, 100),
            0.0,
            (2, 3),
            "the ceiling still moves (94.0 % at half the trace, 100.0 % now)",
        ),
        (
            (1.06, 95),
            (1.0, 100),
            0.0,
            (2, 3),
            "the ceiling still moves (106.0 % at half the trace, 100.0 % now)",
        ),
        ((1.0, 80), (1.0, 100), 0.0, (2, 3), "the p99 still moves (now 1.2 times that at half the trace)"),
        ((1.0, 0), (1.0, 100), 0.0, (2, 3), "the p99 still moves (now far from that at half the trace)"),
        (
            (1.0, 100),
            (1.0, 100),
            0.06,
            (2, 3),
            "about 6 % of reuse lies before the trace begins (log for longer)",
        ),
        (
            (1.0, 100),
            (1.0, 100),
            0.0,
            (2, 4),
            "the p99 is uncertain (plan for the upper end of its interval)",
        ),
        (
            (1.0, 100),
            (1.0, 100),
            0.0,
            (0, 2),
            "the p99 is uncertain (plan for the upper end of its interval)",
        ),
    ],
)
def test_a_doubt_is_said_from_its_threshold_on(
    half: tuple[float, int],
    whole: tuple[float, int],
    cut_off: float | None,
    interval: tuple[float, float],
    doubt: str | None,
) -> None:
    rows = tuple(PrefixRow(percent, 1, *(whole if percent > 50 else half)) for percent in PREFIX_PERCENTS)
    with replayed([[1], [1]], seconds=[0, 1]) as results:
        found = _doubts(load_figures(results), rows, cut_off, Interval(interval[0], *interval))
    assert found == ([] if doubt is None else [doubt])


def test_what_a_bound_hides_is_doubted() -> None:
    requests = [[i % 9] for i in range(90)]
    doubt = "reuse beyond the --max-capacity of the replay is unknown (not in the ceiling)"
    assert doubt in trust(requests, max_capacity="4GiB").doubts
    assert doubt not in trust(requests, max_capacity="4TiB").doubts

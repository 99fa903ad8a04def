"""Growing prefixes, reuse cut off at the start, doubts."""

from __future__ import annotations

from fractions import Fraction

import oracles
import pytest
from hypothesis import given
from replayed import replayed
from strategies import prefix_forests

from kvcap.analysis.figures import load_figures
from kvcap.analysis.plan_options import DEFAULT_GOAL
from kvcap.analysis.plan_trust import PREFIX_PERCENTS, Trust, assess, cut_off_share

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
    from kvcap.analysis.plan import plan
    from kvcap.analysis.plan_options import PlanOptions, parse_goal

    requests = [[(i * i) % 17, i % 5] for i in range(400)]
    with replayed(requests) as results:
        planned = plan(results, PlanOptions(goal=parse_goal(goal)))
    found = planned.trust.goal_blocks
    assert found.value == planned.at_goal.capacity_blocks
    assert found.low <= found.value <= found.high

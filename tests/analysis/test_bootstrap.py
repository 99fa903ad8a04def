"""Bootstrap intervals: degenerate cases, and coverage of a known truth."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from replayed import replayed

from kvcap.analysis.bootstrap import MAX_BINS, TimeBootstrap, interval
from kvcap.analysis.plan import plan


def test_what_never_varies_has_no_width() -> None:
    bootstrap = TimeBootstrap(1000)
    ones = np.ones(1000, np.int64)
    ratio = bootstrap.ratio(ones, 4 * ones)
    assert (ratio.low, ratio.value, ratio.high) == (0.25, 0.25, 0.25)
    percentile = bootstrap.percentile(7 * ones, Fraction(99, 100))
    assert (percentile.low, percentile.value, percentile.high) == (7, 7, 7)


def test_the_value_is_that_of_the_whole_trace_and_lies_inside() -> None:
    values = np.random.default_rng(1).integers(0, 10**9, 3 * MAX_BINS)
    found = TimeBootstrap(values.size).percentile(values, Fraction(9, 10))
    assert found.value == np.sort(values)[-(-values.size * 9 // 10) - 1]
    assert found.low < found.value < found.high
    # The standard error of a p90 of so many independent uniform values is 0.27 %.
    assert found.high - found.low < 0.03 * found.value


def test_an_interval_stays_between_0_and_its_bound() -> None:
    wide = interval(0.5, np.linspace(0, 1, 1001), most=1.0)
    assert (wide.low, wide.high) == (0.0, 1.0)


@pytest.mark.parametrize("n_requests", [1, 2, 50])
def test_few_requests_are_no_error(n_requests: int) -> None:
    values = np.arange(n_requests)
    bootstrap = TimeBootstrap(n_requests)
    assert bootstrap.percentile(values, Fraction(1, 2)).value == (n_requests - 1) // 2
    assert 0 <= bootstrap.ratio(values, np.maximum(values, 1)).low <= 1
    assert bootstrap.ratio(0 * values, 0 * values).value == 0.0


REUSE = (0.2, 0.8)
"""Chance that a request repeats an earlier one, in each of two moods of the traffic."""
MOOD_LENGTH = 20
MAX_DISTANCE = 40


def moody_traffic(n_requests: int, rng: random.Random) -> list[list[int]]:
    """Requests of one block that repeat a recent one, often or rarely, in spells."""
    requests: list[list[int]] = []
    mood = rng.random() < 0.5
    for i in range(n_requests + MAX_DISTANCE):
        if rng.random() < 1 / MOOD_LENGTH:
            mood = rng.random() < 0.5
        if i >= MAX_DISTANCE and rng.random() < REUSE[mood]:
            requests.append(requests[-rng.randint(1, MAX_DISTANCE)])
        else:
            requests.append([i])
    return requests


@pytest.mark.slow
def test_intervals_cover_the_truth_at_about_their_nominal_rate() -> None:
    n_requests, n_traces = 2400, 240
    rng = random.Random(7)
    # A repeated request is always known, so the true ceiling is the mean chance of repeating.
    true_ceiling = sum(REUSE) / 2
    with replayed(moody_traffic(200_000, rng)) as results:
        whole = plan(results)
    true_p90_hits, goal_blocks = whole.at_goal.block_hit_rate, whole.at_goal.capacity_blocks
    assert abs(whole.largest.block_hit_rate - true_ceiling) < 0.01
    covered = {"ceiling": 0, "block_hit_rate": 0, "p99_blocks": 0}
    for _ in range(n_traces):
        warm_up = Fraction(MAX_DISTANCE, n_requests + MAX_DISTANCE)
        with replayed(moody_traffic(n_requests, rng), warm_up=warm_up) as results:
            trust = plan(results).trust
        covered["ceiling"] += trust.ceiling.low <= true_ceiling <= trust.ceiling.high
        covered["block_hit_rate"] += trust.block_hit_rate.low <= true_p90_hits <= trust.block_hit_rate.high
        covered["p99_blocks"] += trust.p99_blocks.low <= goal_blocks <= trust.p99_blocks.high
    rates = {name: count / n_traces for name, count in covered.items()}
    print(rates)
    assert all(0.9 <= rate <= 0.99 for rate in rates.values()), rates

"""The planner against direct simulation and sums done by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replayed import BLOCK, replayed
from strategies import prefix_forests

from kvcap.analysis.figures import load_figures
from kvcap.analysis.plan import goal_capacity, plan
from kvcap.analysis.plan_options import PlanOptions, Tier, parse_goal, parse_tier
from kvcap.analysis.plan_value import best_last_capacity, speed_up, valuation
from kvcap.errors import UsageError
from kvcap.option_fields import share
from kvcap.units import Capacity, parse_capacity

some_requests = prefix_forests().filter(any)
ORDERS = ["tail-first", "head-first"]
GIB = 1 << 30


def simulated(requests: list[list[int]], capacity: int, order: str = "tail-first") -> list[int]:
    return oracles.lru_hits(oracles.chained(requests), capacity, order)


def tier(name: str, blocks: int, price: str | None = None) -> Tier:
    return Tier(name, Capacity(Fraction(blocks), "blocks"), None if price is None else Fraction(price))


@given(requests=some_requests, order=st.sampled_from(ORDERS), needed=st.integers(0, 30))
def test_capacity_for_hits_is_the_smallest_that_has_them(
    requests: list[list[int]], order: str, needed: int
) -> None:
    with replayed(requests, touch_order=order) as results:
        found = load_figures(results).capacity_for_hits(needed)
    reaching = (c for c in range(sum(map(len, requests)) + 1) if sum(simulated(requests, c, order)) >= needed)
    assert found == next(reaching, None)


@given(requests=some_requests, order=st.sampled_from(ORDERS), percent=st.integers(1, 100))
def test_the_goals_agree_with_the_named_queries(requests: list[list[int]], order: str, percent: int) -> None:
    with replayed(requests, touch_order=order) as results:
        figures = load_figures(results)
        by_share = results.query("capacity_for_hit_rate", percents=[percent]).to_pylist()[0]
        assert goal_capacity(figures, parse_goal(f"ceiling-share {percent}")) == by_share["capacity_blocks"]
        rows = results.query("capacity_percentiles", percents=[percent]).to_pylist()
        required = next(row["required_blocks"] for row in rows if row["sample"] == "samples")
        assert goal_capacity(figures, parse_goal(f"request-p{percent}")) == required


@given(
    requests=some_requests,
    order=st.sampled_from(ORDERS),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    inclusive=st.booleans(),
)
def test_each_tier_serves_what_the_tiers_down_to_it_serve_more(
    requests: list[list[int]], order: str, sizes: list[int], inclusive: bool
) -> None:
    options = PlanOptions(
        tiers=tuple(tier(str(i), size) for i, size in enumerate(sizes)), inclusive=inclusive
    )
    with replayed(requests, touch_order=order) as results:
        planned = plan(results, options)
    above = 0
    for i, row in enumerate(planned.tiers):
        reach = max(sizes[: i + 1]) if inclusive else sum(sizes[: i + 1])
        hits = sum(simulated(requests, reach, order))
        assert row.hit_blocks == hits - above
        assert row.hit_tokens == BLOCK * row.hit_blocks
        assert planned.tier_steps[i].block_hit_rate == hits / sum(map(len, requests))
        above = hits


@given(requests=some_requests, data=st.data())
def test_reads_of_a_tier_are_its_hits_by_window(requests: list[list[int]], data: st.DataObject) -> None:
    n = len(requests)
    seconds = sorted(data.draw(st.lists(st.integers(0, 400), min_size=n, max_size=n)))
    seconds[0], seconds[-1] = 0, seconds[-1] + 1
    options = PlanOptions(tiers=(tier("a", 2), tier("b", 3)))
    if n == 1:
        return
    with replayed(requests, seconds=seconds) as results:
        rows = plan(results, options).tiers
    for row, reach in zip(rows, (2, 5), strict=True):
        more = simulated(requests, reach)
        less = simulated(requests, row.first_blocks) if row.first_blocks else [0] * n
        per_window = Counter[int]()
        for second, hit, above in zip(seconds, more, less, strict=True):
            per_window[int(second) // 60] += (hit - above) * GIB
        windows = [per_window[window] for window in range(seconds[-1] // 60 + 1)]
        assert row.read_bytes_per_second == pytest.approx(sum(windows) / seconds[-1])
        p99 = oracles.nearest_rank(windows, Fraction(99)) / 60
        assert row.read_p99_bytes_per_second == pytest.approx(p99)


def test_a_lower_tier_takes_in_what_the_tiers_above_push_down() -> None:
    requests = [[1], [2], [3], [1], [2], [3]]
    with replayed(requests, seconds=range(6)) as results:
        top, low, unused = plan(results, PlanOptions(tiers=(tier("a", 2), tier("b", 2), tier("c", 2)))).tiers
    # Two blocks never hold the cycle of three, so every access misses there; three blocks always do.
    assert top.write_bytes_per_second == low.write_bytes_per_second == 6 * GIB / 5
    assert unused.write_bytes_per_second == 0
    assert (top.hit_blocks, low.hit_blocks, unused.hit_blocks) == (0, 3, 0)


def test_worth_of_a_step_and_price_at_which_it_breaks_even() -> None:
    requests = [[1], [2], [1], [2]]
    options = PlanOptions(
        goal=parse_goal("request-p1"),
        prefill_tokens_per_second=Fraction(2),
        gpu_hour=Fraction(3),
        step=parse_capacity("2GiB"),
    )
    with replayed(requests, seconds=[0, 0, 0, 43200]) as results:
        planned = plan(results, options)
    assert (planned.at_goal.capacity_blocks, planned.days) == (0, 0.5)
    # The next two blocks serve two blocks of four tokens: 4 GPU-seconds in half a day.
    assert planned.at_goal.next_hit_tokens == 8
    assert planned.at_goal.next_gpu_hours_per_day == pytest.approx(8 / 3600)
    per_month = 8 / 3600 * 3 * 730 / 24
    assert planned.at_goal.break_even_price_per_gib_month == pytest.approx(per_month / 2)
    assert planned.largest.ideal_speed_up == 2.0
    assert planned.largest.break_even_price_per_gib_month == 0.0


def test_a_block_stops_paying_when_holding_it_has_cost_its_computation() -> None:
    options = PlanOptions(
        tiers=(tier("dram", 2, "730"),), prefill_tokens_per_second=Fraction(4), gpu_hour=Fraction(36)
    )
    with replayed([[1], [1]], seconds=[0, 86400]) as results:
        row = plan(results, options).tiers[0]
    # A block of a GiB costs 1 an hour to hold; its four tokens cost a second of 36 an hour.
    assert row.break_even_age_seconds == pytest.approx(36.0)
    assert row.cost_per_month == 1460
    assert row.saves_per_month == pytest.approx(36 / 3600 * 730 / 24)


def test_requests_per_day_scale_the_worth_of_a_trace_without_timestamps() -> None:
    options = PlanOptions(
        tiers=(tier("dram", 2),), prefill_tokens_per_second=Fraction(4), gpu_hour=Fraction(1)
    )
    with replayed([[1], [1]]) as results:
        assert plan(results, options).tiers[0].saves_per_month is None
        scaled = PlanOptions(**{**vars(options), "requests_per_day": Fraction(7200)})
        assert plan(results, scaled).tiers[0].saves_per_month == pytest.approx(730 / 24)


@given(requests=some_requests, above=st.integers(0, 5), price=st.integers(1, 40), inclusive=st.booleans())
def test_the_best_size_earns_at_least_as_much_as_any_other(
    requests: list[list[int]], above: int, price: int, inclusive: bool
) -> None:
    options = PlanOptions(
        prefill_tokens_per_second=Fraction(1), gpu_hour=Fraction(60), requests_per_day=Fraction(len(requests))
    )
    with replayed(requests) as results:
        figures = load_figures(results)
        value = valuation(figures, options)
        best = best_last_capacity(figures, value, above, price, inclusive=inclusive)

    def gain(capacity: int) -> float:
        if capacity == above:
            return 0.0
        tokens = BLOCK * (sum(simulated(requests, capacity)) - sum(simulated(requests, above)))
        return value.money_per_month(tokens) - price * (capacity if inclusive else capacity - above)

    everything = sum(map(len, requests)) + above
    assert gain(best) == pytest.approx(max(gain(c) for c in range(above, everything + 1)))


def test_capacities_are_of_each_pool_and_costs_of_all() -> None:
    requests, tenants = [[1], [1], [2], [2]], ["a", "b", "a", "b"]
    options = PlanOptions(tiers=(tier("dram", 3, "2"),))
    with replayed(requests, columns={"tenant": tenants}, pool="tenant") as results:
        planned = plan(results, options)
    assert planned.pools == 2
    assert planned.tiers[0].cost_per_month == 2 * 3 * 2
    assert planned.largest.block_hit_rate == 0.0


def test_a_run_without_bytes_is_planned_in_blocks() -> None:
    with replayed([[1, 2], [1, 2]], bytes_per_token=None) as results:
        planned = plan(results, PlanOptions(tiers=(tier("a", 1),)))
        assert planned.at_goal.capacity_bytes is None
        assert planned.tiers[0].hit_blocks == 1
        with pytest.raises(UsageError, match="--kv-bytes-per-token"):
            plan(results, PlanOptions(tiers=(parse_tier("a=1GiB"),)))


def test_a_hit_rate_above_the_ceiling_is_out_of_reach() -> None:
    with replayed([[1], [1]]) as results:
        assert plan(results, PlanOptions(goal=parse_goal("hit-rate 0.5"))).at_goal.capacity_blocks == 1
        with pytest.raises(UsageError, match=r"out of reach: unlimited storage has .* 0\.5000"):
            plan(results, PlanOptions(goal=parse_goal("hit-rate 0.51")))


def test_goals_and_tiers_read_as_they_are_written() -> None:
    for text in ("request-p99", "request-p99.9", "ceiling-share 95", "hit-rate 0.6"):
        assert parse_goal(text).text == text
    assert parse_goal("request-p99.9").share == Fraction(999, 1000)
    priced = parse_tier("dram=2TiB:4.5")
    assert (priced.name, priced.size.amount, priced.price_per_gib_month) == ("dram", 2 << 40, Fraction(9, 2))
    assert parse_tier("hbm=640GiB").price_per_gib_month is None


@pytest.mark.parametrize("text", ["p99", "request-p0", "hit-rate", "hit-rate 1.5", "ceiling-share 101", ""])
def test_a_goal_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--goal"):
        parse_goal(text)


@pytest.mark.parametrize("text", ["dram", "=2TiB", "dram=2", "dram=2TiB:", "dram=2TiB:free", "dram=2TiB:-1"])
def test_a_tier_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--tier"):
        parse_tier(text)


def test_a_rate_is_at_most_1() -> None:
    assert share("1", "--min-hit-rate") == 1
    with pytest.raises(UsageError, match="at most 1"):
        share("38", "--min-hit-rate")


def test_the_speed_up_is_capped() -> None:
    assert (speed_up(0.0), speed_up(0.75), speed_up(1.0)) == (1.0, 4.0, 1000.0)


@pytest.mark.parametrize(
    "text", ["request-p99", "request-p99.9", "ceiling-share 33.333333", "hit-rate 0.1234567", "hit-rate 1"]
)
def test_a_goal_is_said_as_it_is_given(text: str) -> None:
    assert parse_goal(text).text == text


def test_a_step_beyond_what_a_run_knows_has_no_worth() -> None:
    requests = [[i % 9] for i in range(90)]
    options = PlanOptions(
        parse_goal("ceiling-share 1"),
        (parse_tier("a=3GiB"),),
        step=parse_capacity("2GiB"),
        prefill_tokens_per_second=Fraction(5),
    )
    for bound, known in (("4GiB", False), ("5GiB", True)):
        with replayed(requests, seconds=range(90), max_capacity=bound) as results:
            (tier,) = plan(results, options).tier_steps
        worth = (tier.next_hit_tokens, tier.next_gpu_hours_per_day)
        assert worth == ((0, 0.0) if known else (None, None))

"""A plan in words, shared by the terminal and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvcap.units import format_percent, say_rate, say_size

if TYPE_CHECKING:
    from kvcap.analysis.bootstrap import Interval
    from kvcap.analysis.plan import Plan

PLAN_DEFINITIONS: Final = {
    "capacity": "of each pool; costs, savings and bytes a second are of all pools together",
    "ideal_speed_up": "1 / (1 - token hit rate), at most 1000: a hit costs nothing, nor does decoding",
    "saving": "input tokens that hit / prefill tokens per second of one GPU, times its price",
    "month": "730 hours",
    "break_even_price": "the saving of the next step of capacity, per GiB of it and month",
    "break_even_age": "after so long unused, holding a block has cost more than computing it again",
    "best_size": "the tier's size that saves most over its price, as the last tier",
    "interval": "circular block bootstrap over stretches of consecutive requests, widened for their number",
    "cut_off_share": "reuse missing since the trace begins somewhere, as much as the second half of the "
    "trace owes to the first; what reaches back further than half a trace is not in it",
}


def plan_headline(plan: Plan) -> list[str]:
    """Return the answer in one sentence, and what it brings in another."""
    goal, trust = plan.at_goal, plan.trust
    each = f" for each of {plan.pools} pools" if plan.pools > 1 else ""
    return [
        f"With {say_size(plan.run, goal.capacity_blocks)}{each}, {_goal_words(plan)}.",
        f"There {format_percent(goal.block_hit_rate)} of blocks and {format_percent(goal.token_hit_rate)} of "
        f"tokens hit, of a possible {format_percent(plan.largest.token_hit_rate)}: prefill is up to "
        f"{goal.ideal_speed_up:.2f} times as fast. The {100 * trust.confidence:g} % interval of that "
        f"capacity is {_interval_words(trust.goal_blocks, plan)}.",
    ]


def trust_lines(plan: Plan) -> list[str]:
    """Return how far the plan is to be trusted."""
    trust = plan.trust
    ceilings = ", ".join(f"{100 * row.ceiling:.1f}" for row in trust.prefixes)
    p99 = ", ".join(say_size(plan.run, row.p99_blocks) for row in trust.prefixes)
    percents = ", ".join(str(row.percent) for row in trust.prefixes)
    cut_off = say_rate(trust.cut_off_share)
    return [
        f"Over the first {percents} % of requests: ceiling {ceilings} %; p99 {p99}; about {cut_off} of reuse "
        "cut off at the start.",
        f"{100 * trust.confidence:g} % intervals: ceiling {_percents(trust.ceiling)}, "
        f"p99 {_interval_words(trust.p99_blocks, plan)}, "
        f"at the goal {_percents(trust.block_hit_rate)} of blocks and "
        f"{_percents(trust.token_hit_rate)} of tokens.",
        f"Trust with care: {'; '.join(trust.doubts)}." if trust.doubts else "The trace was long enough.",
    ]


def _goal_words(plan: Plan) -> str:
    goal = plan.goal
    if goal.kind == "ceiling-share":
        return f"the cache serves {goal.number} % of the hits of unlimited storage"
    if goal.kind == "hit-rate":
        return f"the block hit rate reaches {goal.number}"
    return f"{goal.number} % of requests get at least {plan.run.target_percent} % of the hits they could have"


def format_age(seconds: float) -> str:
    """Return a time in its largest unit that keeps it at 1 or more, such as ``37.2 min``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _interval_words(interval: Interval, plan: Plan) -> str:
    return f"{say_size(plan.run, round(interval.low))} to {say_size(plan.run, round(interval.high))}"


def _percents(interval: Interval) -> str:
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"

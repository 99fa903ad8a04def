"""A plan as text or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TextIO

from kvcap.cli.tables import print_table
from kvcap.units import format_percent, format_size

if TYPE_CHECKING:
    from kvcap.analysis.bootstrap import Interval
    from kvcap.analysis.plan import Plan, Step
    from kvcap.analysis.plan_tiers import TierRow

PLAN_SCHEMA: Final = "kvcap.plan/1"

DEFINITIONS: Final = {
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


def write_plan_json(plan: Plan, stream: TextIO) -> None:
    """Write the plan as one JSON document, its fields those of :class:`kvcap.analysis.plan.Plan`."""
    document = {"schema": PLAN_SCHEMA, "definitions": DEFINITIONS, **asdict(plan)}
    json.dump(document, stream, indent=2)
    stream.write("\n")


def write_plan_text(plan: Plan, stream: TextIO) -> None:
    """Write the plan for people: ten lines and one more for each tier."""
    for line in plan_headline(plan):
        print(line, file=stream)
    print_table(_headers(plan), [_step_cells(*pair, plan) for pair in _steps(plan)], stream)
    for row in plan.tiers:
        if row.price_per_gib_month is not None:
            print(_tier_line(row, plan), file=stream)
    for line in (*trust_lines(plan), _definitions_line(plan)):
        print(line, file=stream)


def plan_headline(plan: Plan) -> list[str]:
    """Return the answer in one sentence, and how sure it is in another."""
    goal, trust = plan.goal, plan.trust
    each = f" for each of {plan.pools} pools" if plan.pools > 1 else ""
    return [
        f"{_size(goal.capacity_blocks, plan)}{each} reaches {_goal_words(plan)} "
        f"({100 * trust.confidence:g} % interval {_sizes(trust.goal_blocks, plan)}).",
        f"There {format_percent(goal.block_hit_rate)} of blocks and {format_percent(goal.token_hit_rate)} of "
        f"tokens hit, of a possible {format_percent(plan.unlimited.token_hit_rate)}: prefill is up to "
        f"{goal.ideal_speed_up:.2f} times as fast.",
    ]


def trust_lines(plan: Plan) -> list[str]:
    """Return how far the plan is to be trusted."""
    trust = plan.trust
    ceilings = ", ".join(f"{100 * row.ceiling:.1f}" for row in trust.prefixes)
    p99 = ", ".join(_size(row.p99_blocks, plan) for row in trust.prefixes)
    percents = ", ".join(str(row.percent) for row in trust.prefixes)
    cut_off = "-" if trust.cut_off_share is None else format_percent(trust.cut_off_share)
    return [
        f"Over the first {percents} % of requests: ceiling {ceilings} %; p99 {p99}; about {cut_off} of reuse "
        "cut off at the start.",
        f"{100 * trust.confidence:g} % intervals: ceiling {_percents(trust.ceiling)}, "
        f"p99 {_sizes(trust.p99_blocks, plan)}, "
        f"at the goal {_percents(trust.block_hit_rate)} of blocks and "
        f"{_percents(trust.token_hit_rate)} of tokens.",
        f"Trust with care: {'; '.join(trust.doubts)}." if trust.doubts else "The trace was long enough.",
    ]


def _goal_words(plan: Plan) -> str:
    kind, _, value = plan.goal_text.partition(" ")
    if kind == "ceiling-share":
        return f"{value} % of the hits of unlimited storage"
    if kind == "hit-rate":
        return f"a block hit rate of {value}"
    percent = kind.removeprefix("request-p")
    return f"{plan.run.target_percent} % of its own ceiling for {percent} % of requests"


def _steps(plan: Plan) -> list[tuple[Step, TierRow | None]]:
    return [
        *zip(plan.tier_steps, plan.tiers, strict=True),
        (plan.goal, None),
        (plan.unlimited, None),
    ]


def _headers(plan: Plan) -> list[str]:
    return [
        "Down to",
        "Size",
        "Serves",
        "Sum",
        "Speed-up",
        "Reads",
        "p99",
        "Writes",
        f"Next {plan.step_label}",
        "pays below",
    ]


def _step_cells(step: Step, tier: TierRow | None, plan: Plan) -> list[str]:
    hours, price = step.next_gpu_hours_per_day, step.break_even_price_per_gib_month
    further = f"{step.next_hit_tokens:,} tokens" if hours is None else f"{hours:.3g} GPU-h/day"
    served = ["", "", "", ""]
    if tier is not None:
        served = [
            format_percent(tier.token_share),
            _rate(tier.read_bytes_per_second),
            _rate(tier.read_p99_bytes_per_second),
            _rate(tier.write_bytes_per_second),
        ]
    return [
        step.label if tier is None else tier.name,
        _size(step.capacity_blocks, plan) if tier is None else _tier_size(tier),
        served[0],
        format_percent(step.token_hit_rate),
        f"{step.ideal_speed_up:.2f}x",
        *served[1:],
        further,
        "-" if price is None else f"{price:.3g}",
    ]


def _tier_line(row: TierRow, plan: Plan) -> str:
    parts = [f"{row.name} at {row.price_per_gib_month:g} per GiB-month"]
    if row.cost_per_month is not None:
        parts.append(f"costs {row.cost_per_month:,.0f} a month")
    if row.saves_per_month is not None:
        parts.append(f"saves {row.saves_per_month:,.0f}")
    if row.best_size_blocks is not None:
        best = _size(row.best_size_blocks, plan)
        parts.append(f"earns most at {best}" if row.best_size_blocks else "no size of it pays")
    if row.break_even_age_seconds is not None:
        parts.append(f"a block stops paying after {format_age(row.break_even_age_seconds)} unused")
    return f"{parts[0]} {', '.join(parts[1:])}."


def format_age(seconds: float) -> str:
    """Return a time in its largest unit that keeps it at 1 or more, such as ``37.2 min``."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _definitions_line(plan: Plan) -> str:
    run = plan.run
    traffic = "traffic per day unknown: give --requests-per-day" if plan.days is None else _days(plan)
    return (
        f"Definitions: LRU, {run.touch_order}, blocks of {run.block_size} tokens, "
        f"target {run.target_percent} %, warm-up {run.warm_up_percent} %; {traffic}; a month is 730 h; "
        "Serves and Sum are of tokens."
    )


def _days(plan: Plan) -> str:
    requests = plan.run.requests - plan.run.warm_up_requests
    return f"{requests:,} requests stand for {format_age((plan.days or 0) * 86400)}"


def _size(blocks: float, plan: Plan) -> str:
    size = plan.run.block_bytes
    return f"{blocks:,.0f} blocks" if size is None else format_size(blocks * size)


def _tier_size(row: TierRow) -> str:
    return f"{row.size_blocks:,} blocks" if row.size_bytes is None else format_size(row.size_bytes)


def _sizes(interval: Interval, plan: Plan) -> str:
    return f"{_size(round(interval.low), plan)} to {_size(round(interval.high), plan)}"


def _percents(interval: Interval) -> str:
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def _rate(bytes_per_second: Any) -> str:
    return "-" if bytes_per_second is None else f"{format_size(bytes_per_second)}/s"

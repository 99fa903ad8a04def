"""A plan as text or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TextIO

from kvcap.analysis.plan_words import PLAN_DEFINITIONS, format_age, plan_headline, size_words, trust_lines
from kvcap.cli.tables import print_table
from kvcap.units import format_percent, format_size

if TYPE_CHECKING:
    from kvcap.analysis.plan import Plan, Step
    from kvcap.analysis.plan_tiers import TierRow

PLAN_SCHEMA: Final = "kvcap.plan/1"


def write_plan_json(plan: Plan, stream: TextIO) -> None:
    """Write the plan as one JSON document, its fields those of :class:`kvcap.analysis.plan.Plan`."""
    document = {"schema": PLAN_SCHEMA, "definitions": PLAN_DEFINITIONS, **asdict(plan)}
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


def _steps(plan: Plan) -> list[tuple[Step, TierRow | None]]:
    return [
        *zip(plan.tier_steps, plan.tiers, strict=True),
        (plan.goal, None),
        (plan.largest, None),
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
        size_words(step.capacity_blocks, plan.run) if tier is None else _tier_size(tier),
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
        best = size_words(row.best_size_blocks, plan.run)
        parts.append(f"earns most at {best}" if row.best_size_blocks else "no size of it pays")
    if row.break_even_age_seconds is not None:
        parts.append(f"a block stops paying after {format_age(row.break_even_age_seconds)} unused")
    return f"{parts[0]} {', '.join(parts[1:])}."


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


def _tier_size(row: TierRow) -> str:
    return f"{row.size_blocks:,} blocks" if row.size_bytes is None else format_size(row.size_bytes)


def _rate(bytes_per_second: Any) -> str:
    return "-" if bytes_per_second is None else f"{format_size(bytes_per_second)}/s"

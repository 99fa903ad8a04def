"""Sections of a report about capacity: hit rate, speed-up, what requests required, tiers."""

from __future__ import annotations

from fractions import Fraction
from math import floor, log2
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kvcap.analysis.plan_value import speed_up
from kvcap.analysis.plan_words import format_age
from kvcap.analysis.policy_answer import fifo_falls
from kvcap.analysis.report_context import rows_table
from kvcap.report import BarChart, LineChart, Section, Series, ShareBar, Table, linear_axis
from kvcap.report.axes import percent_text, times_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcap.analysis.plan_tiers import TierRow
    from kvcap.analysis.report_context import ReportContext
    from kvcap.kernels.arrays import Int64Array

_POINTS: Final = 240
_HISTOGRAM_BARS: Final = 26
_POLICY_LINES: Final = 3


def curve_sections(context: ReportContext) -> Iterator[Section]:
    """Yield hit rate and ideal prefill speed-up over capacity."""
    capacities = _capacities(context).tolist()
    rows = context.results.query("hit_rate_curve", capacities_blocks=capacities).to_pylist()
    together = [row for row in rows if row["pool"] is None]
    yield _hit_rate_section(context, together)
    yield _speed_up_section(context, together)


def _hit_rate_section(context: ReportContext, rows: list[dict[str, Any]]) -> Section:
    """Return hit rate over capacity with the ceiling, tiers and requirements marked."""
    ceiling = context.plan.largest.block_hit_rate
    points = [(context.shown(row["capacity_blocks"]), row["block_hit_rate"]) for row in rows]
    chart = LineChart(
        title="Block hit rate over capacity",
        x=context.capacity_axis(),
        y=linear_axis("Block hit rate", ceiling, percent_text),
        series=[Series("LRU", points), *_policy_series(context)],
        marks=_marks(context),
        level=(ceiling, f"ceiling {percent_text(ceiling)}"),
        filled=True,
    )
    at_90 = context.figures.capacity_for_ceiling_share(Fraction(9, 10))
    words = (
        f"Of {context.figures.total_blocks:,} blocks looked up, {percent_text(ceiling)} were seen before and "
        f"could hit. {context.size(at_90)} already serves 90 % of that; beyond "
        f"{context.size(context.last_useful_blocks)} nothing more is "
        f"{'gained' if context.run.bound_blocks is None else 'known'}."
    )
    return Section("Hit rate over capacity", words, [chart], _curve_table(context, rows[::4]))


def policies_section(context: ReportContext) -> Section | None:
    """Return the token hit rates of the policies side by side; None where LRU alone was replayed."""
    rows = context.policies
    names = list(dict.fromkeys(row.policy for row in rows))
    if not [name for name in names if name != "lru"]:
        return None
    rates = {(row.label, row.policy): row.token_hit_rate for row in rows}
    lines: list[dict[str, Any]] = [
        {"capacity": label, **{name: rates[label, name] for name in names}}
        for label in dict.fromkeys(row.label for row in rows)
    ]
    shown: dict[str, Any] = {"Capacity": lambda line: line["capacity"]}
    for name in names:
        shown[_policy_name(name)] = lambda line, name=name: percent_text(line[name] or 0)
    words = "Token hit rates of each policy that was simulated, under the rules of the run."
    falls = fifo_falls(rows)
    if falls:
        words += f" FIFO hits less at {falls[0].larger} than at {falls[0].smaller}: it need not improve."
    return Section("Policies", words, table=rows_table("policies", lines, shown))


def _speed_up_section(context: ReportContext, rows: list[dict[str, Any]]) -> Section:
    """Return the ideal prefill speed-up over capacity."""
    plan = context.plan
    points = [(context.shown(row["capacity_blocks"]), speed_up(row["token_hit_rate"] or 0.0)) for row in rows]
    top = plan.largest.ideal_speed_up
    chart = LineChart(
        title="Ideal prefill speed-up over capacity",
        x=context.capacity_axis(),
        y=linear_axis("Times as fast", top, times_text, low=1.0),
        series=[Series("Speed-up", points, colour=3)],
        level=(top, f"at most {times_text(top)}"),
        filled=True,
    )
    words = (
        f"If hits cost nothing, prefill work shrinks by 1 / (1 - token hit rate): "
        f"{times_text(plan.at_goal.ideal_speed_up)} at {context.size(context.goal_blocks)}."
    )
    return Section("Ideal prefill speed-up", words, [chart], half=True)


def required_section(context: ReportContext) -> Section:
    """Return the distribution of the capacity that requests required."""
    figures = context.figures
    required = figures.ascending_required_blocks
    nothing = int((required == 0).sum())
    half, most = (context.size(figures.percentile(Fraction(percent, 100))) for percent in (50, 99))
    words = (
        f"The capacity at which each request reaches {context.run.target_percent} % of the hits that it "
        f"could have. Half of the requests need {half} or less, 99 % of them {most}."
    )
    if nothing >= required.size / 1000:
        words += f" {percent_text(nothing / required.size)} had nothing to reuse and need none."
    chart = _required_chart(context, required[nothing:])
    percents = (50, 75, 90, 95, 99, 99.9, 100)
    rows = [
        {"percent": percent, "required_blocks": figures.percentile(Fraction(str(percent)) / 100)}
        for percent in percents
    ]
    shown = {
        "Requests": lambda row: f"{row['percent']:g} %",
        "need at most": lambda row: context.size(row["required_blocks"]),
    }
    table = rows_table("required_capacity", rows, shown)
    return Section("Capacity that requests required", words, [chart] if chart else [], table, half=True)


def tiers_section(context: ReportContext) -> Section | None:
    """Return what each tier serves; None without tiers."""
    tiers = context.plan.tiers
    if not tiers:
        return None
    left = 1 - sum(tier.token_share for tier in tiers)
    parts = [*((tier.name, tier.token_share) for tier in tiers), ("computed again or new", left)]
    rows = [_tier_dict(tier) for tier in tiers]
    shown: dict[str, Any] = {
        "Tier": lambda row: row["name"],
        "Size": lambda row: _bytes(row["size_bytes"]) or context.size(row["size_blocks"]),
        "Serves": lambda row: percent_text(row["token_share"]),
        "Reads, mean": lambda row: _rate(row["read_bytes_per_second"]),
        "Reads, p99": lambda row: _rate(row["read_p99_bytes_per_second"]),
        "Writes": lambda row: _rate(row["write_bytes_per_second"]),
    }
    if any(tier.cost_per_month is not None for tier in tiers):
        shown["Costs a month"] = lambda row: _money(row["cost_per_month"])
        shown["Saves a month"] = lambda row: _money(row["saves_per_month"])
    words = (
        "Which tier the prompt tokens come from, and the bandwidth that it needs: the mean, and the "
        f"99th percentile over windows of {format_age(context.plan.window_seconds)}."
        if context.figures.time_us is not None
        else "Which tier the prompt tokens come from. The log has no timestamps, so no bandwidth is known."
    )
    chart = ShareBar("Prompt tokens by tier", parts)
    return Section("Tiers", words, [chart], rows_table("tiers", rows, shown), open_table=True)


def worth_section(context: ReportContext) -> Section | None:
    """Return what the next step of capacity is worth; None where hits have no worth."""
    plan = context.plan
    steps = [step for step in (*plan.tier_steps, plan.at_goal) if step.next_gpu_hours_per_day is not None]
    if not steps:
        return None
    rows = [dict(vars(step)) for step in sorted(steps, key=lambda step: step.capacity_blocks)]
    shown: dict[str, Any] = {
        "At": lambda row: f"{row['label']} {context.size(row['capacity_blocks'])}",
        "Speed-up": lambda row: times_text(row["ideal_speed_up"]),
        "GPU-h/day": lambda row: f"{row['next_gpu_hours_per_day']:.3g}",
    }
    words = f"Prefill that the next {plan.step_label} would save, in GPU-hours a day."
    if steps[0].break_even_price_per_gib_month is not None:
        shown["Pays below"] = lambda row: f"{row['break_even_price_per_gib_month']:.3g}"
        words += " It pays where a GiB costs less a month than the last column says."
    title = f"What the next {plan.step_label} is worth"
    return Section(title, words, table=rows_table("worth", rows, shown), open_table=True, half=True)


def _capacities(context: ReportContext) -> Int64Array:
    """Return capacities along the axis, evenly on its scale, with the corners that people ask for."""
    axis = context.capacity_axis()
    low, high = axis.low / context.shown(1), axis.high / context.shown(1)
    spread = np.geomspace(max(1.0, low), high, _POINTS)
    marked = [blocks for blocks, _ in _marked_blocks(context)]
    capacities = np.unique(np.concatenate([np.round(spread), marked]).astype(np.int64))
    bound = context.run.bound_blocks
    # An axis is never narrower than a factor of two, which may lead past the bound.
    return capacities if bound is None else capacities[capacities <= bound]


def _policy_series(context: ReportContext) -> list[Series]:
    """Return a line for each of the first simulated policies but LRU, at its own capacities."""
    points: dict[str, list[tuple[float, float]]] = {}
    axis = context.capacity_axis()
    for row in sorted(context.policies, key=lambda row: row.capacity_blocks):
        at = context.shown(row.capacity_blocks)
        if row.policy != "lru" and axis.low <= at <= axis.high and row.block_hit_rate is not None:
            points.setdefault(row.policy, []).append((at, row.block_hit_rate))
    lines = list(points.items())[:_POLICY_LINES]
    return [Series(_policy_name(name), line, colour=colour) for colour, (name, line) in enumerate(lines, 2)]


def _policy_name(policy: str) -> str:
    return policy.upper() if policy in ("lru", "fifo", "lfu", "slru") else policy


def _marked_blocks(context: ReportContext) -> list[tuple[int, str]]:
    """Return the tiers' sums, and the p90 and p99 of what requests required, ascending."""
    marks = [
        (tier.last_blocks, f"{step.label} {context.size(tier.last_blocks)}")
        for tier, step in zip(context.plan.tiers, context.plan.tier_steps, strict=True)
    ]
    for percent in (90, 99):
        blocks = context.figures.percentile(Fraction(percent, 100))
        marks.append((blocks, f"p{percent} of requests {context.size(blocks)}"))
    goal = context.plan.goal
    if goal.kind != "request-percentile":
        marks.append((context.goal_blocks, f"{goal.text}: {context.size(context.goal_blocks)}"))
    return sorted(mark for mark in marks if mark[0] > 0)


def _marks(context: ReportContext) -> list[tuple[float, str]]:
    low = context.capacity_axis().low
    return [
        (context.shown(blocks), label)
        for blocks, label in _marked_blocks(context)
        if context.shown(blocks) >= low
    ]


def _curve_table(context: ReportContext, rows: list[dict[str, Any]]) -> Table:
    shown = {
        "Capacity": lambda row: context.size(row["capacity_blocks"]),
        "Blocks": lambda row: f"{row['capacity_blocks']:,}",
        "Block hit rate": lambda row: percent_text(row["block_hit_rate"] or 0),
        "of the ceiling": lambda row: percent_text(row["reuse_hit_rate"] or 0),
        "Token hit rate": lambda row: percent_text(row["token_hit_rate"] or 0),
    }
    return rows_table("hit_rate_curve", rows, shown)


def _required_chart(context: ReportContext, some: Int64Array) -> BarChart | None:
    """Return the histogram of requirements above 0, ascending, in ranges of powers of two or wider."""
    if some.size == 0:
        return None
    low, high = floor(log2(context.shown(int(some[0])))), floor(log2(context.shown(int(some[-1]))))
    low = max(low, high - _HISTOGRAM_BARS + 1)
    powers = np.clip(np.floor(np.log2(some * context.shown(1))), low, high).astype(np.int64)
    counts = np.bincount(powers - low, minlength=high - low + 1)
    sizes = [context.size(2.0**power / context.shown(1)) for power in range(low, high + 2)]
    shares = counts / context.figures.blocks.size
    marks = []
    for percent in (50, 90, 99):
        blocks = context.figures.percentile(Fraction(percent, 100))
        if blocks > 0:
            marks.append((max(0.0, log2(context.shown(blocks)) - low), f"p{percent}"))
    return BarChart(
        title="Requests by required capacity",
        x_title="Required capacity, from",
        labels=sizes[:-1],
        values=[float(share) for share in shares],
        y=linear_axis("Share of requests", float(shares.max()), percent_text),
        marks=marks,
        tips=[
            f"{sizes[i]} to {sizes[i + 1]}\n{percent_text(shares[i])} of requests ({counts[i]:,})"
            for i in range(len(shares))
        ],
    )


def _tier_dict(tier: TierRow) -> dict[str, Any]:
    return dict(vars(tier))


def _bytes(value: float | None) -> str:
    from kvcap.report.axes import size_text

    return "" if value is None else size_text(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{_bytes(value)}/s"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

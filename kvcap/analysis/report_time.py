"""Sections of a report about time: traffic, age at reuse, times to live."""

from __future__ import annotations

from collections import defaultdict
from datetime import timezone
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from kvcap.analysis.plan_words import format_age
from kvcap.analysis.report_context import rows_table
from kvcap.report import (
    BarChart,
    HeatMap,
    LineChart,
    Section,
    Series,
    linear_axis,
    linear_size_axis,
    time_axis,
)
from kvcap.report.axes import count_text, is_clock, percent_text

if TYPE_CHECKING:
    from kvcap.analysis.report_context import ReportContext

_WINDOWS_SECONDS: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400)
_MOST_WINDOWS: Final = 96
_TTLS_SECONDS: Final = (10, 60, 300, 900, 1800, 3600, 7200, 21600, 86400, 604800)


def time_section(context: ReportContext) -> Section | None:
    """Return traffic, hit rate and working set over time; None without timestamps."""
    span = context.figures.span_seconds
    if span is None:
        return None
    window = next((w for w in _WINDOWS_SECONDS if span / w <= _MOST_WINDOWS), _WINDOWS_SECONDS[-1])
    rows = [
        row
        for row in context.results.query(
            "by_hour", window_seconds=window, capacity_blocks=context.goal_blocks
        ).to_pylist()
        if row["pool"] is None and row["window_start"] is not None
    ]
    every = format_age(window)
    words = (
        f"Every {every}: requests, and the hit rate at {context.size(context.goal_blocks)} under its ceiling."
    )
    if _knows_working_sets(rows):
        words += " The working set is the storage that the requests of that window alone touch."
    return Section("Over time", words, _time_charts(context, rows, window), rows_table("over_time", rows))


def age_section(context: ReportContext) -> Section | None:
    """Return how old a block is when it hits; None without timestamps or hits."""
    if context.figures.span_seconds is None:
        return None
    rows = [
        row
        for row in context.results.query("reuse_time").to_pylist()
        if row["pool"] is None and row["is_known"]
    ]
    last = max((i for i, row in enumerate(rows) if row["hit_blocks"]), default=None)
    if last is None:
        return None
    rows = rows[: last + 1]
    labels = [_age_range(row) for row in rows]
    median = next((row for row in rows if row["share_so_far"] >= 0.5), rows[-1])
    end = median["to_seconds"]
    words = (
        f"The time since a block was last used when it hits. Half of all reuse comes within "
        f"{format_age(end)}."
        if end is not None
        else "The time since a block was last used when it hits."
    )
    values = [row["share_of_hits"] or 0.0 for row in rows]
    chart = BarChart(
        title="Hits by age of the block",
        x_title="Unused for",
        labels=labels,
        values=values,
        y=linear_axis("Share of reuse", max(values), percent_text),
        tips=[
            f"{label}\n{percent_text(value)} of reuse\n{percent_text(row['share_so_far'])} so far"
            for label, value, row in zip(labels, values, rows, strict=True)
        ],
    )
    return Section("Age at reuse", words, [chart], rows_table("reuse_age", rows), half=True)


def ttl_section(context: ReportContext) -> Section | None:
    """Return hit rates over time to live and capacity; None without timestamps."""
    span = context.figures.span_seconds
    if span is None:
        return None
    ttls = [ttl for ttl in _TTLS_SECONDS if ttl < span]
    rows = [
        row
        for row in context.results.query(
            "ttl_surface",
            ttls_seconds=[*ttls, "none"],
            capacities_blocks=_capacities(context),
        ).to_pylist()
        if row["pool"] is None
    ]
    if not rows:
        return None
    by_ttl: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_ttl[float("inf") if row["ttl_seconds"] is None else row["ttl_seconds"]].append(row)
    grid = [sorted(by_ttl[ttl], key=lambda row: row["capacity_blocks"]) for ttl in sorted(by_ttl)]
    chart = HeatMap(
        title="Block hit rate over time to live and capacity",
        x_title="Capacity",
        y_title="Time to live",
        columns=[context.size(row["capacity_blocks"]) for row in grid[0]],
        rows=["none" if ttl == float("inf") else format_age(ttl) for ttl in sorted(by_ttl)],
        values=[[row["block_hit_rate"] or 0.0 for row in line] for line in grid],
    )
    words = (
        "Block hit rate if a block also expires so long after its last use. Where a row equals the one "
        "above it, the time to live costs nothing."
    )
    return Section("Time to live", words, [chart], rows_table("ttl_surface", rows), half=True)


def _time_charts(context: ReportContext, rows: list[dict[str, Any]], window: int) -> list[LineChart]:
    starts = [row["window_start"].replace(tzinfo=timezone.utc) for row in rows]
    times = [moment.timestamp() for moment in starts]
    x = time_axis(
        "Time (UTC)" if is_clock(times[0]) else "Time since the trace began", times[0], times[-1] + window
    )
    requests = _with_idle(times, [row["requests"] for row in rows], window)
    hit_rates = [(time, row["block_hit_rate"] or 0.0) for time, row in zip(times, rows, strict=True)]
    ceilings = [(time, row["ceiling_block_hit_rate"] or 0.0) for time, row in zip(times, rows, strict=True)]
    every = format_age(window)
    charts = [
        LineChart(
            title="Requests over time",
            x=x,
            y=linear_axis(f"Requests in {every}", max(y for _, y in requests), count_text),
            series=[Series("Requests", requests)],
            filled=True,
            flat=True,
        ),
        LineChart(
            title="Hit rate over time",
            x=x,
            y=linear_axis("Block hit rate", max(y for _, y in ceilings), percent_text),
            series=[
                Series(f"at {context.size(context.goal_blocks)}", hit_rates),
                Series(f"{context.plan.largest.label} storage", ceilings, colour=2),
            ],
            flat=True,
        ),
    ]
    if _knows_working_sets(rows):
        held = [
            (time, context.shown(row["working_set_blocks"])) for time, row in zip(times, rows, strict=True)
        ]
        touched, most = f"Distinct blocks touched in {every}", max(y for _, y in held)
        axis = linear_size_axis(touched, most) if context.in_bytes else linear_axis(touched, most, count_text)
        working_set = Series("Working set", held, colour=3)
        charts.append(
            LineChart("Working set over time", x=x, y=axis, series=[working_set], filled=True, flat=True)
        )
    return charts


def _knows_working_sets(rows: list[dict[str, Any]]) -> bool:
    """Tell whether the query says what windows touch, which it does for all of them or for none."""
    return all(row["working_set_blocks"] is not None for row in rows)


def _with_idle(times: list[float], counts: list[int], window: int) -> list[tuple[float, float]]:
    """Return counts with a zero for every window in which nothing came."""
    known = dict(zip(times, counts, strict=True))
    n_windows = round((times[-1] - times[0]) / window) + 1
    return [(times[0] + i * window, float(known.get(times[0] + i * window, 0))) for i in range(n_windows)]


def _capacities(context: ReportContext) -> list[int]:
    """Return six capacities from where a tenth of the ceiling is served to where all of it is."""
    wanted = [
        context.figures.capacity_for_ceiling_share(Fraction(percent, 100)) for percent in (10, 50, 90, 99)
    ]
    return sorted({blocks for blocks in [*wanted, context.goal_blocks, context.last_useful_blocks] if blocks})


def _age_range(row: dict[str, Any]) -> str:
    if row["to_seconds"] is None:
        return f"over {format_age(row['over_seconds'])}"
    return f"≤ {format_age(row['to_seconds'])}"

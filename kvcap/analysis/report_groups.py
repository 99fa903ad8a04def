"""Sections of a report about who: pools, tenants, models, sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from kvcap.analysis.report_context import rows_table
from kvcap.report import Section
from kvcap.report.axes import percent_text
from kvcap.schema import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcap.analysis.report_context import ReportContext

_MOST_GROUPS: Final = 200
_SESSIONS: Final = 15


def group_sections(context: ReportContext) -> Iterator[Section]:
    """Yield a table for every column that splits the requests into a few groups."""
    requests = context.results.table("requests")
    kept = [name for name in requests.column_names if name not in REQUESTS.names]
    sessions = requests.column("session_id")
    for column in ("pool", "model", *kept):
        values = requests.column(column)
        if 2 <= pc.count_distinct(values).as_py() <= _MOST_GROUPS and not values.equals(sessions):
            yield _group_section(context, column)


def session_section(context: ReportContext) -> Section | None:
    """Return the sessions that hold most storage; None where the log names no sessions."""
    sessions = context.results.table("requests").column("session_id")
    if pc.count_distinct(sessions).as_py() < 2:
        return None
    rows = context.results.query(
        "top_sessions", capacity_blocks=context.goal_blocks, rows=_SESSIONS
    ).to_pylist()
    if not rows:
        return None
    knows_held = rows[0]["held_blocks"] is not None
    shown: dict[str, Any] = {
        "Session": lambda row: row["session_id"] or "(none)",
        "Requests": lambda row: f"{row['requests']:,}",
    }
    if knows_held:
        shown["Holds"] = lambda row: context.size(row["held_blocks"])
        shown["of all held"] = lambda row: percent_text(row["share_of_held"] or 0)
    shown |= {
        "of all hits": lambda row: percent_text(row["share_of_all_hits"] or 0),
        "Makes the p99": lambda row: f"{row['p99_requests']:,} requests",
        "Needs at most": lambda row: context.size(row["max_required_blocks"]),
    }
    size = context.size(context.goal_blocks)
    words = (
        f"The sessions that hold most of a cache of {size}, on the mean over time, and what they earn for it."
        if knows_held
        else f"The sessions with most of the hits of a cache of {size}."
    )
    return Section("Top sessions", words, table=rows_table("top_sessions", rows, shown), open_table=True)


def _group_section(context: ReportContext, column: str) -> Section:
    rows = context.results.query(
        "by_group", column_name=column, capacity_blocks=context.goal_blocks
    ).to_pylist()
    rows.sort(key=lambda row: -row["input_tokens"])
    title = context.run.pool_column or "pool" if column == "pool" else column
    shown: dict[str, Any] = {
        title.capitalize(): lambda row: row["group_value"] or "(none)",
        "Requests": lambda row: f"{row['requests']:,}",
        "Input tokens": lambda row: f"{row['input_tokens']:,}",
        "Ceiling": lambda row: percent_text(row["ceiling_block_hit_rate_in_pool"] or 0),
        "Block hit rate": lambda row: percent_text(row["block_hit_rate_in_pool"] or 0),
        "of all hits": lambda row: percent_text(row["share_of_all_hits"] or 0),
        "Request p50": lambda row: context.size(row["required_p50_blocks_in_pool"]),
        "Request p99": lambda row: context.size(row["required_p99_blocks_in_pool"]),
    }
    own = all(row["is_own_pool"] for row in rows)
    size = context.size(context.goal_blocks)
    words = (
        f"Each {title} has a cache of its own, here of {size}."
        if own
        else f"What each {title} gets out of the cache that all share, at {size}. Alone it would get "
        "something else."
    )
    return Section(f"By {title}", words, table=rows_table(f"by_{title}", rows, shown), open_table=True)

"""The report of a replay: the answer first, then the pictures behind it, definitions last."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from kvcap.analysis.answer_json import DEFINITIONS
from kvcap.analysis.figures import load_figures
from kvcap.analysis.plan import plan
from kvcap.analysis.plan_options import PlanOptions
from kvcap.analysis.plan_words import PLAN_DEFINITIONS, plan_headline, trust_lines
from kvcap.analysis.policy_answer import policy_rows
from kvcap.analysis.report_capacity import (
    curve_sections,
    policies_section,
    required_section,
    tiers_section,
    worth_section,
)
from kvcap.analysis.report_context import ReportContext, rows_table
from kvcap.analysis.report_explained import explained_section
from kvcap.analysis.report_groups import group_sections, session_section
from kvcap.analysis.report_time import age_section, time_section, ttl_section
from kvcap.report import Page, Section
from kvcap.report.axes import count_text, percent_text, times_text

if TYPE_CHECKING:
    from kvcap.queries import Results, RunInfo


def report(results: Results, options: PlanOptions | None = None, *, title: str | None = None) -> Page:
    """Return the report of a replay, to be rendered by :func:`kvcap.report.render`.

    Parameters
    ----------
    results
        An open replay.
    options
        The goal, the tiers, and what computing costs.
    title
        What was replayed, in the reader's words; None names the files.

    Raises
    ------
    UsageError
        If the goal is out of reach, nothing was measured, or a size does not fit the run.
    """
    figures = load_figures(results)
    context = ReportContext(
        results=results,
        plan=plan(results, options, figures=figures),
        figures=figures,
        policies=policy_rows(results, omit_underfilled=False).get(None, ()),
    )
    run, planned = context.run, context.plan
    tiles = [
        ("Capacity for the goal", context.size(planned.at_goal.capacity_blocks)),
        ("Block hit rate there", percent_text(planned.at_goal.block_hit_rate)),
        ("Ceiling", percent_text(planned.largest.block_hit_rate)),
        ("Ideal prefill speed-up", times_text(planned.at_goal.ideal_speed_up)),
        ("Requests", f"{run.requests - run.warm_up_requests:,}"),
        ("Input tokens", count_text(figures.total_input_tokens)),
    ]
    return Page(
        title=title or ", ".join(PurePath(source).name for source in run.reading.sources),
        subtitle="KV cache capacity",
        answer=[*plan_headline(planned), trust_lines(planned)[-1]],
        figures=tiles,
        sections=_sections(context),
        footnotes=[
            ("Definitions", _definitions()),
            ("Provenance", _provenance(run)),
        ],
    )


def _sections(context: ReportContext) -> list[Section]:
    sections = [
        *curve_sections(context),
        required_section(context),
        policies_section(context),
        tiers_section(context),
        worth_section(context),
        explained_section(context),
        _trust_section(context),
        time_section(context),
        age_section(context),
        ttl_section(context),
        *group_sections(context),
        session_section(context),
    ]
    return [section for section in sections if section is not None]


def _trust_section(context: ReportContext) -> Section:
    """Return the headline numbers over growing parts of the trace."""
    trust = context.plan.trust
    rows = [dict(vars(row)) for row in trust.prefixes]
    shown: dict[str, Any] = {
        "First requests": lambda row: f"{row['percent']} %",
        "Ceiling": lambda row: percent_text(row["ceiling"]),
        "Request p99": lambda row: context.size(row["p99_blocks"]),
    }
    words = " ".join(trust_lines(context.plan)[1:])
    if trust.cut_off_share is not None:
        words += f" About {percent_text(trust.cut_off_share)} of reuse is cut off at the start of the trace."
    return Section(
        "How far to trust this", words, table=rows_table("trust", rows, shown), open_table=True, half=True
    )


def _definitions() -> list[tuple[str, str]]:
    return [(name.replace("_", " "), words) for name, words in (DEFINITIONS | PLAN_DEFINITIONS).items()]


def _provenance(run: RunInfo) -> list[tuple[str, str]]:
    reading = run.reading
    lines = [
        ("logs", ", ".join(reading.sources)),
        ("format", f"{reading.format_name} ({run.kind})"),
        ("requests", f"{run.requests:,}, of which the first {run.warm_up_requests:,} only fill the cache"),
        ("block", f"{run.block_size:,} tokens, partial last block: {run.partial_block}"),
        ("bytes per token", run.kv_bytes_per_token or "unknown"),
        ("policy", f"LRU, {run.touch_order}"),
        ("target", f"{run.target_percent} % of a request's own ceiling"),
        ("pools", run.pool_column or "one"),
        ("replayed", f"{run.created_at} by kvcap {run.kvcap_version}"),
    ]
    if run.sizing is not None:
        lines.append(("model", run.sizing.description))
    left_out = sum(reading.skipped.values()) + reading.bad_records
    if left_out:
        lines.append(("left out", f"{left_out:,} records"))
    return [*lines, *(("note", notice) for notice in reading.notices)]

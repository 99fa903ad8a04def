"""The section of a report about what the caches really did, where the run was explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcap.analysis.explain.words import CAUSES
from kvcap.analysis.report_context import rows_table
from kvcap.report import Section
from kvcap.report.axes import percent_text

if TYPE_CHECKING:
    from kvcap.analysis.report_context import ReportContext


def explained_section(context: ReportContext) -> Section | None:
    """Return what became of all prompt tokens; None where the run was not explained."""
    if "explained" not in context.results.table_names:
        return None
    steps = [row for row in context.results.query("explain_waterfall").to_pylist() if row["tokens"]]
    shown: dict[str, Any] = {
        "Prompt tokens": lambda row: CAUSES[row["cause"]],
        "Tokens": lambda row: f"{row['tokens']:,}",
        "Share": lambda row: percent_text(row["share_of_input_tokens"]),
    }
    return Section(
        "What the caches really did",
        " ".join(_words(context)),
        table=rows_table("explained", steps, shown),
        open_table=True,
        half=True,
    )


def _words(context: ReportContext) -> list[str]:
    limits = context.results.table("limits").to_pylist()
    capacities = sorted({row["capacity_blocks"] for row in limits} - {None})
    said = []
    if capacities:
        sizes = " to ".join(context.size(blocks) for blocks in dict.fromkeys((capacities[0], capacities[-1])))
        said.append(f"What the log says of hits is explained by a capacity of {sizes} each.")
    ttls = {row["ttl_us"] for row in limits} - {None}
    said += [f"Blocks are gone {ttl / 1e6:g} s after their last use." for ttl in ttls]
    restarts = context.results.table("restarts").num_rows
    if restarts:
        said.append(f"{restarts:,} restarts show.")
    return said or ["No limit of the caches is visible in what the log says of hits."]

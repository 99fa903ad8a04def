"""The account of a reading, in lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcap.formats.base import ReadReport


def reading_lines(report: ReadReport) -> list[str]:
    """Return what a user should know about how logs were read, one sentence a line."""
    lines = [f"read as {report.format_name}: {report.records:,} records, {report.requests:,} requests"]
    lines += [f"left out {count:,}: {reason}" for reason, count in report.skipped.items()]
    if report.bad_records:
        lines.append(f"left out {report.bad_records:,} bad records, such as {report.bad_examples[0]}")
    if report.overfull_requests:
        extra = "more ids than their length fills: each of those weighs 1 token"
        lines.append(f"{report.overfull_requests:,} requests have {extra}")
    if report.underfull_requests:
        lines.append(f"{report.underfull_requests:,} requests have fewer ids than blocks")
    if report.backward_timestamps:
        lines.append(f"{report.backward_timestamps:,} requests are earlier than the one before them")
    return [*lines, *report.notices]

"""The answer of a routing what-if as text, JSON or CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, TextIO

from kvcap.analysis.routing import RouteRow
from kvcap.cli.tables import print_table
from kvcap.units import format_percent, format_size

if TYPE_CHECKING:
    from kvcap.analysis.routing import RoutingAnswer

SCHEMA: Final = "kvcap.route/1"
SHARED: Final = "shared pool"

_HEADERS: Final = (
    "Instances",
    "Dealing",
    "Block hit",
    "Token hit",
    "Ceiling",
    "Copies held",
    "Peak requests",
    "Peak prompts",
    "Peak computed",
    "Equals shared at",
)


def write_json(answer: RoutingAnswer, stream: TextIO) -> None:
    """Write the answer as one JSON document; the row without a policy is the shared pool."""
    json.dump({"schema": SCHEMA, **asdict(answer)}, stream, indent=2)
    stream.write("\n")


def write_csv(answer: RoutingAnswer, stream: TextIO) -> None:
    """Write a line per row, without the instances one by one."""
    names = [field.name for field in fields(RouteRow) if field.name != "per_instance"]
    writer = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in answer.rows:
        writer.writerow(_flat(row))


def write_text(answer: RoutingAnswer, stream: TextIO) -> None:
    """Write the answer for people."""
    for line in _heading(answer):
        print(line, file=stream)
    print(file=stream)
    print_table(_HEADERS, [_cells(row, answer) for row in answer.rows], stream, left=2)
    print(file=stream)
    for line in _legend(answer):
        print(line, file=stream)


def _heading(answer: RoutingAnswer) -> list[str]:
    first = (
        f"{answer.requests:,} requests, {answer.measured_requests:,} of them measured: {answer.blocks:,} "
        f"blocks of {answer.block_size:,} tokens"
    )
    each = _size(answer.capacity_blocks, answer)
    return [first, f"dealt to instances with {each} each, against one shared pool of the same total"]


def _cells(row: RouteRow, answer: RoutingAnswer) -> list[str]:
    copies = row.held_blocks / row.different_held_blocks if row.different_held_blocks else None
    return [
        str(row.instances),
        row.policy or f"{SHARED}, {_size(row.capacity_blocks, answer)}",
        _rate(row.block_hit_rate),
        _rate(row.token_hit_rate),
        _rate(row.ceiling_block_hit_rate),
        _times(copies),
        _times(row.requests_peak),
        _times(row.input_tokens_peak),
        _times(row.computed_tokens_peak),
        _matching(row, answer),
    ]


def _matching(row: RouteRow, answer: RoutingAnswer) -> str:
    if row.policy is None or row.policy == "prefix":
        return "-"
    if row.matching_capacity_blocks is None:
        return "never"
    return f"{_size(row.matching_capacity_blocks, answer)} each"


def _legend(answer: RoutingAnswer) -> list[str]:
    lines = [
        "Ceiling: unlimited caches.  Copies held: blocks in all caches at the end, per different one.",
        "Peak: the busiest instance against the mean (computed: prompt tokens that did not hit).",
        "Equals shared at: size of each cache at which this dealing hits as many blocks as the shared pool.",
    ]
    if any(row.policy in ("least-loaded", "prefix") for row in answer.rows):
        span = "in the load window" if answer.has_load_window else "in the whole stream so far"
        lines.append(f"Load of an instance: prompt tokens that it was dealt {span}.")
    if any(row.policy == "prefix" for row in answer.rows):
        lines.append("prefix knows at once what every instance holds; routers that learn it late hit less.")
    return lines


def _flat(row: RouteRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _size(blocks: int, answer: RoutingAnswer) -> str:
    if answer.block_bytes is not None:
        return format_size(blocks * answer.block_bytes)
    return f"{blocks:,} blocks"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else format_percent(rate)


def _times(multiple: float | None) -> str:
    return "-" if multiple is None else f"{multiple:.2f}x"

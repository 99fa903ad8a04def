"""The answer of a replay as text, JSON or CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, fields
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, TextIO

from kvcap.analysis.answer import HEADLINE_PERCENT, CapacityRow
from kvcap.analysis.answer_json import answer_to_dict, percentile_name
from kvcap.cli.policy_text import print_policies, rules_lines, write_policy_csv
from kvcap.cli.tables import print_table
from kvcap.units import format_percent, format_size

if TYPE_CHECKING:
    from kvcap.analysis.answer import Answer, CapacityPercentiles, PoolAnswer
    from kvcap.queries import RunInfo


def write_json(answer: Answer, stream: TextIO) -> None:
    """Write the answer as one JSON document."""
    json.dump(answer_to_dict(answer), stream, indent=2)
    stream.write("\n")


def write_csv(answer: Answer, stream: TextIO) -> None:
    """Write the capacity rows as CSV, one line per pool and capacity; pool is empty for all together.

    Where policies were simulated, their rows stand in place of those of the one pass.
    """
    if answer.run.rules.policies:
        write_policy_csv(answer, stream)
        return
    names = ["pool", *(field.name for field in fields(CapacityRow))]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for pool in (answer.together, *answer.pools):
        for row in pool.capacities:
            writer.writerow({"pool": pool.pool, **asdict(row)})


def write_text(answer: Answer, stream: TextIO) -> None:
    """Write the answer for people."""
    run, together = answer.run, answer.together
    for line in (*_heading(run, together), ""):
        print(line, file=stream)
    _print_capacities(together, stream)
    print(file=stream)
    _print_requirements(together, run, stream)
    if run.rules.policies:
        print(file=stream)
        print_policies(together, run, stream)
    if answer.pools:
        print(file=stream)
        _print_pools(answer, stream)


def _heading(run: RunInfo, together: PoolAnswer) -> list[str]:
    totals = together.totals
    ceiling = _share(totals.ceiling_blocks, totals.blocks)
    token_ceiling = _share(totals.ceiling_tokens, totals.input_tokens)
    warm_up = f"warm-up {run.warm_up_percent} %"
    if run.warm_up_requests:
        warm_up += f" ({run.warm_up_requests:,} requests only fill the cache)"
    partial = "kept" if run.partial_block == "keep" else "dropped"
    parts = [f"LRU, {run.touch_order}", warm_up, f"partial last block {partial}"]
    if run.block_bytes is not None:
        parts.append(f"{format_size(run.block_bytes)} per block ({_grouped(run.kv_bytes_per_token)} B/token)")
    if run.coarsen > 1:
        parts.append(f"{run.coarsen} blocks of the log as one")
    if run.pool_column is not None:
        parts.append(f"one cache per {run.pool_column}")
    lines = [
        f"{run.requests:,} requests, {run.blocks:,} blocks of {run.block_size:,} tokens, "
        f"{run.distinct_blocks:,} distinct, ceiling {ceiling} of blocks ({token_ceiling} of tokens)",
        "; ".join(parts),
        f"read as {run.reading.format_name} ({run.kind})",
    ]
    return [
        *lines,
        *rules_lines(run),
        *_bound_lines(run),
        *_sizing_lines(run, together),
        *_reading_lines(run),
    ]


def _bound_lines(run: RunInfo) -> list[str]:
    """Return what a bound on capacity hides."""
    if run.bound_blocks is None:
        return []
    return [
        f"exact up to {_size(run.bound_blocks, run)}: a block last used deeper than that counts as new, "
        f"which {run.beyond_blocks:,} accesses are known to be and at most {run.forgotten_blocks:,} more; "
        "ceiling and distinct blocks are those within the bound"
    ]


def _sizing_lines(run: RunInfo, together: PoolAnswer) -> list[str]:
    """Return whose bytes these are; for a model that is not linear in tokens, what others would say."""
    sizing = run.sizing
    if sizing is None:
        return []
    lines = [sizing.description, *sizing.notes]
    if sizing.length_costs:
        lines.append(
            f"{sizing.model} is not linear in tokens: this is its flat figure at {sizing.estimate_tokens:,} "
            "tokens; by percentile of input length it and the p99 capacity would be"
        )
    p99 = together.samples.required_blocks.get(HEADLINE_PERCENT)
    for cost in sizing.length_costs:
        per_token = Fraction(cost.kv_bytes_per_token)
        line = f"  p{cost.percent} ({cost.tokens:,} tokens): {float(per_token):,.0f} B/token"
        if p99 is not None:
            line += f", p99 capacity {format_size(p99 * ceil(per_token * run.block_size))}"
        lines.append(line)
    return lines


def _reading_lines(run: RunInfo) -> list[str]:
    """Return what was left out of the log or found odd, a line each."""
    reading = run.reading
    lines = [f"left out: {count:,} records ({reason})" for reason, count in reading.skipped.items()]
    if reading.bad_records:
        lines.append(f"left out: {reading.bad_records:,} bad records, such as {reading.bad_examples[0]}")
    if reading.overfull_requests:
        lines.append(
            f"{reading.overfull_requests:,} requests have more ids than input_length fills: "
            "each further block weighs 1 token"
        )
    if reading.underfull_requests:
        lines.append(
            f"{reading.underfull_requests:,} requests have ids for full blocks only: "
            "the tail counts as input tokens that never hit"
        )
    if reading.backward_timestamps:
        lines.append(f"{reading.backward_timestamps:,} requests are earlier than the one before them")
    return lines + list(reading.notices)


def _print_capacities(pool: PoolAnswer, stream: TextIO) -> None:
    headers = ["Capacity", "Blocks", "Block hit", "Reuse hit", "Prefix hit", "Token hit"]
    rows = [
        [
            row.label,
            f"{row.capacity_blocks:,}",
            _rate(row.block_hit_rate),
            _rate(row.reuse_hit_rate),
            _rate(row.prefix_hit_rate),
            _rate(row.token_hit_rate),
        ]
        for row in pool.capacities
    ]
    print_table(headers, rows, stream)


def _print_requirements(pool: PoolAnswer, run: RunInfo, stream: TextIO) -> None:
    shares = "   ".join(f"{row.percent:g} % {_size(row.capacity_blocks, run)}" for row in pool.shares)
    print(f"Capacity for a share of the ceiling:  {shares}", file=stream)
    print(file=stream)
    print(f"Capacity per request for {run.target_percent} % of its own ceiling:", file=stream)
    percents = list(pool.samples.required_blocks)
    headers = ["", "Requests", "mean", *(percentile_name(percent) for percent in percents)]
    rows = [["samples", f"{pool.samples.requests:,}", *_sizes(pool.samples, percents, run)]]
    rows.append(["reusing", f"{pool.reusing.requests:,}", *_sizes(pool.reusing, percents, run)])
    print_table(headers, rows, stream)
    headline = pool.headline
    if headline is not None and headline.block_hit_rate is not None:
        possible = _share(pool.totals.ceiling_blocks, pool.totals.blocks)
        print(
            f"At p99 ({_size(headline.capacity_blocks, run)}) the block hit rate is "
            f"{format_percent(headline.block_hit_rate)} of a possible {possible}.",
            file=stream,
        )


def _print_pools(answer: Answer, stream: TextIO) -> None:
    run = answer.run
    print(f"Each {run.pool_column} on its own (above: all together, each at the capacity given)", file=stream)
    headers = ["Pool", "Requests", "Blocks", "Ceiling", "90 % of ceiling", "Request p50", "Request p99"]
    rows = []
    for pool in answer.pools:
        required = pool.samples.required_blocks
        at_90 = next(row for row in pool.shares if row.percent == 90)
        rows.append(
            [
                pool.pool or "(none)",
                f"{pool.totals.requests:,}",
                f"{pool.totals.blocks:,}",
                _share(pool.totals.ceiling_blocks, pool.totals.blocks),
                _size(at_90.capacity_blocks, run),
                _size(required[50.0], run),
                _size(required[99.0], run),
            ]
        )
    print_table(headers, rows, stream)


def _sizes(sample: CapacityPercentiles, percents: list[float], run: RunInfo) -> list[str]:
    if sample.mean_blocks is None:
        return ["-"] * (1 + len(percents))
    return [
        _size(sample.mean_blocks, run),
        *(_size(sample.required_blocks[percent], run) for percent in percents),
    ]


def _size(blocks: float, run: RunInfo) -> str:
    if run.block_bytes is not None:
        return format_size(blocks * run.block_bytes)
    return f"{blocks:,.0f} blocks"


def _share(part: int, whole: int) -> str:
    return _rate(part / whole if whole else None)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else format_percent(rate)


def _grouped(number: str | None) -> str:
    """Return decimal text with thousands separators in its whole part."""
    whole, dot, part = (number or "").partition(".")
    return f"{int(whole):,}{dot}{part}" if whole.isdigit() else str(number)

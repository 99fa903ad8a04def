"""What was simulated, as text: the rules in force, and a table of policies over capacity."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, TextIO

from kvcap.analysis import PolicyRow
from kvcap.cli.tables import print_table
from kvcap.units import format_percent

if TYPE_CHECKING:
    from kvcap.analysis import Answer, PoolAnswer
    from kvcap.queries import RunInfo


def rules_lines(run: RunInfo) -> list[str]:
    """Return the rules in force, as the options that set them."""
    rules = run.rules
    options = [f"--partial-block {run.partial_block}"] if rules.engine else []
    if rules.compute_last_token:
        options.append("--compute-last-token")
    if rules.output_blocks:
        options.append("--output-blocks on")
    if rules.capacity_factor != "1":
        options.append(f"--capacity-factor {rules.capacity_factor}")
    if rules.reserve_blocks:
        options.append(f"--reserve-blocks {rules.reserve_blocks}")
    if rules.oversize != "keep":
        options.append(f"--oversize {rules.oversize}")
    if rules.engine:
        options.append(f"--policies {','.join(rules.policies)}")
    lines = [f"{rules.engine or 'rules'}: {' '.join(options)}"] if options else []
    if rules.requests_without_output:
        lines.append(
            f"{rules.requests_without_output:,} requests do not say what they generated: none of it enters"
        )
    return lines


def print_policies(pool: PoolAnswer, run: RunInfo, stream: TextIO) -> None:
    """Print token hit rates and speed-ups by policy, and what they say beside each other."""
    policies = run.rules.policies
    print(
        "Token hit rate by policy, and ideal prefill speed-up over computing every prompt token:", file=stream
    )
    if _differs_from_one_pass(run):
        print("(every rule counts here; above, LRU has all of each capacity for cached data)", file=stream)
    headers = ["Capacity", "Blocks", *(f"{policy} hit" for policy in policies)]
    if run.rules.reserve_blocks:
        headers += [f"{policy} at most" for policy in policies]
    headers += [f"{policy} speed-up" for policy in policies]
    headers += ["Headroom"] if pool.headroom else []
    drops = run.rules.oversize == "drop" or any(row.dropped_requests for row in pool.policies)
    headers += ["Left out"] if drops else []
    by_capacity: dict[str, dict[str, PolicyRow]] = {}
    for row in pool.policies:
        by_capacity.setdefault(row.label, {})[row.policy] = row
    headroom = {room.label: f"{room.points:.2f} points" for room in pool.headroom}
    table = []
    for label, by_policy in by_capacity.items():
        rows = [by_policy[policy] for policy in policies]
        cells = [label if rows[0].filled else f"{label} *", f"{rows[0].capacity_blocks:,}"]
        cells += [_rate(row.token_hit_rate) for row in rows]
        if run.rules.reserve_blocks:
            cells += [_rate(row.unreserved_token_hit_rate) for row in rows]
        cells += [_speedup(row.ideal_prefill_speedup) for row in rows]
        cells += [headroom.get(label, "-")] if pool.headroom else []
        cells += [f"{max(row.dropped_requests for row in rows):,}"] if drops else []
        table.append(cells)
    print_table(headers, table, stream)
    for line in _policy_notes(pool, run):
        print(line, file=stream)


def write_policy_csv(answer: Answer, stream: TextIO) -> None:
    """Write the policy rows as CSV, one line per pool, policy and capacity."""
    names = ["pool", *(field.name for field in fields(PolicyRow))]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for pool in (answer.together, *answer.pools):
        for row in pool.policies:
            writer.writerow({"pool": pool.pool, **asdict(row)})


def _policy_notes(pool: PoolAnswer, run: RunInfo) -> list[str]:
    totals = pool.totals
    ceiling = totals.ceiling_tokens / totals.input_tokens if totals.input_tokens else None
    lines = [f"Ceiling {_rate(ceiling)} of {totals.input_tokens:,} measured tokens."]
    if not all(row.filled for row in pool.policies):
        by = "the warm-up requests do" if run.warm_up_requests else "the trace does"
        lines.append(f"* {by} not fill this capacity, so it is not under pressure")
    lines += [
        f"FIFO hits less at {fall.larger} than at {fall.smaller}: {fall.lost_hit_tokens:,} tokens fewer"
        for fall in pool.fifo_falls
    ]
    if run.rules.reserve_blocks:
        lines.append(f"hit: with --reserve-blocks {run.rules.reserve_blocks}; at most: without")
    return lines


def _differs_from_one_pass(run: RunInfo) -> bool:
    rules = run.rules
    plain = rules.capacity_factor == "1" and not rules.reserve_blocks and rules.oversize == "keep"
    return not plain or bool({"vllm-lru", "sglang-lru"} & set(rules.policies))


def _speedup(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.2f}x"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else format_percent(rate)

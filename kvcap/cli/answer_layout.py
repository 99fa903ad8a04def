"""How the answer of a replay is laid out: capacities, requirements, policies, pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from kvcap.analysis.answer import HEADLINE_PERCENT
from kvcap.analysis.answer_json import answer_to_dict, percentile_name
from kvcap.cli.layouts import account_lines
from kvcap.cli.writer import Column, Layout, Records, Table, records_of
from kvcap.engines import POLICIES
from kvcap.units import decimal_text, format_count, format_size, say_rate, say_size

if TYPE_CHECKING:
    from kvcap.analysis import Answer, PolicyRow, PoolAnswer
    from kvcap.analysis.answer import CapacityPercentiles
    from kvcap.queries import RunInfo
    from kvcap.queries.run_info import HybridInfo

_CAPACITIES: Final = (
    Column("Capacity", "label", is_text=True),
    Column("Blocks", "capacity_blocks", format_count),
    Column("Block hit", "block_hit_rate", say_rate),
    Column("Reuse hit", "reuse_hit_rate", say_rate),
    Column("Prefix hit", "prefix_hit_rate", say_rate),
    Column("Token hit", "token_hit_rate", say_rate),
)


def _records(answer: Answer) -> Records:
    """Return the capacity rows of every pool; where policies were simulated, theirs stand in their place."""
    by = "policies" if answer.run.rules.policies else "capacities"
    pools = [(pool.pool, *records_of(getattr(pool, by))) for pool in (answer.together, *answer.pools)]
    return ["pool", *pools[0][1]], ([pool, *row] for pool, _, rows in pools for row in rows)


def _parts(answer: Answer) -> Iterator[str | Table]:
    run, together = answer.run, answer.together
    yield from _heading(run, together)
    yield ""
    yield Table(_CAPACITIES, together.capacities)
    yield ""
    yield from _requirements(together, run)
    if run.rules.policies:
        yield ""
        yield from _policies(together, run)
    if answer.pools:
        yield ""
        yield f"Each {run.pool_column} on its own (above: all together, each at the capacity given)"
        yield Table(_pool_columns(run), answer.pools)


ANSWER: Final = Layout(answer_to_dict, _parts, _records)
"""JSON as :mod:`kvcap.analysis.answer_json` documents it; CSV has a line per pool and capacity."""


def _heading(run: RunInfo, together: PoolAnswer) -> list[str]:
    totals = together.totals
    ceiling = _share(totals.ceiling_blocks, totals.blocks)
    token_ceiling = _share(totals.ceiling_tokens, totals.input_tokens)
    warm_up = f"warm-up {run.warm_up_percent} %"
    if run.warm_up_requests:
        warm_up += f" ({run.warm_up_requests:,} requests only fill the cache)"
    partial_block = "kept" if run.partial_block == "keep" else "dropped"
    parts = [f"LRU, {run.touch_order}", warm_up, f"partial last block {partial_block}"]
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
        *_rules_lines(run),
        *_bound_lines(run),
        *_sizing_lines(run, together),
        *account_lines(run.reading),
    ]


def _rules_lines(run: RunInfo) -> list[str]:
    """Return the rules in force, as the options that set them."""
    rules = run.rules
    options = [f"--partial-block {run.partial_block}"] if rules.engine else []
    if rules.compute_last_token:
        options.append("--compute-last-token")
    if run.options.blocks.output_blocks or (run.hybrid and run.options.hybrid.counts_generated):
        options.append("--output-blocks on")
    if rules.capacity_factor != 1:
        options.append(f"--capacity-factor {decimal_text(rules.capacity_factor)}")
    if rules.reserve_blocks:
        options.append(f"--reserve-blocks {rules.reserve_blocks}")
    if rules.oversize != "keep":
        options.append(f"--oversize {rules.oversize}")
    if rules.engine:
        options.append(f"--policies {','.join(rules.policies)}")
    lines = [f"{rules.engine or 'rules'}: {' '.join(options)}"] if options else []
    if run.requests_without_output:
        lines.append(
            f"{run.requests_without_output:,} requests do not say what they generated: none of it enters"
        )
    return lines


def _bound_lines(run: RunInfo) -> list[str]:
    """Return what a bound on capacity hides."""
    if run.bound_blocks is None:
        return []
    return [
        f"exact up to {say_size(run, run.bound_blocks)}: a block last used deeper than that counts as new, "
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


def _requirements(pool: PoolAnswer, run: RunInfo) -> Iterator[str | Table]:
    shares = "   ".join(f"{row.percent:g} % {say_size(run, row.capacity_blocks)}" for row in pool.shares)
    yield f"Capacity for a share of the ceiling:  {shares}"
    yield ""
    yield f"Capacity per request for {run.target_percent} % of its own ceiling:"
    size = partial(say_size, run)
    yield Table(
        (
            Column("", lambda row: row[0], is_text=True),
            Column("Requests", lambda row: row[1].requests, format_count),
            Column("mean", lambda row: row[1].mean_blocks, size),
            *(
                Column(percentile_name(percent), partial(_required, percent), size)
                for percent in pool.samples.required_blocks
            ),
        ),
        (("samples", pool.samples), ("reusing", pool.reusing)),
    )
    headline = pool.headline
    if headline is not None and headline.block_hit_rate is not None:
        yield (
            f"At p99 ({say_size(run, headline.capacity_blocks)}) the block hit rate is "
            f"{say_rate(headline.block_hit_rate)} of a possible "
            f"{_share(pool.totals.ceiling_blocks, pool.totals.blocks)}."
        )


def _required(percent: float, row: tuple[str, CapacityPercentiles]) -> int | None:
    return row[1].required_blocks.get(percent)


def _policies(pool: PoolAnswer, run: RunInfo) -> Iterator[str | Table]:
    """Yield token hit rates and speed-ups by policy, and what they say beside each other."""
    yield "Token hit rate by policy, and ideal prefill speed-up over computing every prompt token:"
    if _differs_from_one_pass(run):
        yield "(every rule counts here; above, LRU has all of each capacity for cached data)"
    by_capacity: dict[str, dict[str, PolicyRow]] = {}
    for row in pool.policies:
        by_capacity.setdefault(row.label, {})[row.policy] = row
    yield Table(_policy_columns(pool, run), list(by_capacity.values()))
    yield from _policy_notes(pool, run)


def _policy_columns(pool: PoolAnswer, run: RunInfo) -> list[Column]:
    """Return columns over the rows of all policies at one capacity."""
    policies = run.rules.policies
    first = policies[0]

    def of(policy: str, name: str) -> Any:
        return lambda rows: getattr(rows[policy], name)

    columns = [
        Column(
            "Capacity", lambda rows: rows[first].label + ("" if rows[first].filled else " *"), is_text=True
        ),
        Column("Blocks", of(first, "capacity_blocks"), format_count),
        *(Column(f"{policy} hit", of(policy, "token_hit_rate"), say_rate) for policy in policies),
    ]
    if run.rules.reserve_blocks:
        columns += [
            Column(f"{policy} at most", of(policy, "unreserved_token_hit_rate"), say_rate)
            for policy in policies
        ]
    columns += [
        Column(f"{policy} speed-up", of(policy, "ideal_prefill_speedup"), "{:.2f}x".format)
        for policy in policies
    ]
    if pool.headroom:
        points = {room.label: room.points for room in pool.headroom}
        columns.append(Column("Headroom", lambda rows: points.get(rows[first].label), "{:.2f} points".format))
    if run.rules.oversize == "drop" or any(row.dropped_requests for row in pool.policies):
        columns.append(
            Column("Left out", lambda rows: max(row.dropped_requests for row in rows.values()), format_count)
        )
    return columns


def _policy_notes(pool: PoolAnswer, run: RunInfo) -> list[str]:
    totals = pool.totals
    ceiling = _share(totals.ceiling_tokens, totals.input_tokens)
    lines = [f"Ceiling {ceiling} of {totals.input_tokens:,} measured tokens."]
    if not all(row.filled for row in pool.policies):
        by = "the warm-up requests do" if run.warm_up_requests else "the trace does"
        lines.append(f"* {by} not fill this capacity, so it is not under pressure")
    lines += [
        f"FIFO hits less at {fall.larger} than at {fall.smaller}: {fall.lost_hit_tokens:,} tokens fewer"
        for fall in pool.fifo_falls
    ]
    if run.hybrid is not None:
        lines += _hybrid_lines(pool, run, run.hybrid)
    if run.rules.reserve_blocks:
        lines.append(f"hit: with --reserve-blocks {run.rules.reserve_blocks}; at most: without")
    return lines


def _hybrid_lines(pool: PoolAnswer, run: RunInfo, hybrid: HybridInfo) -> list[str]:
    """Return what the engine's own cache is, its ceiling, and why it finds other than LRU at mean bytes."""
    groups = [
        f"{group.layers} layers of {group.kind}"
        + (f" ({group.window_tokens:,} tokens)" if group.window_tokens else "")
        + f" in blocks of {group.block_tokens}"
        for group in hybrid.groups
    ]
    shared = "; ".join(f"{count} x {text}" if count > 1 else text for text, count in Counter(groups).items())
    lines = [
        f"{hybrid.policy}: one pool of blocks of {format_size(hybrid.block_bytes)}, shared by {shared}; "
        "sizes in blocks count those of the pool that hold data",
        f"Its ceiling is {_share(hybrid.ceiling_tokens, pool.totals.input_tokens)}: hits end at multiples of "
        f"{hybrid.alignment_tokens:,} tokens, and windows and states are kept where --prefix-cache-retention-"
        "interval says; lru takes every layer as full attention at the mean bytes per token",
        "No capacity is the one that a request needs in it: more blocks may find less",
    ]
    if hybrid.requests_without_output and run.options.hybrid.counts_generated:
        lines.append(
            f"{hybrid.requests_without_output:,} requests do not say what they generated: none of it enters"
        )
    cut = run.options.blocks.cut_prompts_at_ids
    if run.kind == "hash_ids" and run.block_size > hybrid.alignment_tokens and not cut:
        lines.append(
            f"Ids of {run.block_size:,} tokens hide where a next turn goes on inside one, which understates "
            f"{hybrid.policy}: --cut-prompts-at-ids is the other reading, a log of token ids would settle it"
        )
    return lines


def _differs_from_one_pass(run: RunInfo) -> bool:
    rules = run.rules
    return rules.limits_capacity or any(POLICIES[name].holds_running for name in rules.policies)


def _pool_columns(run: RunInfo) -> Sequence[Column]:
    size = partial(say_size, run)
    return (
        Column("Pool", lambda pool: pool.pool or "(none)", is_text=True),
        Column("Requests", lambda pool: pool.totals.requests, format_count),
        Column("Blocks", lambda pool: pool.totals.blocks, format_count),
        Column("Ceiling", lambda pool: _share(pool.totals.ceiling_blocks, pool.totals.blocks)),
        Column("90 % of ceiling", lambda pool: _share_capacity(pool, 90), size),
        Column("Request p50", lambda pool: pool.samples.required_blocks.get(50.0), size),
        Column("Request p99", lambda pool: pool.samples.required_blocks.get(99.0), size),
    )


def _share_capacity(pool: PoolAnswer, percent: float) -> int:
    return next(row.capacity_blocks for row in pool.shares if row.percent == percent)


def _share(part: int, whole: int) -> str:
    return say_rate(part / whole if whole else None)


def _grouped(number: str | None) -> str:
    """Return a number's text with thousands separators in its whole part, a fraction to two places."""
    if number is not None and "/" in number:
        return f"{float(Fraction(number)):,.2f}"
    whole, dot, part = (number or "").partition(".")
    return f"{int(whole):,}{dot}{part}" if whole.isdigit() else str(number)

"""What each tier of storage serves, how fast it must read and write, and whether it pays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from kvcap.analysis.plan_value import GIB, Valuation, best_last_capacity
from kvcap.analysis.traffic import nearest_rank
from kvcap.queries.capacities import in_blocks

if TYPE_CHECKING:
    from kvcap.analysis.plan_options import PlanOptions, Tier
    from kvcap.analysis.traffic import Int64Array, Traffic


@dataclass(frozen=True)
class TierRow:
    """One tier.

    Attributes
    ----------
    name
        As the user calls it.
    size_blocks, size_bytes
        What it holds, of each pool; bytes as they were given, None when unknown.
    first_blocks, last_blocks
        It serves the depths from ``first_blocks`` up to below ``last_blocks``.
    hit_blocks, hit_tokens
        What it serves.
    token_share
        Of all input tokens.
    read_bytes_per_second
        Mean over the trace; this and the next two, over all pools, are None without timestamps or bytes.
    read_p50_bytes_per_second, read_p99_bytes_per_second
        Nearest rank over windows of the plan's length.
    write_bytes_per_second
        Mean once the tiers above are full: what they push down, or where tiers are inclusive what this
        tier does not hold; for the first tier what it does not hold.
    price_per_gib_month, cost_per_month, saves_per_month
        Its price, its cost, and the prefill that its own hits save; None where not given.
    best_size_blocks
        The size at which it would earn most if it were the last tier; None without prices.
    break_even_age_seconds
        A block not reused within this time costs more to hold here than to compute again.
    """

    name: str
    size_blocks: int
    size_bytes: int | None
    first_blocks: int
    last_blocks: int
    hit_blocks: int
    hit_tokens: int
    token_share: float
    read_bytes_per_second: float | None
    read_p50_bytes_per_second: float | None
    read_p99_bytes_per_second: float | None
    write_bytes_per_second: float | None
    price_per_gib_month: float | None
    cost_per_month: float | None
    saves_per_month: float | None
    best_size_blocks: int | None
    break_even_age_seconds: float | None


def plan_tiers(traffic: Traffic, value: Valuation, options: PlanOptions) -> tuple[TierRow, ...]:
    """Return what each tier serves, from the fastest down.

    Raises
    ------
    UsageError
        If a size is in bytes and the run does not know its bytes per token.
    """
    rows = []
    above = 0
    for tier in options.tiers:
        size = in_blocks(tier.size, traffic.run)
        last = max(above, size) if options.inclusive else above + size
        rows.append(_tier_row(tier, size, (above, last), traffic, value, options))
        above = last
    return tuple(rows)


def _tier_row(
    tier: Tier, size: int, depths: tuple[int, int], traffic: Traffic, value: Valuation, options: PlanOptions
) -> TierRow:
    first, last = depths
    block_bytes = traffic.run.block_bytes
    hit_blocks, hit_tokens = (
        below - above for below, above in zip(traffic.hits(last), traffic.hits(first), strict=True)
    )
    size_bytes = None if block_bytes is None else size * block_bytes
    if tier.size.unit == "bytes":
        size_bytes = int(tier.size.amount)
    price = None if tier.price_per_gib_month is None else float(tier.price_per_gib_month)
    cost = best = age = None
    if price is not None and block_bytes is not None and size_bytes is not None:
        cost = size_bytes / GIB * price * traffic.pools
        best = best_last_capacity(traffic, value, first, price, inclusive=options.inclusive)
        age = value.break_even_age_seconds(block_bytes / traffic.run.block_size, price)
    mean, p50, p99 = _read_rates(traffic, first, last, options.window_seconds)
    return TierRow(
        name=tier.name,
        size_blocks=size,
        size_bytes=size_bytes,
        first_blocks=first,
        last_blocks=last,
        hit_blocks=hit_blocks,
        hit_tokens=hit_tokens,
        token_share=hit_tokens / max(1, traffic.total_input_tokens),
        read_bytes_per_second=mean,
        read_p50_bytes_per_second=p50,
        read_p99_bytes_per_second=p99,
        write_bytes_per_second=_write_rate(traffic, first, last, inclusive=options.inclusive),
        price_per_gib_month=price,
        cost_per_month=cost,
        saves_per_month=value.money_per_month(hit_tokens),
        best_size_blocks=None if best is None else _size(first, best, inclusive=options.inclusive),
        break_even_age_seconds=age,
    )


def _read_rates(
    traffic: Traffic, first: int, last: int, window_seconds: int
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the mean, and the p50 and p99 over windows, of the bytes a second read from a tier."""
    span = traffic.span_seconds
    if traffic.time_us is None or span is None or traffic.run.kv_bytes_per_token is None:
        return None, None, None
    token_bytes = float(Fraction(traffic.run.kv_bytes_per_token))
    served = traffic.run_hits(last) - traffic.run_hits(first)
    tokens = served * traffic.run_tokens_per_block
    windows: Int64Array = traffic.time_us[traffic.run_request] // (window_seconds * 1_000_000)
    sums = np.zeros(int(traffic.time_us.max()) // (window_seconds * 1_000_000) + 1, np.int64)
    np.add.at(sums, windows, tokens)
    sums.sort()
    per_window = token_bytes / window_seconds
    return (
        float(tokens.sum()) * token_bytes / span,
        nearest_rank(sums, Fraction(1, 2)) * per_window,
        nearest_rank(sums, Fraction(99, 100)) * per_window,
    )


def _write_rate(traffic: Traffic, first: int, last: int, *, inclusive: bool) -> float | None:
    """Return the bytes a second that a tier takes in once it is full."""
    span, block_bytes = traffic.span_seconds, traffic.run.block_bytes
    if span is None or block_bytes is None:
        return None
    pushed_down = first > 0 and not inclusive
    if pushed_down and traffic.run.distinct_blocks <= first:
        return 0.0
    hit_blocks, _ = traffic.hits(first if pushed_down else last)
    return (traffic.total_blocks - hit_blocks) * block_bytes / span


def _size(first: int, last: int, *, inclusive: bool) -> int:
    return last if inclusive and last > first else last - first

"""What each tier of storage serves, how fast it must read and write, and whether it pays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any

from kvcap.analysis.plan_value import GIB, Valuation, best_last_capacity
from kvcap.queries.capacities import in_blocks, require_within_bound

if TYPE_CHECKING:
    from kvcap.analysis.figures import Figures
    from kvcap.analysis.plan_options import PlanOptions, Tier
    from kvcap.queries import Results


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
        Nearest rank over windows of the plan's length, idle ones included.
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


def plan_tiers(
    results: Results, figures: Figures, value: Valuation, options: PlanOptions
) -> tuple[TierRow, ...]:
    """Return what each tier serves, from the fastest down.

    Raises
    ------
    UsageError
        If a size is in bytes and the run does not know its bytes per token, or the tiers exceed the bound
        of the run.
    """
    if not options.tiers:
        return ()
    sizes = [in_blocks(tier.size, figures.run) for tier in options.tiers]
    reached = accumulate(sizes, max if options.inclusive else add)
    depths = list(pairwise([0, *reached]))
    for tier, (_, last) in zip(options.tiers, depths, strict=True):
        require_within_bound(figures.run, last, f"--tier {tier.name}")
    served = results.query(
        "tiers",
        tiers=sizes,
        mode="inclusive" if options.inclusive else "exclusive",
        window_seconds=options.window_seconds,
    ).to_pylist()
    together = [row for row in served if row["pool"] is None]
    return tuple(
        _tier_row(tier, size, between, reads, figures, value, options)
        for tier, size, between, reads in zip(options.tiers, sizes, depths, together, strict=True)
    )


def _tier_row(
    tier: Tier,
    size: int,
    depths: tuple[int, int],
    reads: dict[str, Any],
    figures: Figures,
    value: Valuation,
    options: PlanOptions,
) -> TierRow:
    """Return a tier that serves the given depths, ``reads`` being its row of the query ``tiers``."""
    first, last = depths
    block_bytes, span = figures.run.block_bytes, figures.span_seconds
    size_bytes = None if block_bytes is None else size * block_bytes
    if tier.size.unit == "bytes":
        size_bytes = int(tier.size.amount)
    price = None if tier.price_per_gib_month is None else float(tier.price_per_gib_month)
    cost = best = age = None
    if price is not None and block_bytes is not None and size_bytes is not None:
        cost = size_bytes / GIB * price * figures.pools
        best = best_last_capacity(figures, value, first, price, inclusive=options.inclusive)
        age = value.break_even_age_seconds(block_bytes / figures.run.block_size, price)
    knows_rates = span is not None and block_bytes is not None
    return TierRow(
        name=tier.name,
        size_blocks=size,
        size_bytes=size_bytes,
        first_blocks=first,
        last_blocks=last,
        hit_blocks=reads["hit_blocks"],
        hit_tokens=reads["hit_tokens"],
        token_share=reads["token_hit_rate"] or 0.0,
        read_bytes_per_second=reads["read_bytes"] / span if span is not None and knows_rates else None,
        read_p50_bytes_per_second=reads["read_bytes_per_second_p50"] if knows_rates else None,
        read_p99_bytes_per_second=reads["read_bytes_per_second_p99"] if knows_rates else None,
        write_bytes_per_second=_write_rate(figures, first, last, inclusive=options.inclusive),
        price_per_gib_month=price,
        cost_per_month=cost,
        saves_per_month=value.money_per_month(reads["hit_tokens"]),
        best_size_blocks=None if best is None else _size(first, best, inclusive=options.inclusive),
        break_even_age_seconds=age,
    )


def _write_rate(figures: Figures, first: int, last: int, *, inclusive: bool) -> float | None:
    """Return the bytes a second that a tier takes in once it is full."""
    span, block_bytes = figures.span_seconds, figures.run.block_bytes
    if span is None or block_bytes is None:
        return None
    pushed_down = first > 0 and not inclusive
    if pushed_down and figures.run.distinct_blocks <= first:
        return 0.0
    hit_blocks, _ = figures.hits(first if pushed_down else last)
    return (figures.total_blocks - hit_blocks) * block_bytes / span


def _size(first: int, last: int, *, inclusive: bool) -> int:
    return last if inclusive and last > first else last - first

"""Hold a replay against limits, for jobs that run every night."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from kvcap.analysis.check_options import CheckOptions
from kvcap.analysis.figures import Figures, load_figures
from kvcap.errors import UsageError
from kvcap.queries.capacities import capacity_label, in_blocks, largest_capacity, require_within_bound
from kvcap.units import Capacity, format_percent, say_size

if TYPE_CHECKING:
    from kvcap.queries import Results

P99: Final = Fraction(99, 100)


@dataclass(frozen=True)
class Check:
    """One limit: what was found, what is allowed, in words and as numbers."""

    name: str
    holds: bool
    found: float
    limit: float
    text: str


def check(results: Results, limits: CheckOptions) -> tuple[Check, ...]:
    """Return every limit with what the replay has to say about it.

    Raises
    ------
    UsageError
        If there is no limit, a capacity does not fit the run, or it was not explained.
    """
    figures = load_figures(results)
    checks = []
    if limits.min_requests is not None:
        checks.append(_requests(figures, limits.min_requests))
    if limits.max_p99 is not None:
        checks.append(_p99(figures, limits.max_p99))
    if limits.min_hit_rate is not None or limits.min_token_hit_rate is not None:
        checks += _hit_rates(figures, limits)
    if limits.max_unexplained is not None:
        checks.append(_unexplained(results, limits.max_unexplained))
    if not checks:
        raise UsageError("give at least one limit, such as --max-p99 1.5TiB or --min-hit-rate 0.38")
    return tuple(checks)


def _requests(figures: Figures, least: int) -> Check:
    found = figures.blocks.size
    return Check(
        "min_requests", found >= least, found, least, f"{found:,} measured requests, at least {least:,}"
    )


def _p99(figures: Figures, most: Capacity) -> Check:
    run = figures.run
    limit, found = in_blocks(most, run), figures.percentile(P99)
    text = f"p99 of required capacity {say_size(run, found)}, at most {capacity_label(most)}"
    return Check("max_p99", found <= limit, found, limit, text)


def _hit_rates(figures: Figures, limits: CheckOptions) -> list[Check]:
    run = figures.run
    largest = largest_capacity(run)
    blocks = largest.blocks if limits.capacity is None else in_blocks(limits.capacity, run)
    require_within_bound(run, blocks, "--capacity")
    where = (
        f"with {largest.label} storage"
        if limits.capacity is None
        else f"at {capacity_label(limits.capacity)}"
    )
    hit_blocks, hit_tokens = figures.hits(blocks)
    rates = (
        ("min_hit_rate", "block", limits.min_hit_rate, hit_blocks, figures.total_blocks),
        ("min_token_hit_rate", "token", limits.min_token_hit_rate, hit_tokens, figures.total_input_tokens),
    )
    checks = []
    for name, what, least, hits, total in rates:
        if least is not None:
            found = Fraction(hits, max(1, total))
            text = (
                f"{what} hit rate {where} {format_percent(float(found))}, "
                f"at least {format_percent(float(least))}"
            )
            checks.append(Check(name, found >= least, float(found), float(least), text))
    return checks


def _unexplained(results: Results, most: Fraction) -> Check:
    explained = results.table("explained", ["unexplained_tokens", "input_tokens"])
    unexplained, total = (sum(explained.column(name).to_pylist()) for name in explained.column_names)
    found = Fraction(unexplained, max(1, total))
    text = (
        f"{format_percent(float(found))} of the observed prompt tokens unexplained, at most "
        f"{format_percent(float(most))}"
    )
    return Check("max_unexplained", found <= most, float(found), float(most), text)

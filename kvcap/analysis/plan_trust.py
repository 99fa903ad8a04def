"""How far to trust a plan: was the trace long enough, and how sure are its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.analysis.bootstrap import CONFIDENCE, STRETCHES, Interval, TimeBootstrap, interval
from kvcap.kernels.arrays import nearest_rank
from kvcap.queries import largest_capacity

if TYPE_CHECKING:
    from kvcap.analysis.bootstrap import FloatArray
    from kvcap.analysis.figures import Figures
    from kvcap.analysis.plan_options import Goal
    from kvcap.kernels.arrays import Int64Array

PREFIX_PERCENTS: Final = (25, 50, 75, 100)
SETTLED_WITHIN: Final = 0.05
"""A number is settled when the second half of the trace changed it by less than this share."""
CUT_OFF_WITHIN: Final = 0.05
UNCERTAIN_FROM: Final = 1.5
"""The p99 is uncertain when the ends of its interval are so many times apart."""
P99: Final = Fraction(99, 100)

_GRID_STEPS_PER_SIDE: Final = 32


@dataclass(frozen=True)
class PrefixRow:
    """The headline numbers of the first part of the trace, exact: later requests change nothing earlier."""

    percent: int
    requests: int
    ceiling: float
    p99_blocks: int


@dataclass(frozen=True)
class Trust:
    """How far to trust a plan.

    Attributes
    ----------
    prefixes
        Ceiling and p99 over growing parts of the measured requests.
    cut_off_share
        Estimated share of all reuse that the trace lost because it begins somewhere: what the second half
        owes to the first, had the trace begun at its middle. None with fewer than two requests.
    confidence, stretches
        Of the intervals: a block bootstrap over so many stretches of the trace.
    ceiling, block_hit_rate, token_hit_rate
        Intervals; the hit rates at the planned capacity.
    p99_blocks, goal_blocks
        Intervals of the p99 of required capacity, and of the planned capacity.
    doubts
        What speaks against trusting the plan, one sentence each; empty when nothing was found.
    """

    prefixes: tuple[PrefixRow, ...]
    cut_off_share: float | None
    confidence: float
    stretches: int
    ceiling: Interval
    block_hit_rate: Interval
    token_hit_rate: Interval
    p99_blocks: Interval
    goal_blocks: Interval
    doubts: tuple[str, ...]


def assess(figures: Figures, goal: Goal, goal_blocks: int) -> Trust:
    """Return how far to trust numbers from these figures, ``goal_blocks`` being the planned capacity."""
    bootstrap = TimeBootstrap(figures.blocks.size)
    hit_blocks, hit_tokens = figures.request_hits(goal_blocks)
    prefixes = tuple(_prefix(figures, percent) for percent in PREFIX_PERCENTS)
    cut_off = cut_off_share(figures)
    p99 = bootstrap.percentile(figures.required_blocks, P99)
    return Trust(
        prefixes=prefixes,
        cut_off_share=cut_off,
        confidence=CONFIDENCE,
        stretches=STRETCHES,
        ceiling=bootstrap.ratio(figures.ceiling_blocks, figures.blocks),
        block_hit_rate=bootstrap.ratio(hit_blocks, figures.blocks),
        token_hit_rate=bootstrap.ratio(hit_tokens, figures.input_tokens),
        p99_blocks=p99,
        goal_blocks=_goal_interval(figures, bootstrap, goal, goal_blocks),
        doubts=tuple(_doubts(figures, prefixes, cut_off, p99)),
    )


def cut_off_share(figures: Figures) -> float | None:
    """Return the estimated share of reuse that is lost because the trace begins somewhere.

    Had the trace begun half of its measured requests later (with a warm-up as long as its own), reuse
    whose source lies before that point would not have been seen. As much is taken to be missing from
    the first half; what reaches back further than half a trace stays unknown, so this is a lower bound.
    """
    n_requests = figures.blocks.size
    if n_requests < 2:
        return None
    middle = n_requests // 2
    begun_later = middle - figures.run.warm_up_requests
    runs = figures.runs
    lost = (runs.request >= middle) & (runs.source_request < begun_later)
    lost_blocks = int(runs.blocks[lost].sum())
    seen_blocks = int(runs.blocks.sum())
    return lost_blocks / (seen_blocks + lost_blocks) if seen_blocks else 0.0


def _prefix(figures: Figures, percent: int) -> PrefixRow:
    n_requests = max(1, figures.blocks.size * percent // 100)
    blocks = int(figures.blocks[:n_requests].sum())
    return PrefixRow(
        percent=percent,
        requests=n_requests,
        ceiling=int(figures.ceiling_blocks[:n_requests].sum()) / max(1, blocks),
        p99_blocks=nearest_rank(np.sort(figures.required_blocks[:n_requests]), P99),
    )


def _goal_interval(figures: Figures, bootstrap: TimeBootstrap, goal: Goal, goal_blocks: int) -> Interval:
    if goal.kind == "request-percentile":
        return bootstrap.percentile(figures.required_blocks, goal.share)
    of = figures.ceiling_blocks if goal.kind == "ceiling-share" else figures.blocks
    needed = bootstrap.resampled(bootstrap.per_slot(of)) * float(goal.share)
    grid = _capacity_grid(goal_blocks, largest_capacity(figures.run).blocks)
    hits = np.stack([bootstrap.per_slot(figures.request_hits(int(c))[0]) for c in grid], axis=1)
    return interval(float(goal_blocks), _inverse(grid, bootstrap.resampled(hits), needed))


def _capacity_grid(around: int, top: int) -> Int64Array:
    """Return capacities from 0 to ``top``, dense in the ratio to ``around``."""
    ratios = 2.0 ** (np.arange(-_GRID_STEPS_PER_SIDE, _GRID_STEPS_PER_SIDE + 1) / 8)
    near = np.round(around * ratios).astype(np.int64)
    return np.unique(np.concatenate([[0], near[near < top], [around, top]]))


def _inverse(grid: Int64Array, hits: FloatArray, needed: FloatArray) -> FloatArray:
    """Return where each row of ``hits`` over ``grid`` reaches what that row needs; the last where never."""
    upper = np.argmax(hits >= needed[:, None], axis=1)
    never = hits[:, -1] < needed
    upper = np.clip(np.where(never, grid.size - 1, upper), 1, grid.size - 1)
    rows = np.arange(needed.size)
    rise = np.maximum(hits[rows, upper] - hits[rows, upper - 1], 1e-12)
    part = np.clip((needed - hits[rows, upper - 1]) / rise, 0, 1)
    found: FloatArray = grid[upper - 1] + part * (grid[upper] - grid[upper - 1])
    return found


def _doubts(
    figures: Figures, prefixes: tuple[PrefixRow, ...], cut_off: float | None, p99: Interval
) -> list[str]:
    half, whole = prefixes[PREFIX_PERCENTS.index(50)], prefixes[-1]
    doubts = []
    if not _settled(half.ceiling, whole.ceiling):
        doubts.append(
            f"the ceiling still moves ({100 * half.ceiling:.1f} % at half the trace, "
            f"{100 * whole.ceiling:.1f} % now)"
        )
    if not _settled(half.p99_blocks, whole.p99_blocks):
        change = f"{whole.p99_blocks / half.p99_blocks:.2g} times" if half.p99_blocks else "far from"
        doubts.append(f"the p99 still moves (now {change} that at half the trace)")
    if cut_off is not None and cut_off > CUT_OFF_WITHIN:
        doubts.append(f"about {100 * cut_off:.0f} % of reuse lies before the trace begins (log for longer)")
    if p99.high > UNCERTAIN_FROM * max(p99.low, 1):
        doubts.append("the p99 is uncertain (plan for the upper end of its interval)")
    if figures.run.bound_blocks is not None:
        doubts.append("reuse beyond the --max-capacity of the replay is unknown (not in the ceiling)")
    if figures.time_us is None:
        doubts.append("there are no timestamps (nothing is known of rates)")
    return doubts


def _settled(half: float, whole: float) -> bool:
    return abs(whole - half) <= SETTLED_WITHIN * whole

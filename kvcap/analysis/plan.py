"""Plan storage from the results of a replay: how much, in which tiers, worth what, how sure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from kvcap.analysis.figures import Figures, load_figures
from kvcap.analysis.plan_options import Goal, PlanOptions
from kvcap.analysis.plan_tiers import TierRow, plan_tiers
from kvcap.analysis.plan_trust import Trust, assess
from kvcap.analysis.plan_value import GIB, Valuation, speed_up, valuation
from kvcap.errors import UsageError
from kvcap.queries.capacities import in_blocks, largest_capacity
from kvcap.units import Capacity, format_size

if TYPE_CHECKING:
    from kvcap.queries import Results, RunInfo


@dataclass(frozen=True)
class Step:
    """One capacity, and what the next step beyond it would add.

    Attributes
    ----------
    label
        ``goal``, the tiers down to this one, ``unlimited``, or the bound of the replay.
    capacity_blocks, capacity_bytes
        Of each pool; bytes None when unknown.
    block_hit_rate, token_hit_rate, ideal_speed_up
        There.
    next_hit_tokens
        Tokens of the trace that one step more would serve; None, as are the next two, where that is beyond
        what the replay knows.
    next_gpu_hours_per_day
        Prefill saved by them; None without prefill speed or duration.
    break_even_price_per_gib_month
        Below this price the next step pays for itself; None where the saving has no price.
    """

    label: str
    capacity_blocks: int
    capacity_bytes: int | None
    block_hit_rate: float
    token_hit_rate: float
    ideal_speed_up: float
    next_hit_tokens: int | None
    next_gpu_hours_per_day: float | None
    break_even_price_per_gib_month: float | None


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes
    ----------
    run
        The replay that it rests on.
    goal
        What the planned capacity reaches.
    pools
        Caches that each have the planned capacity.
    days
        Days of traffic that the measured requests stand for; None when unknown.
    step_label
        The further capacity of which each :class:`Step` gives the worth.
    window_seconds
        Length of the windows over which a tier's peak reads are taken.
    at_goal, largest
        The planned capacity, and unlimited storage, or the bound of the replay.
    tiers
        What each tier serves.
    trust
        How far to trust the numbers.
    """

    run: RunInfo
    goal: Goal
    pools: int
    days: float | None
    step_label: str
    window_seconds: int
    at_goal: Step
    tiers: tuple[TierRow, ...]
    tier_steps: tuple[Step, ...]
    largest: Step
    trust: Trust


def plan(results: Results, options: PlanOptions | None = None, *, figures: Figures | None = None) -> Plan:
    """Plan storage from a replay's results.

    Parameters
    ----------
    results
        An open replay.
    options
        The goal, the tiers, and what computing costs.
    figures
        Those of the results, where they are at hand.

    Raises
    ------
    UsageError
        If the goal is out of reach, nothing was measured, or a size does not fit the run.
    """
    options = options or PlanOptions()
    figures = figures or load_figures(results)
    if figures.total_blocks == 0:
        raise UsageError("nothing to plan from: the measured requests have no block")
    value = valuation(figures, options)
    step = _step_blocks(options.step, figures.run)
    goal_blocks = goal_capacity(figures, options.goal)
    tiers = plan_tiers(results, figures, value, options)
    largest = largest_capacity(figures.run)
    return Plan(
        run=figures.run,
        goal=options.goal,
        pools=figures.pools,
        days=value.days,
        step_label=_step_label(step, figures.run),
        window_seconds=options.window_seconds,
        at_goal=_step("goal", goal_blocks, step, figures, value),
        tiers=tiers,
        tier_steps=tuple(_step(_down_to(tiers, row), row.last_blocks, step, figures, value) for row in tiers),
        largest=_step(largest.label, largest.blocks, step, figures, value),
        trust=assess(figures, options.goal, goal_blocks),
    )


def goal_capacity(figures: Figures, goal: Goal) -> int:
    """Return the smallest capacity in blocks that reaches a goal.

    Raises
    ------
    UsageError
        If unlimited storage does not reach it.
    """
    if goal.kind == "request-percentile":
        return figures.percentile(goal.share)
    ceiling = figures.total_ceiling_blocks
    of = ceiling if goal.kind == "ceiling-share" else figures.total_blocks
    capacity = figures.capacity_for_hits(ceil(of * goal.share))
    if capacity is None:
        raise UsageError(
            f"--goal {goal.text} is out of reach: {largest_capacity(figures.run).label} storage has a "
            "block hit rate of "
            f"{ceiling / figures.total_blocks:.4f}"
        )
    return capacity


def _down_to(tiers: tuple[TierRow, ...], row: TierRow) -> str:
    return " + ".join(tier.name for tier in tiers[: tiers.index(row) + 1])


def _step_blocks(step: Capacity, run: RunInfo) -> int:
    """Return a step in blocks; one in bytes is a hundredth of the distinct blocks where those are unknown."""
    if step.unit == "bytes" and run.block_bytes is None:
        return max(1, run.distinct_blocks // 100)
    return max(1, in_blocks(step, run))


def _step_label(step_blocks: int, run: RunInfo) -> str:
    if run.block_bytes is None:
        return f"{step_blocks:,} blocks"
    return format_size(round(step_blocks * run.block_bytes / GIB, 1) * GIB)


def _step(label: str, capacity: int, step: int, figures: Figures, value: Valuation) -> Step:
    run = figures.run
    hit_blocks, hit_tokens = figures.hits(capacity)
    token_hit_rate = hit_tokens / max(1, figures.total_input_tokens)
    further = hours = price = None
    if run.bound_blocks is None or capacity + step <= run.bound_blocks:
        further = figures.hits(capacity + step)[1] - hit_tokens
        hours, saved = value.gpu_hours_per_day(further), value.money_per_month(further)
        if saved is not None and run.block_bytes is not None:
            price = saved / (step * run.block_bytes / GIB * figures.pools)
    return Step(
        label=label,
        capacity_blocks=capacity,
        capacity_bytes=None if run.block_bytes is None else capacity * run.block_bytes,
        block_hit_rate=hit_blocks / figures.total_blocks,
        token_hit_rate=token_hit_rate,
        ideal_speed_up=speed_up(token_hit_rate),
        next_hit_tokens=further,
        next_gpu_hours_per_day=hours,
        break_even_price_per_gib_month=price,
    )

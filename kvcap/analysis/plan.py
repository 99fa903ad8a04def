"""Plan storage from the results of a replay: how much, in which tiers, worth what, how sure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from kvcap.analysis.plan_options import Goal, PlanOptions
from kvcap.analysis.plan_tiers import TierRow, plan_tiers
from kvcap.analysis.plan_trust import Trust, assess
from kvcap.analysis.plan_value import GIB, Valuation, speed_up, valuation
from kvcap.analysis.traffic import Traffic, load_traffic
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
        Tokens of the trace that one step more would serve.
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
    next_hit_tokens: int
    next_gpu_hours_per_day: float | None
    break_even_price_per_gib_month: float | None


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes
    ----------
    run
        The replay that it rests on.
    goal_text
        The goal as ``--goal`` takes it.
    pools
        Caches that each have the planned capacity.
    days
        Days of traffic that the measured requests stand for; None when unknown.
    step_label
        The further capacity of which each :class:`Step` gives the worth.
    goal, largest
        The planned capacity, and unlimited storage, or the bound of the replay.
    tiers
        What each tier serves.
    trust
        How far to trust the numbers.
    """

    run: RunInfo
    goal_text: str
    pools: int
    days: float | None
    step_label: str
    goal: Step
    tiers: tuple[TierRow, ...]
    tier_steps: tuple[Step, ...]
    largest: Step
    trust: Trust


def plan(results: Results, options: PlanOptions | None = None) -> Plan:
    """Plan storage from a replay's results.

    Parameters
    ----------
    results
        An open replay.
    options
        The goal, the tiers, and what computing costs.

    Raises
    ------
    UsageError
        If the goal is out of reach, nothing was measured, or a size does not fit the run.
    """
    options = options or PlanOptions()
    traffic = load_traffic(results)
    if traffic.total_blocks == 0:
        raise UsageError("nothing to plan from: the measured requests have no block")
    value = valuation(traffic, options)
    step = _step_blocks(options.step, traffic.run)
    goal_blocks = goal_capacity(traffic, options.goal)
    tiers = plan_tiers(results, traffic, value, options)
    largest = largest_capacity(traffic.run)
    return Plan(
        run=traffic.run,
        goal_text=options.goal.text,
        pools=traffic.pools,
        days=value.days,
        step_label=_step_label(step, traffic.run),
        goal=_step("goal", goal_blocks, step, traffic, value),
        tiers=tiers,
        tier_steps=tuple(_step(_down_to(tiers, row), row.last_blocks, step, traffic, value) for row in tiers),
        largest=_step(largest.label, largest.blocks, step, traffic, value),
        trust=assess(traffic, options.goal, goal_blocks),
    )


def goal_capacity(traffic: Traffic, goal: Goal) -> int:
    """Return the smallest capacity in blocks that reaches a goal.

    Raises
    ------
    UsageError
        If unlimited storage does not reach it.
    """
    if goal.kind == "request-percentile":
        return traffic.percentile(goal.share)
    ceiling = int(traffic.ceiling_blocks.sum())
    of = ceiling if goal.kind == "ceiling-share" else traffic.total_blocks
    capacity = traffic.capacity_for_hits(ceil(of * goal.share))
    if capacity is None:
        raise UsageError(
            f"--goal {goal.text} is out of reach: {largest_capacity(traffic.run).label} storage has a "
            "block hit rate of "
            f"{ceiling / traffic.total_blocks:.4f}"
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


def _step(label: str, capacity: int, step: int, traffic: Traffic, value: Valuation) -> Step:
    run = traffic.run
    hit_blocks, hit_tokens = traffic.hits(capacity)
    further = traffic.hits(capacity + step)[1] - hit_tokens
    token_hit_rate = hit_tokens / max(1, traffic.total_input_tokens)
    saved = value.money_per_month(further)
    price = None
    if saved is not None and run.block_bytes is not None:
        price = saved / (step * run.block_bytes / GIB * traffic.pools)
    return Step(
        label=label,
        capacity_blocks=capacity,
        capacity_bytes=None if run.block_bytes is None else capacity * run.block_bytes,
        block_hit_rate=hit_blocks / traffic.total_blocks,
        token_hit_rate=token_hit_rate,
        ideal_speed_up=speed_up(token_hit_rate),
        next_hit_tokens=further,
        next_gpu_hours_per_day=value.gpu_hours_per_day(further),
        break_even_price_per_gib_month=price,
    )

"""The answer of the main job: hit rates over capacity, and the capacity that requests required."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kvcap.analysis.curves import curves_by_pool
from kvcap.analysis.policy_answer import FifoFall, Headroom, PolicyRow, fifo_falls, headroom, policy_rows
from kvcap.kernels.curve import hits_at, smallest_capacity
from kvcap.queries import ResolvedCapacity, largest_capacity, resolve_capacities

if TYPE_CHECKING:
    from kvcap.kernels.curve import Curve
    from kvcap.queries import Results, RunInfo

SHARE_PERCENTS: Final = (50.0, 90.0, 95.0, 99.0)
CAPACITY_PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
HEADLINE_PERCENT: Final = 99.0


@dataclass(frozen=True)
class Totals:
    """Counts over the measured requests."""

    requests: int
    blocks: int
    ceiling_blocks: int
    input_tokens: int
    ceiling_tokens: int
    mean_input_tokens: float


@dataclass(frozen=True)
class CapacityRow:
    """Hits at one capacity; rates are None where nothing was asked.

    Attributes
    ----------
    label
        The capacity as the user wrote it, ``unlimited``, or the bound of the run.
    capacity_blocks, capacity_bytes
        Whole blocks, and the bytes that were asked for (None when unknown or unlimited).
    """

    label: str
    capacity_blocks: int
    capacity_bytes: int | None
    hit_blocks: int
    hit_tokens: int
    block_hit_rate: float | None
    reuse_hit_rate: float | None
    prefix_hit_rate: float | None
    token_hit_rate: float | None


@dataclass(frozen=True)
class ShareRow:
    """The smallest capacity whose block hits reach a percentage of the ceiling."""

    percent: float
    capacity_blocks: int
    capacity_bytes: int | None
    hit_blocks: int


@dataclass(frozen=True)
class CapacityPercentiles:
    """Nearest-rank percentiles of the capacity that each request of a sample required.

    ``required_blocks`` is keyed by percentage. An empty sample has no percentiles.
    """

    requests: int
    mean_blocks: float | None
    required_blocks: dict[float, int]


@dataclass(frozen=True)
class PoolAnswer:
    """The answer for one pool, or for all of them together (``pool`` None).

    ``capacities`` ends with unlimited storage, or with the bound of the run. ``headline`` is the row at
    the p99 of what requests required. ``policies`` is what was simulated, with the headroom from LRU to
    optimal and the capacities at which FIFO falls.
    """

    pool: str | None
    totals: Totals
    capacities: tuple[CapacityRow, ...]
    shares: tuple[ShareRow, ...]
    samples: CapacityPercentiles
    reusing: CapacityPercentiles
    headline: CapacityRow | None
    policies: tuple[PolicyRow, ...]
    headroom: tuple[Headroom, ...]
    fifo_falls: tuple[FifoFall, ...]


@dataclass(frozen=True)
class Answer:
    """The answer of a replay."""

    run: RunInfo
    together: PoolAnswer
    pools: tuple[PoolAnswer, ...]


def answer(results: Results, capacities: str | None = None, *, omit_underfilled: bool = False) -> Answer:
    """Answer the main questions from a replay's results.

    Parameters
    ----------
    results
        An open replay.
    capacities
        Comma list of capacities, as ``--capacities`` takes it; None takes those of the replay. What
        policies do is known at those of the replay alone.
    omit_underfilled
        Whether to leave out rows of policies at capacities that are not full before the measured requests.

    Raises
    ------
    UsageError
        If the capacities do not parse or do not fit the run.
    """
    run = results.run
    wanted = resolve_capacities(capacities or run.rules.capacities, run)
    largest = largest_capacity(run)
    totals = {row["pool"]: _totals(row) for row in results.query("totals").to_pylist()}
    percentiles = _percentiles(results)
    curves = curves_by_pool(results)
    simulated = policy_rows(results, omit_underfilled=omit_underfilled)
    answers = {}
    for pool, pool_totals in totals.items():
        empty = CapacityPercentiles(0, None, {})
        samples = percentiles.get((pool, "samples"), empty)
        p99 = samples.required_blocks.get(HEADLINE_PERCENT)
        policies = simulated.get(pool, ())
        at_p99 = [] if p99 is None else [ResolvedCapacity("p99", p99, _in_bytes(p99, run))]
        curve = curves[pool]
        rows = _capacity_rows(curve, [*wanted, largest, *at_p99], pool_totals)
        answers[pool] = PoolAnswer(
            pool=pool,
            totals=pool_totals,
            capacities=rows[: len(wanted) + 1],
            shares=_share_rows(curve, pool_totals, run),
            samples=samples,
            reusing=percentiles.get((pool, "reusing"), empty),
            headline=rows[-1] if at_p99 else None,
            policies=policies,
            headroom=headroom(policies),
            fifo_falls=fifo_falls(policies),
        )
    return Answer(run, answers[None], tuple(answers[pool] for pool in answers if pool is not None))


def _in_bytes(blocks: int, run: RunInfo) -> int | None:
    return None if run.block_bytes is None else blocks * run.block_bytes


def _totals(row: dict[str, Any]) -> Totals:
    values = {key: value for key, value in row.items() if key != "pool"}
    return Totals(**{**values, "mean_input_tokens": values["mean_input_tokens"] or 0.0})


def _capacity_rows(
    curve: Curve, capacities: list[ResolvedCapacity], totals: Totals
) -> tuple[CapacityRow, ...]:
    blocks, tokens = hits_at(curve, np.array([capacity.blocks for capacity in capacities], np.int64))
    return tuple(
        CapacityRow(
            label=capacity.label,
            capacity_blocks=capacity.blocks,
            capacity_bytes=capacity.size_bytes,
            hit_blocks=hit_blocks,
            hit_tokens=hit_tokens,
            block_hit_rate=_rate(hit_blocks, totals.blocks),
            reuse_hit_rate=_rate(hit_blocks, totals.ceiling_blocks),
            prefix_hit_rate=_rate(hit_blocks, totals.blocks),
            token_hit_rate=_rate(hit_tokens, totals.input_tokens),
        )
        for capacity, hit_blocks, hit_tokens in zip(capacities, blocks.tolist(), tokens.tolist(), strict=True)
    )


def _rate(hits: int, asked: int) -> float | None:
    return hits / asked if asked else None


def _share_rows(curve: Curve, totals: Totals, run: RunInfo) -> tuple[ShareRow, ...]:
    rows = []
    for percent in SHARE_PERCENTS:
        capacity = smallest_capacity(curve, ceil(totals.ceiling_blocks * Fraction(percent) / 100))
        assert capacity is not None
        hit_blocks, _ = hits_at(curve, np.array([capacity]))
        rows.append(ShareRow(percent, capacity, _in_bytes(capacity, run), int(hit_blocks[0])))
    return tuple(rows)


def _percentiles(results: Results) -> dict[tuple[str | None, str], CapacityPercentiles]:
    grouped: dict[tuple[str | None, str], list[dict[str, Any]]] = defaultdict(list)
    for row in results.query("capacity_percentiles", percents=list(CAPACITY_PERCENTS)).to_pylist():
        grouped[row["pool"], row["sample"]].append(row)
    return {
        key: CapacityPercentiles(
            requests=rows[0]["requests"],
            mean_blocks=rows[0]["mean_blocks"],
            required_blocks={row["percent"]: row["required_blocks"] for row in rows},
        )
        for key, rows in grouped.items()
    }

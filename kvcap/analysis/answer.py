"""The answer of the main job: hit rates over capacity, and the capacity that requests required."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kvcap.analysis.policy_answer import FifoFall, Headroom, PolicyRow, fifo_falls, headroom, policy_rows
from kvcap.queries import ResolvedCapacity, largest_capacity, resolve_capacities

if TYPE_CHECKING:
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
    required = {pool: samples for (pool, sample), samples in percentiles.items() if sample == "samples"}
    headlines = {
        blocks
        for samples in required.values()
        if (blocks := samples.required_blocks.get(HEADLINE_PERCENT)) is not None
    }
    rows = _capacity_rows(results, [*(c.blocks for c in wanted), largest.blocks, *headlines])
    shares = _share_rows(results)
    simulated = policy_rows(results, omit_underfilled=omit_underfilled)
    answers = {}
    for pool, pool_totals in totals.items():
        empty = CapacityPercentiles(0, None, {})
        samples = percentiles.get((pool, "samples"), empty)
        p99 = samples.required_blocks.get(HEADLINE_PERCENT)
        policies = simulated.get(pool, ())
        at_p99 = None if p99 is None else ResolvedCapacity("p99", p99, _in_bytes(p99, run))
        answers[pool] = PoolAnswer(
            pool=pool,
            totals=pool_totals,
            capacities=tuple(_row(c, rows[pool, c.blocks]) for c in (*wanted, largest)),
            shares=tuple(shares[pool]),
            samples=samples,
            reusing=percentiles.get((pool, "reusing"), empty),
            headline=None if at_p99 is None else _row(at_p99, rows[pool, at_p99.blocks]),
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


def _capacity_rows(results: Results, blocks: list[int]) -> dict[tuple[str | None, int], dict[str, Any]]:
    table = results.query("hit_rate_curve", capacities_blocks=sorted(set(blocks)))
    return {(row["pool"], row["capacity_blocks"]): row for row in table.to_pylist()}


def _row(capacity: ResolvedCapacity, values: dict[str, Any]) -> CapacityRow:
    rest = {key: value for key, value in values.items() if key not in ("pool", "capacity_blocks")}
    return CapacityRow(capacity.label, capacity.blocks, capacity.size_bytes, **rest)


def _share_rows(results: Results) -> dict[str | None, list[ShareRow]]:
    shares: dict[str | None, list[ShareRow]] = defaultdict(list)
    for row in results.query("capacity_for_hit_rate", percents=list(SHARE_PERCENTS)).to_pylist():
        pool = row.pop("pool")
        shares[pool].append(ShareRow(**row))
    return shares


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

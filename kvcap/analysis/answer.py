"""The answer of the main job: hit rates over capacity, and the capacity that requests required."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from kvcap.analysis.policy_answer import FifoFall, Headroom, PolicyRow, fifo_falls, headroom, policy_rows
from kvcap.queries import ResolvedCapacity, largest_capacity, resolve_capacities
from kvcap.queries.library import ANSWER_NAME

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
    rows = results.query(
        ANSWER_NAME,
        capacities_blocks=sorted({capacity.blocks for capacity in (*wanted, largest)}),
        shares=list(SHARE_PERCENTS),
        percents=list(CAPACITY_PERCENTS),
        headline=HEADLINE_PERCENT,
    ).to_pylist()
    simulated = policy_rows(results, omit_underfilled=omit_underfilled)
    together, *pools = (
        _pool_answer(row, (*wanted, largest), simulated.get(row["pool"], ()), run) for row in rows
    )
    return Answer(run, together, tuple(pools))


def _pool_answer(
    row: dict[str, Any],
    capacities: tuple[ResolvedCapacity, ...],
    policies: tuple[PolicyRow, ...],
    run: RunInfo,
) -> PoolAnswer:
    """Return the answer for one pool from its row of the query ``_answer``."""
    samples, reusing = (_percentiles(row["required"] or [], sample) for sample in ("samples", "reusing"))
    at = {hits["capacity_blocks"]: hits for hits in row["capacities"]}
    p99 = samples.required_blocks.get(HEADLINE_PERCENT)
    at_p99 = None if p99 is None else ResolvedCapacity("p99", p99, _in_bytes(p99, run))
    return PoolAnswer(
        pool=row["pool"],
        totals=_totals(row),
        capacities=tuple(_row(capacity, at[capacity.blocks]) for capacity in capacities),
        shares=tuple(ShareRow(**_without(share, "pool")) for share in row["shares"]),
        samples=samples,
        reusing=reusing,
        headline=None if at_p99 is None else _row(at_p99, at[at_p99.blocks]),
        policies=policies,
        headroom=headroom(policies),
        fifo_falls=fifo_falls(policies),
    )


def _in_bytes(blocks: int, run: RunInfo) -> int | None:
    return None if run.block_bytes is None else blocks * run.block_bytes


def _totals(row: dict[str, Any]) -> Totals:
    values = {field.name: row[field.name] for field in fields(Totals)}
    return Totals(**{**values, "mean_input_tokens": values["mean_input_tokens"] or 0.0})


def _row(capacity: ResolvedCapacity, hits: dict[str, Any]) -> CapacityRow:
    rates = _without(hits, "pool", "capacity_blocks")
    return CapacityRow(capacity.label, capacity.blocks, capacity.size_bytes, **rates)


def _percentiles(rows: list[dict[str, Any]], sample: str) -> CapacityPercentiles:
    of_sample = [row for row in rows if row["sample"] == sample]
    if not of_sample:
        return CapacityPercentiles(0, None, {})
    return CapacityPercentiles(
        requests=of_sample[0]["requests"],
        mean_blocks=of_sample[0]["mean_blocks"],
        required_blocks={row["percent"]: row["required_blocks"] for row in of_sample},
    )


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}

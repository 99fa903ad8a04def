"""What an explanation consists of; the fields are those of its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcap.analysis.explain.groups import GroupRow, RequestRow
    from kvcap.analysis.explain.surplus import Surplus
    from kvcap.analysis.explain.survival import SurvivalRow
    from kvcap.queries import RunInfo


@dataclass(frozen=True)
class Share:
    """Tokens, also as a share of the prompt tokens that were observed."""

    tokens: int
    share: float


@dataclass(frozen=True)
class ObservedSide:
    """What the log says: requests with a value among all, their prompts, and what was served from cache."""

    requests: int
    requests_with_value: int
    input_tokens: int
    tokens: int
    share: float


@dataclass(frozen=True)
class CapacityRow:
    """One instance from one of its requests on; ``range`` ends in None where nothing bounds it."""

    instance: str | None
    since: str | None
    capacity_blocks: int | None
    capacity_bytes: int | None
    range: tuple[int, int | None]


@dataclass(frozen=True)
class EffectiveCapacity:
    """What the caches held.

    Attributes
    ----------
    capacity_blocks, capacity_bytes
        Of each instance; None where they differ (see ``limits``), and where bytes are unknown.
    explained_share
        Of the known tokens that were missed, how much capacity explains (with or without a lifetime).
    range
        From the least to the most that explains as much.
    cuts
        Hits that end inside a stretch of blocks of one age, as only a capacity cuts them, and where.
    cut_quantiles
        Depths in blocks of the first one that was missed there, at 5, 25, 50, 75 and 95 %.
    limits
        Instance by instance, by time.
    """

    capacity_blocks: int | None
    capacity_bytes: int | None
    explained_share: float
    range: tuple[int, int | None]
    cuts: int
    cut_quantiles: tuple[int, ...]
    limits: tuple[CapacityRow, ...]


@dataclass(frozen=True)
class EffectiveTtl:
    """How long blocks were kept since their last use: any time in ``range`` explains as much."""

    seconds: float
    range: tuple[float, float]
    explained_share: float


@dataclass(frozen=True)
class RestartRow:
    """A restart: between two requests of an instance, whose times these are."""

    instance: str | None
    after: str | None
    until: str | None
    requests: int
    missed_tokens: int
    is_given: bool


@dataclass(frozen=True)
class CauseRow:
    """One step of the waterfall."""

    cause: str
    tokens: int
    share: float


@dataclass(frozen=True)
class EngineExpectation:
    """What an engine's own eviction makes of the effective capacities.

    Attributes
    ----------
    engine
        Which.
    tokens, share
        From cache, by its simulation.
    capacity_blocks
        Of each instance, the one near the effective capacity that comes nearest to what was observed.
    gap_tokens, lru_gap_tokens
        What requests differ by from what was observed, summed up: in the simulation, and as the limits alone
        have it.
    closed_share
        How much of the latter the simulation closes; below 0 where it is further off.
    """

    engine: str
    tokens: int
    share: float
    capacity_blocks: tuple[int, ...]
    gap_tokens: int
    lru_gap_tokens: int
    closed_share: float


@dataclass(frozen=True)
class Explanation:
    """Observed beside expected.

    Attributes
    ----------
    run
        The replay of all instances of a pool together.
    observed, expected, unlimited
        Tokens from cache: as the log has them, as the limits say, and of one storage without limits.
    effective_capacity, effective_ttl
        None where no such limit is visible.
    engine
        The simulation of an engine, if one was asked for and every instance has one capacity.
    structure, misfit
        What has limits of its own, and its error as a share of what no limits get wrong.
    waterfall
        All prompt tokens: what hit as expected and beyond, and what missed, by cause; adds up exactly.
    surplus
        What of ``more_than_expected`` the log had not shown before.
    remarks
        What cannot be told apart, and what to do about it; a sentence each.
    """

    run: RunInfo
    observed: ObservedSide
    expected: Share
    unlimited: Share
    effective_capacity: EffectiveCapacity | None
    effective_ttl: EffectiveTtl | None
    engine: EngineExpectation | None
    structure: str
    misfit: float
    restarts: tuple[RestartRow, ...]
    waterfall: tuple[CauseRow, ...]
    unexplained: Share
    more_than_expected: Share
    surplus: Surplus
    survival: tuple[SurvivalRow, ...]
    by_hour: tuple[GroupRow, ...]
    by_instance: tuple[GroupRow, ...]
    by_session: tuple[GroupRow, ...]
    by_model: tuple[GroupRow, ...]
    worst_requests: tuple[RequestRow, ...]
    remarks: tuple[str, ...]

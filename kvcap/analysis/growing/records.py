"""What an answer of growth holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvcap.queries import ReadAccount

Kind = Literal["today", "users", "context", "faster", "turns", "add"]


@dataclass(frozen=True)
class Range:
    """An interval of sampling, nominally 95 %: not of what the method itself gets wrong."""

    low: float
    high: float


@dataclass(frozen=True)
class GrowthHits:
    """Hit rates at one capacity; ``block_hit_range`` is None where nothing is sampled."""

    capacity: str
    capacity_blocks: int
    block_hit_rate: float
    token_hit_rate: float
    block_hit_range: Range | None


@dataclass(frozen=True)
class GrowthRow:
    """Today, or one growth of it.

    Attributes
    ----------
    name, kind, factor
        What grew, and how many times; no factor for today and an added log.
    requests, sessions, distinct_blocks
        Of the whole trace.
    blocks, input_tokens
        Of its measured requests.
    ceiling_block_hit_rate, ceiling_range
        With unlimited storage.
    capacity_for_95_percent_blocks
        The smallest capacity with 95 % of the hits of unlimited storage.
    required_p50_blocks, required_p90_blocks, required_p99_blocks, required_p99_range
        Of the capacity that requests require; None from a sample under 500 sessions, the range also where
        nothing is sampled.
    scaled_p99_blocks
        Today's p99 times the factor, the other bound; None where that says nothing.
    hits
        At each capacity asked for.
    """

    name: str
    kind: Kind
    factor: float | None
    requests: int
    sessions: int
    blocks: int
    input_tokens: int
    distinct_blocks: int
    ceiling_block_hit_rate: float
    ceiling_range: Range | None
    capacity_for_95_percent_blocks: int
    required_p50_blocks: int | None
    required_p90_blocks: int | None
    required_p99_blocks: int | None
    required_p99_range: Range | None
    scaled_p99_blocks: int | None
    hits: tuple[GrowthHits, ...]


@dataclass(frozen=True)
class BackTest:
    """Half of the sessions grown twofold, against all of them: shown, and never applied.

    Attributes
    ----------
    sessions
        In the half.
    ceiling_error
        Of the block hit rate with unlimited storage.
    curve_error
        Largest difference of block hit rates over the whole curve.
    required_p90_ratio, required_p99_ratio
        Predicted over true; None where nothing is required.
    """

    sessions: int
    ceiling_error: float
    curve_error: float
    required_p90_ratio: float | None
    required_p99_ratio: float | None


@dataclass(frozen=True)
class GrowthAnswer:
    """The answer of a growth what-if; ``block_bytes`` is None when unknown, ``back_test`` without users.

    ``reading`` says what was left out of the log, and of those that were added.
    """

    block_size: int
    block_bytes: int | None
    rows: tuple[GrowthRow, ...]
    back_test: BackTest | None
    reading: tuple[ReadAccount, ...]
    assumptions: tuple[str, ...]

"""What an estimator knows at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from kvcap.kernels.arrays import Int64Array, nearest_rank
from kvcap.kernels.observations import (
    BLOCKS,
    CEILING_BLOCKS,
    CEILING_TOKENS,
    FIRST_CAPACITY,
    INPUT_TOKENS,
    REQUIRED_BLOCKS,
    WITHIN_BOUND_BLOCKS,
)

PERCENTILES: Final = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p95": Fraction(95, 100),
    "p99": Fraction(99, 100),
    "p999": Fraction(999, 1000),
}


@dataclass(frozen=True)
class CapacityHits:
    """Hits at one capacity; rates are None where nothing was asked.

    ``capacity_bytes`` is that of whole blocks, None where the bytes of a block are unknown.
    """

    capacity_blocks: int
    capacity_bytes: int | None
    hit_blocks: int
    hit_tokens: int
    block_hit_rate: float | None
    reuse_hit_rate: float | None
    token_hit_rate: float | None


@dataclass(frozen=True)
class Traffic:
    """Counts over some requests.

    Attributes
    ----------
    blocks
        All that were looked up: ``ceiling_blocks + cold_blocks``.
    ceiling_blocks, ceiling_tokens
        What was remembered. The ``beyond_bound_blocks`` of them lie deeper than the bound.
    cold_blocks
        What was new, or forgotten.
    """

    requests: int
    input_tokens: int
    blocks: int
    ceiling_blocks: int
    ceiling_tokens: int
    beyond_bound_blocks: int
    cold_blocks: int
    ceiling_rate: float | None
    capacities: tuple[CapacityHits, ...]


@dataclass(frozen=True)
class RequiredCapacity:
    """Nearest-rank percentiles of the capacity that each request of a sample required.

    ``required_blocks`` and ``required_bytes`` are keyed ``p50`` to ``p999``, and empty for an empty sample.
    """

    requests: int
    mean_blocks: float | None
    required_blocks: dict[str, int]
    required_bytes: dict[str, int] | None


@dataclass(frozen=True)
class Snapshot:
    """What an estimator knows at one moment.

    Attributes
    ----------
    totals, window
        Counts over all requests, and over those of the window.
    samples, reusing
        What requests of the window required: all of them, and those with something to reuse.
    pools
        How many caches were told apart.
    tracked_blocks, forgotten_blocks, memory_bytes
        Blocks remembered, blocks forgotten so far, and bytes held.
    """

    totals: Traffic
    window: Traffic
    samples: RequiredCapacity
    reusing: RequiredCapacity
    pools: int
    tracked_blocks: int
    forgotten_blocks: int
    memory_bytes: int


def traffic(
    requests: int, sums: Int64Array, capacities_blocks: tuple[int, ...], block_bytes: int | None
) -> Traffic:
    """Return counts from sums over rows of :mod:`kvcap.kernels.observations`."""
    values: list[int] = sums.tolist()
    n_capacities = len(capacities_blocks)
    blocks, ceiling, tokens = values[BLOCKS], values[CEILING_BLOCKS], values[INPUT_TOKENS]
    capacities = []
    for c, capacity in enumerate(capacities_blocks):
        hit_blocks = values[FIRST_CAPACITY + c]
        hit_tokens = values[FIRST_CAPACITY + n_capacities + c]
        capacities.append(
            CapacityHits(
                capacity_blocks=capacity,
                capacity_bytes=None if block_bytes is None else capacity * block_bytes,
                hit_blocks=hit_blocks,
                hit_tokens=hit_tokens,
                block_hit_rate=_rate(hit_blocks, blocks),
                reuse_hit_rate=_rate(hit_blocks, ceiling),
                token_hit_rate=_rate(hit_tokens, tokens),
            )
        )
    return Traffic(
        requests=requests,
        input_tokens=tokens,
        blocks=blocks,
        ceiling_blocks=ceiling,
        ceiling_tokens=values[CEILING_TOKENS],
        beyond_bound_blocks=ceiling - values[WITHIN_BOUND_BLOCKS],
        cold_blocks=blocks - ceiling,
        ceiling_rate=_rate(ceiling, blocks),
        capacities=tuple(capacities),
    )


def required_capacity(rows: Int64Array, block_bytes: int | None) -> RequiredCapacity:
    """Return the percentiles over rows of :mod:`kvcap.kernels.observations`."""
    ordered = np.sort(rows[:, REQUIRED_BLOCKS])
    n = ordered.size
    blocks = {name: nearest_rank(ordered, share) for name, share in PERCENTILES.items()} if n else {}
    return RequiredCapacity(
        requests=n,
        mean_blocks=float(ordered.mean()) if n else None,
        required_blocks=blocks,
        required_bytes=None
        if block_bytes is None
        else {name: value * block_bytes for name, value in blocks.items()},
    )


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None

"""What a hit is worth: prefill that need not be computed, against storage that must be paid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from kvcap.analysis.figures import Figures
    from kvcap.analysis.plan_options import PlanOptions

GIB: Final = 1 << 30
HOURS_PER_MONTH: Final = 730
"""The mean month of cloud price lists."""
MAX_SPEED_UP: Final = 1000.0


@dataclass(frozen=True)
class Valuation:
    """Turns the hits of a trace into GPU-hours and money.

    Attributes
    ----------
    days
        How many days of traffic the measured requests are; None when unknown.
    gpu_hours_per_token
        Of computing one prompt token; None without a prefill speed.
    money_per_token
        None without a price of a GPU-hour.
    """

    days: float | None
    gpu_hours_per_token: float | None
    money_per_token: float | None

    def gpu_hours_per_day(self, tokens: int) -> float | None:
        """Return the GPU-hours a day that hit tokens of the trace save."""
        if self.days is None or self.gpu_hours_per_token is None:
            return None
        return tokens * self.gpu_hours_per_token / self.days

    def money_per_month(self, tokens: int) -> float | None:
        """Return the money a month that hit tokens of the trace save."""
        if self.days is None or self.money_per_token is None:
            return None
        return tokens * self.money_per_token / self.days * HOURS_PER_MONTH / 24

    def break_even_age_seconds(self, bytes_per_token: float, price_per_gib_month: float) -> float | None:
        """Return how long holding a block costs less than computing it once."""
        if self.money_per_token is None:
            return None
        holding_per_second = bytes_per_token / GIB * price_per_gib_month / (HOURS_PER_MONTH * 3600)
        return self.money_per_token / holding_per_second


def valuation(figures: Figures, options: PlanOptions) -> Valuation:
    """Return what hits of this traffic are worth."""
    days = None
    if options.requests_per_day is not None:
        days = figures.blocks.size / float(options.requests_per_day)
    elif figures.span_seconds is not None:
        days = figures.span_seconds / 86400
    speed = options.prefill_tokens_per_second
    hours = None if speed is None else 1 / (3600 * float(speed))
    money = None if hours is None or options.gpu_hour is None else hours * float(options.gpu_hour)
    return Valuation(days, hours, money)


def speed_up(token_hit_rate: float) -> float:
    """Return the ideal prefill speed-up ``1 / (1 - token hit rate)``, at most 1000."""
    return min(MAX_SPEED_UP, 1 / max(1 - token_hit_rate, 1 / MAX_SPEED_UP))


def best_last_capacity(
    figures: Figures, value: Valuation, above_blocks: int, price_per_gib_month: float, *, inclusive: bool
) -> int | None:
    """Return the capacity, tiers above included, at which a last tier earns most over its price.

    Parameters
    ----------
    figures, value
        The hits, and what they are worth.
    above_blocks
        Capacity of the tiers above; the result when no size earns its price.
    price_per_gib_month
        Of the last tier.
    inclusive
        Whether the last tier pays for a copy of what is above it.

    Returns
    -------
    int or None
        In blocks of each pool; None when value or bytes are unknown.

    Notes
    -----
    Hits over capacity are piecewise linear, so the best capacity is a corner of the curve.
    """
    block_bytes = figures.run.block_bytes
    per_token = value.money_per_month(1)
    if block_bytes is None or per_token is None:
        return None
    corners = figures.curve.capacity_blocks
    capacities = corners[corners > above_blocks]
    if capacities.size == 0:
        return above_blocks
    _, tokens = figures.hits_at(capacities)
    held = capacities if inclusive else capacities - above_blocks
    cost = held * (block_bytes / GIB * price_per_gib_month * figures.pools)
    gain = (tokens - figures.hits(above_blocks)[1]) * per_token - cost
    best = int(np.argmax(gain))
    return int(capacities[best]) if gain[best] > 0 else above_blocks

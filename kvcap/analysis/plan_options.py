"""What a plan is asked: the goal, the tiers, and what computing costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from kvcap.errors import UsageError
from kvcap.units import Capacity, decimal_text, parse_capacity, parse_number, parse_percent

GoalKind = Literal["request-percentile", "ceiling-share", "hit-rate"]

DEFAULT_STEP: Final = "100GiB"
DEFAULT_WINDOW_SECONDS: Final = 60


@dataclass(frozen=True)
class Goal:
    """What the planned capacity must reach.

    Parameters
    ----------
    kind
        ``request-percentile``: so many of the requests reach the run's target; ``ceiling-share``: so much
        of the hits of unlimited storage; ``hit-rate``: so many of the blocks hit.
    share
        The share of 1 meant by ``kind``, exact.
    """

    kind: GoalKind
    share: Fraction

    @property
    def number(self) -> str:
        """The share as people write it for this kind: a hit rate of 1, all others in per cent."""
        return decimal_text(self.share if self.kind == "hit-rate" else 100 * self.share)

    @property
    def text(self) -> str:
        """The goal as ``--goal`` takes it."""
        name = "request-p" if self.kind == "request-percentile" else f"{self.kind} "
        return f"{name}{self.number}"


DEFAULT_GOAL: Final = Goal("request-percentile", Fraction(99, 100))


@dataclass(frozen=True)
class Tier:
    """One level of storage.

    Parameters
    ----------
    name
        What to call it.
    size
        What it holds, of each pool.
    price_per_gib_month
        What a GiB costs for a month; None when no price was given.
    """

    name: str
    size: Capacity
    price_per_gib_month: Fraction | None = None


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is asked.

    Parameters
    ----------
    goal
        What the planned capacity must reach.
    tiers
        From the fastest down.
    inclusive
        Whether each tier also holds what the tiers above it hold; else they add up.
    prefill_tokens_per_second
        Prompt tokens that one GPU computes in a second.
    gpu_hour
        What an hour of that GPU costs.
    step
        The further capacity whose value is asked.
    requests_per_day
        Traffic to scale to; None takes the trace's own, from its timestamps.
    window_seconds
        Length of the windows over which a tier's peak reads are taken.
    """

    goal: Goal = DEFAULT_GOAL
    tiers: tuple[Tier, ...] = ()
    inclusive: bool = False
    prefill_tokens_per_second: Fraction | None = None
    gpu_hour: Fraction | None = None
    step: Capacity = field(default_factory=lambda: parse_capacity(DEFAULT_STEP))
    requests_per_day: Fraction | None = None
    window_seconds: int = DEFAULT_WINDOW_SECONDS


def parse_goal(text: str) -> Goal:
    """Return a goal from ``request-p99``, ``ceiling-share 95`` or ``hit-rate 0.6``.

    Raises
    ------
    UsageError
        If it is none of these.
    """
    name, _, value = text.strip().partition(" ")
    if name.startswith("request-p") and not value:
        percent = name.removeprefix("request-p")
        return Goal("request-percentile", parse_percent(percent, "--goal request-p", zero_allowed=False))
    if name == "ceiling-share" and value:
        return Goal("ceiling-share", parse_percent(value, "--goal ceiling-share", zero_allowed=False))
    if name == "hit-rate" and value:
        return Goal("hit-rate", parse_rate(value, "--goal hit-rate"))
    raise UsageError(f"--goal is {text!r}, expected request-p99, ceiling-share 95 or hit-rate 0.6")


def parse_rate(text: str, what: str) -> Fraction:
    """Return a rate above 0 and at most 1, exactly.

    Raises
    ------
    UsageError
        If it is not that.
    """
    rate = parse_number(text, what)
    if rate > 1:
        raise UsageError(f"{what} is {text!r}, expected a share above 0 and at most 1, such as 0.6")
    return rate


def parse_tier(text: str) -> Tier:
    """Return a tier from ``NAME=SIZE`` or ``NAME=SIZE:PRICE``, the price per GiB and month.

    Raises
    ------
    UsageError
        If it is not that.
    """
    name, equals, rest = text.partition("=")
    size, colon, price = rest.partition(":")
    if not name.strip() or not equals:
        raise UsageError(f"--tier is {text!r}, expected NAME=SIZE[:PRICE], such as dram=2TiB:4.5")
    return Tier(
        name=name.strip(),
        size=parse_capacity(size, f"--tier {name}"),
        price_per_gib_month=parse_number(price, f"price of --tier {name}") if colon else None,
    )

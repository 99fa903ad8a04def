"""What a plan is asked: the goal, the tiers, and what computing costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from kvcap.errors import UsageError
from kvcap.option_fields import option, share, whole_number
from kvcap.units import Capacity, decimal_text, format_size, parse_capacity, parse_number, parse_percent

GoalKind = Literal["request-percentile", "ceiling-share", "hit-rate"]


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


def parse_goal(text: str, name: str = "--goal") -> Goal:
    """Return a goal from ``request-p99``, ``ceiling-share 95`` or ``hit-rate 0.6``.

    Raises
    ------
    UsageError
        If it is none of these.
    """
    kind, _, value = text.strip().partition(" ")
    if kind.startswith("request-p") and not value:
        percent = kind.removeprefix("request-p")
        return Goal("request-percentile", parse_percent(percent, f"{name} request-p", zero_allowed=False))
    if kind == "ceiling-share" and value:
        return Goal("ceiling-share", parse_percent(value, f"{name} ceiling-share", zero_allowed=False))
    if kind == "hit-rate" and value:
        return Goal("hit-rate", share(value, f"{name} hit-rate"))
    raise UsageError(f"{name} is {text!r}, expected request-p99, ceiling-share 95 or hit-rate 0.6")


def parse_tier(text: str, option_name: str = "--tier") -> Tier:
    """Return a tier from ``NAME=SIZE`` or ``NAME=SIZE:PRICE``, the price per GiB and month.

    Raises
    ------
    UsageError
        If it is not that.
    """
    name, equals, rest = text.partition("=")
    size, colon, price = rest.partition(":")
    if not name.strip() or not equals:
        raise UsageError(f"{option_name} is {text!r}, expected NAME=SIZE[:PRICE], such as dram=2TiB:4.5")
    return Tier(
        name=name.strip(),
        size=parse_capacity(size, f"{option_name} {name}"),
        price_per_gib_month=parse_number(price, f"price of {option_name} {name}") if colon else None,
    )


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

    goal: Goal = option(
        DEFAULT_GOAL,
        "request-p99 (so many requests reach the run's target; any percentile), ceiling-share 95 (percent of "
        "the hits of unlimited storage) or hit-rate 0.6 (of blocks) (default: {default})",
        metavar=("KIND", "VALUE"),
        parse=parse_goal,
        show=lambda goal: str(goal.text),
        form="words",
    )
    tiers: tuple[Tier, ...] = option(
        (),
        "a tier of storage and its price per GiB and month, the fastest first, such as dram=2TiB:4.5; may be "
        "given several times",
        "--tier",
        metavar="NAME=SIZE[:PRICE]",
        parse=parse_tier,
        form="repeated",
    )
    inclusive: bool = option(
        False, "each tier also holds what the tiers above it hold (default: sizes add up)"
    )
    prefill_tokens_per_second: Fraction | None = option(
        None, "prompt tokens that one GPU computes in a second", metavar="N", parse=parse_number
    )
    gpu_hour: Fraction | None = option(
        None, "price of an hour of that GPU, in any currency", metavar="PRICE", parse=parse_number
    )
    step: Capacity = option(
        Capacity(Fraction(100 * 1024**3), "bytes"),
        "the further capacity to value (default: {default})",
        metavar="SIZE",
        parse=parse_capacity,
        show=lambda step: format_size(step.amount),
    )
    requests_per_day: Fraction | None = option(
        None,
        "traffic to scale to (default: the trace's own, from timestamps)",
        metavar="N",
        parse=parse_number,
    )
    window_seconds: int = option(
        60,
        "windows over which the p99 of reads is taken (default: {default})",
        metavar="N",
        parse=whole_number(1),
    )

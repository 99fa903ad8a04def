"""What a fit of limits consists of, and the round number in a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kvcap.kernels.observed.pieces import NO_LIMIT

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.observed.limits import BestLifetime

Cell = tuple["int | None", int]
"""A cache (None: all alike), and the request from which on it has a capacity of its own."""
Scope = Literal["none", "one", "per instance", "over time", "per instance over time", "given"]

FEWEST_REQUESTS: Final = 5
"""Below so many requests that miss, or that only a lifetime explains, nothing is told."""
_EXCEPTIONS: Final = 0.05
_UNITS_US: Final = (1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)


@dataclass(frozen=True)
class KnownLimits:
    """What the user says of a cache; None is for kvcap to find, and ``NO_LIMIT`` says that there is none."""

    capacity_blocks: int | None = None
    lifetime_us: int | None = None


@dataclass(frozen=True)
class CapacityLimit:
    """The capacity of one cache from one of its requests on.

    Attributes
    ----------
    cache, first_request
        Whose, and from when on.
    best
        Blocks; None where no limit is visible.
    low, high
        What explains that cache's own tokens hardly worse than the best for it alone; where nothing is wrong,
        exactly as well. ``high`` is None where nothing bounds it: ``best`` is then what other caches show.
    """

    cache: int
    first_request: int
    best: int | None
    low: int
    high: int | None


@dataclass(frozen=True)
class Fit:
    """One structure of limits with its best parameters.

    Attributes
    ----------
    scope
        What has a capacity of its own.
    lifetime
        None where the structure has none.
    error, proven_error
        Tokens that it gets wrong, a hit beyond the limits weighing more, and what no parameters can get
        below.
    cells
        What has a capacity of its own; empty for ``none``.
    capacity_blocks : int64 (n_requests,)
        Of the cache that each request comes to; ``NO_LIMIT`` for none.
    parameters
        How many limits it has that are bounded.
    only_lifetime, against_lifetime
        Requests that miss all that only the lifetime explains, and such that hit there.
    """

    scope: Scope
    lifetime: BestLifetime | None
    error: int
    proven_error: int
    cells: tuple[Cell, ...]
    capacity_blocks: Int64Array
    parameters: int
    only_lifetime: int
    against_lifetime: int

    @property
    def has_lifetime(self) -> bool:
        """Whether a lifetime is bounded from above."""
        return self.lifetime_us != NO_LIMIT

    @property
    def lifetime_us(self) -> int:
        """The lifetime that people would have configured, or ``NO_LIMIT``."""
        return lifetime_in(self.lifetime)

    @property
    def lifetime_is_evident(self) -> bool:
        """Whether enough requests need the lifetime, and hardly any speaks against it."""
        return (
            self.has_lifetime
            and self.only_lifetime >= FEWEST_REQUESTS
            and self.against_lifetime <= _EXCEPTIONS * self.only_lifetime
        )

    @property
    def name(self) -> str:
        """What the structure is called in answers."""
        capacity = "capacity" if self.scope in ("one", "given") else f"capacity {self.scope}"
        parts = [] if self.scope == "none" else [capacity]
        return " and ".join([*parts, *(["ttl"] if self.lifetime is not None else [])]) or "none"


@dataclass(frozen=True)
class FittedLimits:
    """The structure that was chosen, beside all that were tried.

    Attributes
    ----------
    chosen
        The one in force.
    limits
        Of every cache, by time.
    tried
        All of them, from the simplest.
    missed_tokens, known_tokens
        Of what could have hit: missed, and in all.
    """

    chosen: Fit
    limits: tuple[CapacityLimit, ...]
    tried: tuple[Fit, ...]
    missed_tokens: int
    known_tokens: int

    def misfit(self, fit: Fit) -> float:
        """Return the error of a structure as a share of what no limits get wrong."""
        return fit.error / self.missed_tokens if self.missed_tokens else 0.0


def lifetime_in(lifetime: BestLifetime | None) -> int:
    """Return the lifetime in a range that people would have configured; ``NO_LIMIT`` without a bound."""
    if lifetime is None or lifetime.high is None:
        return NO_LIMIT
    return roundest(lifetime.low or 0, lifetime.high)


def roundest(low_us: int, high_us: int) -> int:
    """Return the time in ``[low_us, high_us)`` that people would have configured.

    Fewest digits in seconds, minutes, hours or days, then whole in most of these units; ``low_us`` where none
    is whole.
    """
    candidates: set[int] = set()
    for unit in _UNITS_US:
        for power in range(5):
            step = unit * 10**power
            first = -(-low_us // step)
            last = min(first + 9, -(-high_us // step) - 1)
            candidates.update(step * multiple for multiple in range(max(1, first), last + 1))
    return min(candidates, key=_oddness, default=low_us)


def _oddness(time_us: int) -> tuple[int, int, int, int]:
    digits = [len(str(time_us // unit).rstrip("0")) for unit in _UNITS_US if time_us % unit == 0]
    return min(digits), -len(digits), sum(digits), time_us

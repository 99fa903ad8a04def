"""Random draws that are the same on every machine."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARES: Final = (0, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 1)
"""Where a :class:`Quantiles` table has its knots."""


class Quantiles:
    """A distribution given by its quantiles at :data:`SHARES`, linear in between.

    Parameters
    ----------
    values
        Ascending, one per share.
    """

    def __init__(self, *values: float) -> None:
        self.values = values
        pieces = zip(pairwise(SHARES), pairwise(values), strict=True)
        self.mean = math.fsum((right - left) * (low + high) / 2 for (left, right), (low, high) in pieces)

    def at(self, share: float) -> float:
        """Return the value below which ``share`` of the distribution lies."""
        right = min(bisect_right(SHARES, share), len(SHARES) - 1)
        left = right - 1
        position = (share - SHARES[left]) / (SHARES[right] - SHARES[left])
        return self.values[left] + position * (self.values[right] - self.values[left])


class Popularity:
    """Zipf's law over ``count`` things: the k-th weighs ``k ** -skew``.

    Parameters
    ----------
    count
        How many things there are.
    skew
        The exponent; 0 makes all equally popular.
    """

    def __init__(self, count: int, skew: float) -> None:
        self._cumulative: Sequence[float] = tuple(accumulate(rank**-skew for rank in range(1, count + 1)))

    def at(self, share: float) -> int:
        """Return the thing, from 0 for the most popular, at a share of all picks."""
        return min(bisect_right(self._cumulative, share * self._cumulative[-1]), len(self._cumulative) - 1)


class Draws:
    """A stream of draws of its own for whatever the key names.

    Parameters
    ----------
    key
        Seed and names; equal keys give equal streams, different ones unrelated streams.
    """

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key)))

    def chance(self, percent: float) -> bool:
        """Return true in ``percent`` of all cases."""
        return self._random.random() * 100 < percent

    def length(self, shape: Quantiles, mean: float) -> int:
        """Return a whole number from 1, distributed like ``shape`` scaled to ``mean``."""
        return max(1, round(shape.at(self._random.random()) * (mean / shape.mean)))

    def pick(self, popularity: Popularity) -> int:
        """Return one thing by its popularity."""
        return popularity.at(self._random.random())

    def exponential(self, mean: float) -> float:
        """Return the wait for the next event of a Poisson process."""
        return -math.log(1 - self._random.random()) * mean

    def integers(self, bits: int) -> int:
        """Return an integer of so many random bits."""
        return self._random.getrandbits(bits)

    def content(self, length: int) -> bytes:
        """Return so many random bytes; a longer draw does not begin like a shorter one."""
        return self._random.getrandbits(8 * length).to_bytes(length, "little") if length else b""

"""Confidence intervals for statistics of a trace: a circular block bootstrap over its time.

Requests near in time are alike, so single requests must not be resampled. The trace is cut into slots of
equally many consecutive requests, and stretches of neighbouring slots are drawn with replacement, past
the end going on at the start (Politis and Romano 1992). Slots of equal time would leave a trace with
quiet hours too few stretches that count. Percentile intervals of few stretches are too narrow, so they
are widened about the estimate as Student's t widens the normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcap.kernels.arrays import Int64Array, nearest_rank

FloatArray = npt.NDArray[np.float64]

SLOTS: Final = 96
SLOTS_PER_STRETCH: Final = 4
STRETCHES: Final = SLOTS // SLOTS_PER_STRETCH
RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95
MAX_BINS: Final = 4096
"""A percentile of a resample is exact up to the width of one of these bins of equal counts."""

_SEED: Final = 1992


@dataclass(frozen=True)
class Interval:
    """An estimate from the whole trace, and the interval that holds the truth at the stated confidence."""

    value: float
    low: float
    high: float


class TimeBootstrap:
    """Resamples of one trace, the same for every statistic.

    Parameters
    ----------
    n_requests
        How many requests there are, in replay order.
    """

    def __init__(self, n_requests: int) -> None:
        self._slot = np.arange(n_requests) * SLOTS // max(1, n_requests)
        starts = np.random.default_rng(_SEED).integers(0, SLOTS, (RESAMPLES, STRETCHES))
        drawn = (starts[:, :, None] + np.arange(SLOTS_PER_STRETCH)) % SLOTS
        rows = np.arange(RESAMPLES)[:, None, None]
        self._times_drawn = np.zeros((RESAMPLES, SLOTS))
        np.add.at(self._times_drawn, (rows, drawn), 1.0)

    def per_slot(self, values: Int64Array) -> FloatArray:
        """Return the sum of per-request values in each slot: float64 (SLOTS,)."""
        return np.bincount(self._slot, weights=values, minlength=SLOTS).astype(np.float64)

    def resampled(self, slot_sums: FloatArray) -> FloatArray:
        """Return the sums in each resample: (RESAMPLES, ...) from (SLOTS, ...)."""
        sums: FloatArray = self._times_drawn @ slot_sums
        return sums

    def ratio(self, numerator: Int64Array, denominator: Int64Array) -> Interval:
        """Return the interval of a share, a ratio of sums of per-request values; 0 of nothing."""
        below = self.resampled(self.per_slot(denominator))
        above = self.resampled(self.per_slot(numerator))
        some = below > 0
        total = int(denominator.sum())
        return interval(int(numerator.sum()) / total if total else 0.0, above[some] / below[some], most=1.0)

    def percentile(self, values: Int64Array, share: Fraction) -> Interval:
        """Return the interval of a nearest-rank percentile of per-request values."""
        ascending = np.sort(values)
        edges = _bin_edges(ascending)
        bins = np.searchsorted(edges, values)
        counts = np.bincount(self._slot * edges.size + bins, minlength=SLOTS * edges.size)
        cumulative = np.cumsum(self.resampled(counts.reshape(SLOTS, edges.size).astype(np.float64)), axis=1)
        ranks = np.ceil(cumulative[:, -1:] * float(share) - 1e-9)
        found = edges[np.argmax(cumulative >= np.maximum(ranks, 1), axis=1)]
        return interval(nearest_rank(ascending, share), found[cumulative[:, -1] > 0])


def interval(value: float, resampled: npt.NDArray[np.generic], *, most: float = inf) -> Interval:
    """Return the widened percentile interval of a resampled statistic that lies between 0 and ``most``."""
    if resampled.size == 0:
        return Interval(value, value, value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled.astype(np.float64), [tail, 1 - tail])
    widened = _widening(STRETCHES)
    return Interval(
        value=value,
        low=max(0.0, value - widened * max(0.0, value - float(low))),
        high=min(most, value + widened * max(0.0, float(high) - value)),
    )


def _widening(n: int) -> float:
    """Return Student's t over normal quantile for n draws, times the bias of their standard deviation.

    The first term of the Cornish-Fisher expansion of t is within 0.3 % from 20 draws on.
    """
    normal = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    student = normal + (normal**3 + normal) / (4 * (n - 1))
    return student / normal * sqrt(n / (n - 1))


def _bin_edges(ascending: Int64Array) -> Int64Array:
    """Return the upper edges of bins of equal counts, every value its own bin where those are few."""
    distinct = np.unique(ascending)
    if distinct.size <= MAX_BINS:
        return distinct
    ranks = [ceil(ascending.size * part / MAX_BINS) - 1 for part in range(1, MAX_BINS + 1)]
    return np.unique(ascending[ranks])

"""What a cache makes of a trace of paths: the curve, and what requests require."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from kvcap.growth import PathTrace
from kvcap.kernels.arrays import Int64Array, nearest_rank
from kvcap.kernels.curve import Curve, hit_curve, hits_at, smallest_capacity
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.run_tables import WeightedRuns, ceilings, required_blocks, split_by_weight
from kvcap.options import ReplayOptions

_CURVE_POINTS: Final = 400
_LEAST_POINT: Final = 8
_BEYOND_DEEPEST: Final = 1.3


@dataclass(frozen=True)
class Measured:
    """The measured requests of a trace through LRU caches of every size.

    Attributes
    ----------
    requests, sessions
        Of the whole trace.
    blocks, input_tokens
        Of the measured requests.
    distinct_blocks
        Of the whole trace.
    curve
        Hits over capacity.
    required_blocks : int64 (n_measured,)
        What each request requires, in order.
    """

    requests: int
    sessions: int
    blocks: int
    input_tokens: int
    distinct_blocks: int
    curve: Curve
    required_blocks: Int64Array

    def block_hit_rates(self, capacity_blocks: Int64Array) -> np.ndarray:
        """Return the share of blocks that hit at capacities."""
        return hits_at(self.curve, capacity_blocks)[0] / max(1, self.blocks)

    def token_hit_rates(self, capacity_blocks: Int64Array) -> np.ndarray:
        """Return the share of prompt tokens that hit at capacities."""
        return hits_at(self.curve, capacity_blocks)[1] / max(1, self.input_tokens)

    @property
    def ceiling_blocks(self) -> int:
        """Block hits with unlimited storage."""
        return int(self.curve.hit_blocks[-1])

    @property
    def ceiling(self) -> float:
        """Block hit rate with unlimited storage."""
        return self.ceiling_blocks / max(1, self.blocks)

    def capacity_for_ceiling_share(self, share: Fraction) -> int:
        """Return the smallest capacity whose hit blocks reach a share of the ceiling."""
        needed = -(-self.ceiling_blocks * share.numerator // share.denominator)
        capacity = smallest_capacity(self.curve, needed)
        assert capacity is not None, "the curve ends at the ceiling"
        return capacity

    def percentile(self, percent: int) -> int:
        """Return the nearest-rank percentile of what requests require."""
        return nearest_rank(self.required_blocks, Fraction(percent, 100))

    def curve_points(self) -> Int64Array:
        """Return capacities over the whole curve, from a few blocks to beyond the deepest, geometric."""
        top = max(_LEAST_POINT + 1, _BEYOND_DEEPEST * float(self.curve.capacity_blocks[-1]))
        return np.unique(np.geomspace(_LEAST_POINT, top, _CURVE_POINTS).astype(np.int64))


def measure(trace: PathTrace, options: ReplayOptions) -> Measured:
    """Return what caches of every size make of a canonical trace."""
    found = ReuseRunScanner().feed(trace.nodes.view(np.uint64), trace.offsets)
    runs = split_by_weight(found, trace.offsets, trace.covered_tokens, trace.block_size, None)
    warm_up = math.floor(trace.n_requests * options.warm_up)
    runs = WeightedRuns(*(column[runs.request >= warm_up] for column in runs))
    ceiling_blocks, _ = ceilings(runs, trace.n_requests)
    target = options.target.numerator, options.target.denominator
    required = required_blocks(runs, ceiling_blocks, target, tail_first=options.tail_first)
    return Measured(
        requests=trace.n_requests,
        sessions=trace.n_sessions,
        blocks=int(np.diff(trace.offsets)[warm_up:].sum()),
        input_tokens=int(trace.input_tokens[warm_up:].sum()),
        distinct_blocks=trace.n_nodes,
        curve=hit_curve(runs, tail_first=options.tail_first),
        required_blocks=np.sort(required[warm_up:]),
    )

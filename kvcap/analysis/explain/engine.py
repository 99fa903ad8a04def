"""An engine's simulation at the effective capacities: how much of the gap its own eviction closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.analysis.explain.explanation import EngineExpectation
from kvcap.engines.simulate import simulate, simulation_points
from kvcap.errors import UsageError
from kvcap.kernels.engine_rules import lookup_blocks
from kvcap.kernels.run_tables import leading_tokens
from kvcap.replay.policy_tables import numbered_from_0, requests_of

if TYPE_CHECKING:
    from kvcap.analysis.explain.fits import CapacityLimit
    from kvcap.analysis.explain.fitting import Fitting
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.engines import Rules
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.observed.waterfall import Waterfall

_NEARBY: Final = 0.02
"""Engines of whole nodes hold as much more than what they are seen to keep."""
_POINTS: Final = 5


def engine_expectation(
    log: ObservedLog, fitting: Fitting, found: Waterfall, rules: Rules
) -> EngineExpectation | None:
    """Simulate an engine on every cache at capacities in and a little above the range that was found.

    None where no engine was asked for, or some cache has no capacity or several. Restarts and lifetimes are
    not simulated.

    Raises
    ------
    UsageError
        If the engine has no simulation of one pool.
    """
    limits = {limit.cache: limit for limit in fitting.fitted.limits}
    one_each = len(limits) == len(fitting.fitted.limits) == len(log.cache_names)
    if rules.engine is None or not one_each or any(limit.best is None for limit in limits.values()):
        return None
    if len(rules.policies) != 1:
        raise UsageError("--engine explains with one policy, expected no further --policies")
    hits = np.zeros(log.n_requests, np.int64)
    chosen = []
    for cache in range(len(log.cache_names)):
        ids = np.flatnonzero(log.caches == cache)
        capacity, hits[ids] = _nearest(log, ids, limits[cache], rules)
        chosen.append(capacity)
    observed, expected = log.observed, found.predicted
    seen = log.lookups.observed_tokens
    gap = int(np.abs(seen - hits)[observed].sum())
    lru_gap = int(np.abs(seen - expected)[observed].sum())
    return EngineExpectation(
        engine=rules.engine,
        tokens=int(hits[observed].sum()),
        share=float(hits[observed].sum() / max(1, log.prompts.input_tokens[observed].sum())),
        capacity_blocks=tuple(chosen),
        gap_tokens=gap,
        lru_gap_tokens=lru_gap,
        closed_share=1 - gap / lru_gap if lru_gap else float(gap == 0),
    )


def _nearest(log: ObservedLog, ids: Int64Array, limit: CapacityLimit, rules: Rules) -> tuple[int, Int64Array]:
    """Return the capacity of one cache that comes nearest to what was observed, and the hits there."""
    streamed = log.streamed
    weighted = numbered_from_0(log.own_runs, ids, log.n_requests)
    lookups = np.minimum(streamed.blocks, lookup_blocks(streamed.input_tokens, streamed.block_size))
    requests = requests_of(streamed, weighted, ids, lookups, tail_first=True)
    best = limit.best or 0
    high = max(best, limit.high or best)
    # A reserve and a factor say what of an engine's pool holds data: what is seen is what is left of it.
    around = np.linspace(limit.low, high * (1 + _NEARBY), _POINTS).astype(np.int64).tolist()
    capacities = {best, best + 1, high + 1, *around}
    pool = sorted(
        int((blocks + rules.reserve_blocks) / rules.capacity_factor) for blocks in capacities if blocks > 0
    )
    points = simulation_points(pool, rules.capacity_factor, rules.reserve_blocks)
    seen = log.lookups.observed_tokens[ids]
    nearest: tuple[int, int, Int64Array] | None = None
    for _, point, hit_blocks in simulate(requests, points, rules.policies, rules.oversize):
        hit_tokens = leading_tokens(weighted, hit_blocks)
        gap = int(np.abs(seen - hit_tokens)[seen >= 0].sum())
        if nearest is None or gap < nearest[0]:
            nearest = gap, int(points.capacity_blocks[point]), hit_tokens
    assert nearest is not None
    return nearest[1:]

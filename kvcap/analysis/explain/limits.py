"""The capacity and lifetime behind observed hits: of several structures, the simplest that earns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kvcap.analysis.explain.fits import (
    FEWEST_REQUESTS,
    CapacityLimit,
    Cell,
    Fit,
    FittedLimits,
    KnownLimits,
    Scope,
    lifetime_in,
)
from kvcap.analysis.explain.periods import period_starts
from kvcap.kernels.observed.limits import (
    HIT_BEYOND,
    BestLifetime,
    best_capacities,
    best_joint_limits,
    best_lifetime,
    capacity_ends,
    capacity_ranges,
    lifetime_states,
    wrong_tokens,
)
from kvcap.kernels.observed.pieces import NO_LIMIT, ObservedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.kernels.arrays import BoolArray, Int32Array, Int64Array

GAIN_PER_PARAMETER: Final = 0.01
"""Share of the missed known tokens that each further parameter has to explain."""
GAIN_OF_MISFIT: Final = 1 / 3
"""By how much of itself the misfit has to fall for a finer structure."""
LEAST_MISSED: Final = 0.001
"""Below this share of the known tokens nothing is told."""
SLACK: Final = 0.1
"""By what share more tokens may be wrong within the range that is given for a limit, at least."""
_GOOD_MISFIT: Final = 0.3
_MOST_MISFIT: Final = 0.5
_SETTLED: Final = 0.02


def take(pieces: ObservedPieces, chosen: BoolArray) -> ObservedPieces:
    """Return some of the pieces."""
    columns: tuple[Any, ...] = tuple(column[chosen] for column in pieces)
    return ObservedPieces(*columns)


def fit_limits(
    pieces: ObservedPieces,
    caches: Int32Array,
    n_caches: int,
    known: KnownLimits,
    *,
    has_time: bool,
    with_periods: bool = True,
) -> FittedLimits:
    """Fit every structure of limits, and choose the simplest that explains what was missed.

    Parameters
    ----------
    pieces
        That were observed, whose source was ready, and that span no restart.
    caches : int32 (n_requests,)
        The cache of each request, below ``n_caches``.
    known
        Limits that are judged and not fitted.
    has_time
        Whether ages are known, without which there is no lifetime.
    with_periods
        Whether capacities may change over time.
    """
    fitter = _Fitter(pieces, caches, n_caches, known, has_time=has_time, with_periods=with_periods)
    fits = fitter.fits()
    chosen, limits = fitter.with_ranges(fitter.choose(fits))
    return FittedLimits(chosen, limits, tuple(fits), fitter.missed, fitter.known_tokens)


class _Fitter:
    def __init__(
        self,
        pieces: ObservedPieces,
        caches: Int32Array,
        n_caches: int,
        known: KnownLimits,
        *,
        has_time: bool,
        with_periods: bool,
    ) -> None:
        self._pieces, self._caches, self._n_caches, self._known = pieces, caches, n_caches, known
        self._has_time, self._with_periods = has_time, with_periods
        self._ends = capacity_ends(pieces)
        weight = pieces.tokens_per_block
        self.missed = int(((pieces.blocks - pieces.missed_from) * weight).sum())
        self.known_tokens = int((pieces.blocks * weight).sum())
        self._missing_requests = np.unique(pieces.request[pieces.missed_from < pieces.blocks]).size

    def fits(self) -> list[Fit]:
        """Return all structures that apply, from the simplest."""
        lifetimes: tuple[bool, ...] = (False, True)
        if not self._has_time or self._known.lifetime_us == NO_LIMIT:
            lifetimes = (False,)
        elif self._known.lifetime_us is not None:
            lifetimes = (True,)
        if self._known.capacity_blocks is not None:
            return [self._given(with_lifetime) for with_lifetime in lifetimes]
        scopes: tuple[Scope, ...] = ("none", "one", "per instance") if self._n_caches > 1 else ("none", "one")
        fits = [self._fit(scope, with_lifetime) for scope in scopes for with_lifetime in lifetimes]
        if self._with_periods and min(fit.error for fit in fits) > _SETTLED * self.missed:
            fits += [self._fit_periods(fit) for fit in fits if fit.scope != "none"]
        return fits

    def choose(self, fits: list[Fit]) -> Fit:
        """Return the simplest structure that no finer one beats by enough."""
        best = fits[0]
        if self._missing_requests < FEWEST_REQUESTS or self.missed < LEAST_MISSED * self.known_tokens:
            return best
        for fit in sorted(fits, key=lambda fit: (fit.parameters, fit.error)):
            # Other causes, such as a restart, come and go as well.
            most_misfit = _GOOD_MISFIT if "over time" in fit.scope else _MOST_MISFIT
            if fit.error > most_misfit * self.missed:
                continue
            gain, more = best.error - fit.error, fit.parameters - best.parameters
            earns = gain >= GAIN_PER_PARAMETER * more * self.missed and gain >= GAIN_OF_MISFIT * best.error
            evident = (
                fit.lifetime_is_evident and not best.has_lifetime and best.error <= _GOOD_MISFIT * self.missed
            )
            if gain > 0 and (more <= 0 or earns or evident):
                best = fit
        return best

    def with_ranges(self, fit: Fit) -> tuple[Fit, tuple[CapacityLimit, ...]]:
        """Return a fit, and what its limits are for every cache on its own, with the ranges that do as well.

        A cache to which a common capacity does not apply, since hits beyond it show so, has no limit.
        """
        lifetime = fit.lifetime
        per_piece = fit.capacity_blocks[self._pieces.request]
        if fit.has_lifetime and self._known.lifetime_us is None:
            wrong = wrong_tokens(self._pieces, per_piece, fit.lifetime_us)
            slack = self._slack(wrong, np.zeros(wrong.size, np.int32), 1)[0]
            lifetime = best_lifetime(self._pieces, per_piece, int(slack))
        if not fit.cells:
            return self._finished(fit.scope, lifetime, (), fit.capacity_blocks), ()
        cells = [
            (cache, start)
            for cache in range(self._n_caches)
            for whose, start in fit.cells
            if whose in (None, cache)
        ]
        groups = self._numbered(cells)
        of_piece = groups[self._pieces.request]
        states = lifetime_states(self._pieces, lifetime_in(lifetime))
        own = best_capacities(self._pieces, self._ends, of_piece, len(cells), states)
        wrong = wrong_tokens(self._pieces, per_piece, lifetime_in(lifetime))
        most = own.error + self._slack(wrong, of_piece, len(cells))
        low, high = capacity_ranges(self._pieces, self._ends, of_piece, most, states)
        capacity_blocks = fit.capacity_blocks.copy()
        limits = []
        for group, (cache, start) in enumerate(cells):
            mine = groups == group
            best = int(capacity_blocks[mine][0]) if mine.any() else NO_LIMIT
            bounded = high[group] != NO_LIMIT
            if not bounded and fit.scope != "given" and wrong[of_piece == group].sum() > own.error[group]:
                best = NO_LIMIT
                capacity_blocks[mine] = NO_LIMIT
            limits.append(
                CapacityLimit(
                    cache=cache,
                    first_request=start,
                    best=None if best == NO_LIMIT else best,
                    low=min(int(low[group]), best),
                    high=max(int(high[group]), best) if bounded and best != NO_LIMIT else None,
                )
            )
        return self._finished(fit.scope, lifetime, fit.cells, capacity_blocks), tuple(limits)

    def _slack(self, wrong: Int64Array, groups: Int32Array, n_groups: int) -> Int64Array:
        """Return how many more wrong tokens of each group tell nothing: int64 (n_groups,).

        A share of those that are wrong anyway, or those of one more request like the worst one, whose hit
        beyond a limit may have set it. 0 where all is explained.
        """
        by_request = np.zeros((n_groups, self._caches.size), np.int64)
        np.add.at(by_request, (groups, self._pieces.request), wrong)
        share = (SLACK * by_request.sum(axis=1)).astype(np.int64)
        slack: Int64Array = np.maximum(share, HIT_BEYOND * by_request.max(axis=1))
        return slack

    def _numbered(self, cells: Sequence[Cell]) -> Int32Array:
        """Return the last cell that applies to each request: int32 (n_requests,)."""
        groups = np.zeros(self._caches.size, np.int32)
        requests = np.arange(self._caches.size)
        for group, (cache, start) in enumerate(cells):
            later = requests >= start
            groups[later if cache is None else later & (self._caches == cache)] = group
        return groups

    def _given(self, with_lifetime: bool) -> Fit:
        blocks = self._known.capacity_blocks
        assert blocks is not None
        capacity = np.full(self._caches.size, blocks, np.int64)
        scope: Scope = "none" if blocks == NO_LIMIT else "given"
        cells: tuple[Cell, ...] = () if blocks == NO_LIMIT else ((None, 0),)
        return self._finished(scope, self._lifetime(capacity) if with_lifetime else None, cells, capacity)

    def _lifetime(self, capacity_blocks: Int64Array) -> BestLifetime:
        known = self._known.lifetime_us
        per_piece = capacity_blocks[self._pieces.request]
        if known is None:
            return best_lifetime(self._pieces, per_piece)
        return BestLifetime(known, known + 1, int(wrong_tokens(self._pieces, per_piece, known).sum()))

    def _fit(self, scope: Scope, with_lifetime: bool) -> Fit:
        if scope == "none":
            unlimited = np.full(self._caches.size, NO_LIMIT, np.int64)
            lifetime = self._lifetime(unlimited) if with_lifetime else None
            return self._finished(scope, lifetime, (), unlimited)
        everyone: list[int | None] = [None] if scope == "one" else list(range(self._n_caches))
        return self._best(scope, with_lifetime, [(cache, 0) for cache in everyone])

    def _fit_periods(self, coarse: Fit) -> Fit:
        """Return a structure with periods, which are found at the lifetime that fits without them."""
        least_gain = max(_SETTLED * self.missed, 4.0 * int(self._pieces.tokens_per_block.max()))
        states = lifetime_states(self._pieces, coarse.lifetime_us)
        piece_caches = self._caches[self._pieces.request]
        cells: list[Cell] = []
        for cache, _ in coarse.cells:
            own = np.ones(states.size, np.bool_) if cache is None else piece_caches == cache
            starts = [0]
            if own.all():
                starts = period_starts(self._pieces, self._ends, states, least_gain)
            elif own.any():
                pieces = take(self._pieces, own)
                starts = period_starts(pieces, capacity_ends(pieces), states[own], least_gain)
            cells += [(cache, start) for start in starts]
        scope: Scope = "over time" if coarse.scope == "one" else "per instance over time"
        return self._best(scope, coarse.lifetime is not None, cells)

    def _best(self, scope: Scope, with_lifetime: bool, cells: list[Cell]) -> Fit:
        groups = self._numbered(cells)
        piece_groups = groups[self._pieces.request]
        lifetime: BestLifetime | None = None
        proven: int | None = None
        if with_lifetime and self._known.lifetime_us is None:
            joint = best_joint_limits(self._pieces, self._ends, piece_groups, len(cells))
            capacities, lifetime, proven = joint.capacities, joint.lifetime, joint.proven_error
        else:
            kept_us = self._known.lifetime_us if with_lifetime else None
            states = lifetime_states(self._pieces, NO_LIMIT if kept_us is None else kept_us)
            capacities = best_capacities(self._pieces, self._ends, piece_groups, len(cells), states)
        capacity_blocks = np.where(capacities.high == NO_LIMIT, NO_LIMIT, capacities.low)[groups]
        if with_lifetime and lifetime is None:
            lifetime = self._lifetime(capacity_blocks)
        return self._finished(scope, lifetime, tuple(cells), capacity_blocks, proven)

    def _finished(
        self,
        scope: Scope,
        lifetime: BestLifetime | None,
        cells: tuple[Cell, ...],
        capacity_blocks: Int64Array,
        proven_error: int | None = None,
    ) -> Fit:
        per_piece = capacity_blocks[self._pieces.request]
        lifetime_us = lifetime_in(lifetime)
        error = int(wrong_tokens(self._pieces, per_piece, lifetime_us).sum())
        only, against = (0, 0) if lifetime_us == NO_LIMIT else self._evidence(per_piece, lifetime_us)
        bounded = np.unique(self._numbered(cells)[capacity_blocks != NO_LIMIT]).size
        return Fit(
            scope=scope,
            lifetime=lifetime,
            error=error,
            proven_error=error if proven_error is None else min(error, proven_error),
            cells=cells,
            capacity_blocks=capacity_blocks,
            parameters=bounded + (lifetime_us != NO_LIMIT),
            only_lifetime=only,
            against_lifetime=against,
        )

    def _evidence(self, capacity_blocks: Int64Array, lifetime_us: int) -> tuple[int, int]:
        """Return how many requests miss all that only the lifetime explains, and how many hit there."""
        pieces = self._pieces
        within = np.clip(capacity_blocks - pieces.depth, 0, pieces.blocks)
        old = (pieces.age_us > lifetime_us) & (within > 0)
        against = np.unique(pieces.request[old & (pieces.hit_blocks > 0)])
        only = np.setdiff1d(pieces.request[old & (pieces.missed_from < within)], against)
        return only.size, against.size

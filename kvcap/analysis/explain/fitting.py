"""Limits and restarts of a log, fitted in turn until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.analysis.explain.fits import FittedLimits, KnownLimits
from kvcap.analysis.explain.limits import GAIN_PER_PARAMETER, fit_limits, take
from kvcap.analysis.explain.options import AUTO, NONE
from kvcap.analysis.explain.restarts import Restart, find_restarts, given_epochs
from kvcap.errors import UsageError
from kvcap.kernels.observed.pieces import NO_LIMIT, Limits, observed_pieces
from kvcap.units import parse_capacity, parse_number

if TYPE_CHECKING:
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.analysis.explain.options import ExplainOptions
    from kvcap.kernels.arrays import BoolArray, Int64Array
    from kvcap.kernels.observed.pieces import ObservedPieces

_MOST_ROUNDS: Final = 6
_FEWEST_VALUES: Final = 20


@dataclass(frozen=True)
class Fitting:
    """What was found.

    Attributes
    ----------
    pieces
        Reuse runs with the observed hits over them.
    usable : bool (n_pieces,)
        Those that limits were fitted to: observed, ready, and across no restart.
    limits
        In force for every request.
    fitted
        The structures of limits, and which was chosen.
    restarts
        By cache and request.
    step_tokens, least_tokens
        What observed values are cut to.
    """

    pieces: ObservedPieces
    usable: BoolArray
    limits: Limits
    fitted: FittedLimits
    restarts: tuple[Restart, ...]
    step_tokens: int
    least_tokens: int

    @property
    def cut_depths(self) -> Int64Array:
        """Depths of the first missed block where a hit ends inside a live run, which only a capacity does."""
        pieces = self.pieces
        inside = (pieces.hit_blocks > 0) & (pieces.hit_blocks < pieces.blocks)
        cuts = self.usable & inside & (pieces.age_us <= self.limits.lifetime_us)
        depths: Int64Array = (pieces.depth + pieces.hit_blocks)[cuts]
        return depths


def fit(log: ObservedLog, options: ExplainOptions) -> Fitting:
    """Fit limits and restarts to a log.

    A restart makes what is older than it miss, as a lifetime does, and for a while, as another capacity does.
    So where one of these was fitted, restarts alone are tried as well, and preferred where more of them are
    found and no more is left unexplained: hits across them would speak against them.

    Raises
    ------
    UsageError
        If a given limit does not parse, or needs what the log does not have.
    """
    known = _known_limits(log, options)
    if options.restarts and not log.has_time:
        raise UsageError("--restart needs the time of every request, and this log does not have it")
    found = _fit(log, options, known)
    chosen = found.fitted.chosen
    lifetime_fitted = chosen.has_lifetime and known.lifetime_us is None
    if not lifetime_fitted and "over time" not in chosen.scope:
        return found
    simpler = replace(known, lifetime_us=NO_LIMIT) if lifetime_fitted else known
    without = _fit(log, options, simpler, with_periods=False)
    settled = max(chosen.error, GAIN_PER_PARAMETER * found.fitted.missed_tokens)
    better = without.fitted.chosen.error <= settled
    return without if better and len(without.restarts) > len(found.restarts) else found


def _fit(
    log: ObservedLog, options: ExplainOptions, known: KnownLimits, *, with_periods: bool = True
) -> Fitting:
    step = _step(log) if options.step_tokens is None else options.step_tokens
    epochs, restarts = given_epochs(options.restarts, log.caches, log.cache_names, log.lookups.arrival_us)
    limits = Limits(np.full(log.n_requests, NO_LIMIT, np.int64), NO_LIMIT, epochs)
    pieces = _pieces(log, limits, step, options.least_tokens)
    for _ in range(_MOST_ROUNDS):
        chosen = take(pieces, _usable(log, pieces, limits))
        fitted = fit_limits(
            chosen,
            log.caches,
            len(log.cache_names),
            known,
            has_time=log.has_time,
            with_periods=with_periods,
        )
        found = Limits(fitted.chosen.capacity_blocks, fitted.chosen.lifetime_us, epochs)
        new = find_restarts(chosen, log.caches, len(log.cache_names), found)
        for restart in new:
            later = np.arange(log.n_requests) > restart.last_before
            epochs[(log.caches == restart.cache) & later] += 1
        restarts += new
        settled = not new and (not log.has_durations or _same(found, limits))
        limits = found
        if settled:
            break
        # What was not observed is told by the limits, and so is when its blocks were ready.
        pieces = _pieces(log, limits, step, options.least_tokens)
    restarts.sort(key=lambda restart: (restart.cache, restart.last_before))
    usable = _usable(log, pieces, limits)
    return Fitting(pieces, usable, limits, fitted, tuple(restarts), step, options.least_tokens)


def _pieces(log: ObservedLog, limits: Limits, step: int, least: int) -> ObservedPieces:
    return observed_pieces(log.runs, log.lookups, limits, log.block_size, step, least)


def _usable(log: ObservedLog, pieces: ObservedPieces, limits: Limits) -> BoolArray:
    same_epoch = limits.epochs[pieces.request] == limits.epochs[pieces.source_request]
    usable: BoolArray = log.observed[pieces.request] & ~pieces.running & same_epoch
    return usable


def _same(one: Limits, other: Limits) -> bool:
    return one.lifetime_us == other.lifetime_us and np.array_equal(one.capacity_blocks, other.capacity_blocks)


def _known_limits(log: ObservedLog, options: ExplainOptions) -> KnownLimits:
    capacity = lifetime = None
    if options.capacity == NONE:
        capacity = NO_LIMIT
    elif options.capacity != AUTO:
        size = parse_capacity(options.capacity, "--capacity")
        capacity = size.in_blocks("--capacity", log.block_size, log.block_bytes)
    if options.ttl == NONE:
        lifetime = NO_LIMIT
    elif options.ttl != AUTO:
        if not log.has_time:
            raise UsageError("--ttl needs the time of every request, and this log does not have it")
        lifetime = int(parse_number(options.ttl, "--ttl") * 1_000_000)
    return KnownLimits(capacity, lifetime)


def _step(log: ObservedLog) -> int:
    """Return what all observed values are multiples of, if that is more than a block; else 0."""
    values = np.unique(log.lookups.observed_tokens[log.lookups.observed_tokens > 0])
    if values.size < _FEWEST_VALUES:
        return 0
    step = int(np.gcd.reduce(values))
    return step if step > log.block_size else 0

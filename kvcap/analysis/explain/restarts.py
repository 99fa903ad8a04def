"""Restarts: when a cache lost all that it held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.kernels.observed.restarts import best_restart

if TYPE_CHECKING:
    from kvcap.analysis.explain.options import GivenRestart
    from kvcap.kernels.arrays import BoolArray, Int32Array, Int64Array
    from kvcap.kernels.observed.pieces import Limits, ObservedPieces

FEWEST_REQUESTS: Final = 3
CHANCE: Final = 1e-6
"""So unlikely must it be that as many requests in a row miss for another reason."""
_LEAST_SHARE: Final = 0.001
_MOST: Final = 20


@dataclass(frozen=True)
class Restart:
    """One restart of a cache.

    Attributes
    ----------
    cache
        Which.
    last_before, first_after
        Requests of that cache between which it lies; -1, or the number of requests, where there is none.
    requests, missed_tokens
        That it explains, and requests that it takes for that.
    given
        Whether the user knew of it.
    """

    cache: int
    last_before: int
    first_after: int
    requests: int
    missed_tokens: int
    given: bool


def given_epochs(
    restarts: tuple[GivenRestart, ...],
    caches: Int32Array,
    names: tuple[str | None, ...],
    arrival_us: Int64Array,
) -> tuple[Int64Array, list[Restart]]:
    """Return how many known restarts of its cache came before each request, and the restarts."""
    epochs = np.zeros(caches.size, np.int64)
    known = []
    for restart in restarts:
        for cache, name in enumerate(names):
            if restart.instance not in (None, name):
                continue
            own = np.flatnonzero(caches == cache)
            after = arrival_us[own] >= restart.time_us
            epochs[own[after]] += 1
            before, behind = own[~after], own[after]
            known.append(
                Restart(
                    cache=cache,
                    last_before=int(before[-1]) if before.size else -1,
                    first_after=int(behind[0]) if behind.size else caches.size,
                    requests=0,
                    missed_tokens=0,
                    given=True,
                )
            )
    return epochs, known


def find_restarts(pieces: ObservedPieces, caches: Int32Array, n_caches: int, limits: Limits) -> list[Restart]:
    """Return restarts that explain what is missed within the limits.

    Parameters
    ----------
    pieces
        That were observed, whose source was ready, and that span no restart known so far.
    caches : int32 (n_requests,)
    limits
        That are in force.

    Notes
    -----
    One is told only where so many requests miss across it that chance, at the share of requests that miss
    anything unexplained, makes that less likely than ``CHANCE``.
    """
    within = np.clip(limits.capacity_blocks[pieces.request] - pieces.depth, 0, pieces.blocks)
    live = pieces.age_us <= limits.lifetime_us
    missed = np.where(live, np.maximum(within - pieces.missed_from, 0), 0) * pieces.tokens_per_block
    hit = pieces.hit_blocks * pieces.tokens_per_block
    share = np.unique(pieces.request[missed > 0]).size / max(1, np.unique(pieces.request).size)
    share = min(0.99, max(share, _LEAST_SHARE))
    fewest = max(FEWEST_REQUESTS, math.ceil(math.log(CHANCE) / math.log(share)))
    found: list[Restart] = []
    for cache in range(n_caches):
        own = np.flatnonzero(caches == cache)
        mine = caches[pieces.request] == cache
        found += _of_cache(
            cache,
            own,
            np.searchsorted(own, pieces.source_request[mine]),
            np.searchsorted(own, pieces.request[mine]),
            missed[mine],
            hit[mine],
            fewest,
        )
    return found


def _of_cache(
    cache: int,
    own: Int64Array,
    source: Int64Array,
    request: Int64Array,
    missed: Int64Array,
    hit: Int64Array,
    fewest: int,
) -> list[Restart]:
    found: list[Restart] = []
    left: BoolArray = np.ones(source.size, np.bool_)
    while len(found) < _MOST:
        place = best_restart(source[left], request[left], missed[left], hit[left], own.size)
        if place is None:
            break
        spans = left & (source <= place.first) & (request > place.first)
        requests = np.unique(request[spans & (missed > 0)]).size
        if requests < fewest:
            break
        found.append(
            Restart(
                cache=cache,
                last_before=int(own[place.first]),
                first_after=int(own[place.last + 1]),
                requests=requests,
                missed_tokens=place.missed_tokens,
                given=False,
            )
        )
        left &= ~spans
    return found

"""Restarts of a cache: times that no hit spans though blocks from before them would have hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array

HIT_ACROSS: Final = 20
"""How much more a hit across a restart weighs than a miss across it: none should be left."""


class RestartPlace(NamedTuple):
    """Between which requests of one cache a restart explains most.

    Attributes
    ----------
    first, last
        Any gap from that behind request ``first`` up to that behind ``last`` explains as much.
    missed_tokens, hit_tokens
        Of the stretches that span it.
    """

    first: int
    last: int
    missed_tokens: int
    hit_tokens: int


def best_restart(
    source: Int64Array,
    request: Int64Array,
    missed_tokens: Int64Array,
    hit_tokens: Int64Array,
    n_requests: int,
) -> RestartPlace | None:
    """Return the restart that explains most missed tokens, less ``HIT_ACROSS`` times the hits across it.

    Parameters
    ----------
    source, request : int64 (n_pieces,)
        Who used the blocks of a piece last, and who asks for them: numbers in the order of one cache.
    missed_tokens, hit_tokens : int64 (n_pieces,)
        What is to be explained, and what speaks against it.
    n_requests
        Of that cache.

    Returns
    -------
    RestartPlace or None
        None where nothing is explained by any.

    Notes
    -----
    Exact, from two difference arrays. O(pieces + requests).
    """
    if n_requests < 2:
        return None
    # Gap j lies between requests j and j + 1; a piece spans the gaps from its source's on.
    missed, hit = (
        np.cumsum(_summed(source, tokens, n_requests) - _summed(request, tokens, n_requests))[:-1]
        for tokens in (missed_tokens, hit_tokens)
    )
    net = missed - HIT_ACROSS * hit
    best = int(net.argmax())
    if net[best] <= 0:
        return None
    other = np.flatnonzero((missed != missed[best]) | (hit != hit[best]))
    before, behind = other[other < best], other[other > best]
    first = int(before[-1]) + 1 if before.size else 0
    last = int(behind[0]) - 1 if behind.size else net.size - 1
    return RestartPlace(first, last, int(missed[best]), int(hit[best]))


def _summed(place: Int64Array, tokens: Int64Array, n_places: int) -> Int64Array:
    sums = np.zeros(n_places, np.int64)
    np.add.at(sums, place, tokens)
    return sums

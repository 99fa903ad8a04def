"""Parts of the sessions of a trace, and sessions where a log has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcap.growth.trace import PathTrace, canonical, taken
from kvcap.kernels.arrays import BoolArray, UInt64Array
from kvcap.kernels.growth.draws import SAMPLE, draws, draws_of
from kvcap.kernels.growth.paths import derived_sessions


class SessionSample:
    """So many sessions of a log, all equally likely, whole, in one pass: those of the smallest draws.

    A session that was left out once never comes back, since the largest draw that is held only falls.

    Parameters
    ----------
    size
        How many sessions are wanted.
    seed
        Of the draws.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._seen: set[int] = set()
        self._lowest = np.empty(0, np.uint64)

    @property
    def sessions_seen(self) -> int:
        """How many sessions the log has so far."""
        return len(self._seen)

    def add(self, names: UInt64Array) -> BoolArray:
        """Take 64 bits of the name of each request's session, and return which are held for now."""
        drawn = np.unique(self._draws(names))
        self._seen.update(drawn.tolist())
        self._lowest = np.union1d(self._lowest, drawn)[: self._size]
        return self.holds(names)

    def holds(self, names: UInt64Array) -> BoolArray:
        """Return which requests are of sessions that are held: bool (n_requests,)."""
        held: BoolArray = self._draws(names) <= self._lowest[-1:]
        return held

    def _draws(self, names: UInt64Array) -> UInt64Array:
        return draws_of(self._seed, 0, SAMPLE, names)


def sampled_sessions(trace: PathTrace, parts: int, seed: int = 0, number: int = 0) -> PathTrace:
    """Return about one in ``parts`` of the sessions of a canonical trace, whole.

    Parameters
    ----------
    trace
        Its sessions numbered from 0 as they first appear.
    parts
        Session i stays where ``draw(seed, number, 9, i)`` is a multiple of it.
    seed, number
        Of the draws; each number gives another sample.
    """
    chosen = draws(seed, number, SAMPLE, trace.n_sessions) % np.uint64(parts) == 0
    return canonical(taken(trace, np.flatnonzero(chosen[trace.session])))


def with_sessions_of_paths(trace: PathTrace, known: BoolArray) -> PathTrace:
    """Return a trace with the sessions of some requests kept, and those of the others found in their paths.

    Parameters
    ----------
    trace
        Canonical but for sessions.
    known : bool (n_requests,)
        Which requests say their session.
    """
    rest = np.flatnonzero(~known)
    nameless = taken(trace, rest)
    session = trace.session.copy()
    first = int(trace.session[known].max(initial=-1)) + 1
    session[rest] = first + derived_sessions(nameless.nodes, nameless.offsets, trace.n_nodes)
    return canonical(replace(trace, session=session))

"""So many times the sessions: copies that share what new users would, at times like the originals'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import mul
from typing import Final

import numpy as np

from kvcap.growth.times import session_starts
from kvcap.growth.trace import PathTrace, canonical, put_together, taken
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.growth.draws import PART, START, draws
from kvcap.kernels.growth.tree import SessionTree, common_nodes, shared_stretches

MILLION: Final = 1_000_000
NARROW_WINDOW: Final = 100_000
"""Millionths of the sessions within which starts are exchanged where little is known of who shares what."""

LONG_SESSIONS_PERCENT: Final = 15
"""Of the span: from here on the ends of a log cut its sessions."""

_FEWEST_STRETCHES: Final = 8
_UNRELATED_THOUSANDTHS: Final = 293
"""Thousandths of all sessions that lie between two unrelated ones, in the median: 1 - sqrt(1 / 2)."""


def grow(trace: PathTrace, factor_millionths: int, seed: int = 0) -> PathTrace:
    """Return a trace with ``factor_millionths / 10 ** 6`` times the sessions.

    Parameters
    ----------
    trace
        Requests in replay order.
    factor_millionths
        At least 10 ** 6.
    seed
        Of all draws.

    Returns
    -------
    PathTrace
        Canonical, in order of time where anything was added.

    Notes
    -----
    Rounds of at most two: what is new in one copy is shared with the next. A copy leaves the prefixes of its
    original at each branch as often as the sessions so far say that a new one would (Good 1953), and sessions
    exchange their starts within a window that follows how far apart sessions are that share something.
    """
    grown, left, round_number = canonical(trace), factor_millionths, 1
    while left > MILLION:
        step = min(left, 2 * MILLION)
        grown = _with_copy(grown, step, seed, round_number)
        left = -(-left * MILLION // step)
        round_number += 1
    return grown


def _with_copy(trace: PathTrace, step: int, seed: int, round_number: int) -> PathTrace:
    tree = trace.tree()
    stretches = shared_stretches(tree)
    common = common_nodes(tree, stretches, seed, round_number)
    n_nodes, n_sessions = trace.n_nodes, trace.n_sessions
    copied_nodes = trace.nodes + np.where(common[trace.nodes], 0, n_nodes)
    moved = _exchanged_starts(trace, exchange_window(trace, tree, stretches), seed, round_number)
    copy = replace(
        trace,
        nodes=copied_nodes,
        time_us=trace.time_us + moved[trace.session],
        session=trace.session + n_sessions,
    )
    if step < 2 * MILLION:
        chosen = draws(seed, round_number, PART, n_sessions) % np.uint64(MILLION) < np.uint64(step - MILLION)
        copy = taken(copy, np.flatnonzero(chosen[trace.session]))
    return put_together(trace, copy)


def _exchanged_starts(trace: PathTrace, window: int, seed: int, round_number: int) -> Int64Array:
    """Return by how much each session is moved, in microseconds: int64 (n_sessions,)."""
    n_sessions = trace.n_sessions
    reach = window * n_sessions
    jitter = draws(seed, round_number, START, n_sessions) % np.uint64(2 * reach + 1)
    places = np.arange(n_sessions) * MILLION + jitter.view(np.int64) - reach
    starts = session_starts(trace)
    moved = np.empty(n_sessions, np.int64)
    order = np.argsort(places, kind="stable")
    moved[order] = starts - starts[order]
    return moved


def exchange_window(trace: PathTrace, tree: SessionTree, stretches: Int64Array) -> int:
    """Return how far sessions exchange their starts, in millionths of their number.

    Everywhere where two sessions that share something are as far apart as unrelated ones; nearer where
    content comes and goes, where too few share anything, and where sessions are long for the log.
    """
    if stretches.size < _FEWEST_STRETCHES:
        return NARROW_WINDOW
    apart = np.sort((tree.last_session - tree.first_session)[tree.sessions == 2])
    median = int(apart[(apart.size - 1) // 2])
    window = min(MILLION, median * 1_000 * MILLION // (_UNRELATED_THOUSANDTHS * trace.n_sessions))
    return min(window, NARROW_WINDOW) if has_long_sessions(trace) else window


def has_long_sessions(trace: PathTrace) -> bool:
    """Whether sessions last above 15 % of the span, in the mean over requests."""
    total_us = sum(_session_time_us(trace))
    return 100 * total_us > LONG_SESSIONS_PERCENT * trace.n_requests * trace.span_us


def _session_time_us(trace: PathTrace) -> Iterator[int]:
    """Yield the duration of each session times its requests, as integers that cannot overflow."""
    ends = np.full(trace.n_sessions, np.iinfo(np.int64).min)
    np.maximum.at(ends, trace.session, trace.time_us)
    requests = np.bincount(trace.session, minlength=trace.n_sessions)
    return map(mul, requests.tolist(), (ends - session_starts(trace)).tolist())

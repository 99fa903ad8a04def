"""So many times the turns."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from kvcap.growth.trace import PathTrace, canonical, in_time_order, put_together, taken, with_paths
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.growth.draws import TURNS, draws
from kvcap.kernels.growth.paths import TurnSteps, added_turns, own_lengths, turn_steps


def more_turns(trace: PathTrace, factor: Fraction, seed: int = 0) -> PathTrace:
    """Return a trace in which sessions of K turns have ``floor(K * factor + u)``, u uniform from 0 to 1.

    Each new turn drops and adds as many blocks, after as long a pause, as a random later turn of the log; it
    never cuts into what sessions share. What falls after the log's end is dropped.

    Parameters
    ----------
    trace
        Requests in replay order.
    factor
        At least 1.
    seed
        Of all draws.
    """
    trace = canonical(trace)
    shared = own_lengths(trace.nodes, trace.offsets, trace.tree().sessions)
    by_session = np.argsort(trace.session, kind="stable")
    steps = _steps(trace, by_session, shared)
    if steps.pause_us.size == 0:
        return in_time_order(trace)
    has = np.bincount(trace.session, minlength=trace.n_sessions)
    part = draws(seed, 1, TURNS, trace.n_sessions) % np.uint64(factor.denominator)
    wanted = (has * factor.numerator + part.view(np.int64)) // factor.denominator
    last = by_session[np.cumsum(has) - 1]
    nodes, offsets, time_us, origin = added_turns(
        trace.nodes, trace.offsets, trace.time_us, (last, has, wanted), shared, steps, seed
    )
    new = replace(with_paths(taken(trace, origin), nodes, offsets), time_us=time_us)
    inside = np.flatnonzero(time_us <= trace.time_us.max())
    return put_together(trace, taken(new, inside))


def _steps(trace: PathTrace, by_session: Int64Array, shared: Int64Array) -> TurnSteps:
    same = np.diff(trace.session[by_session]) == 0
    consecutive = by_session[:-1][same], by_session[1:][same]
    return turn_steps(trace.nodes, trace.offsets, trace.time_us, consecutive, shared)

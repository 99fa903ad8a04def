"""Parts of the sessions of a trace, and sessions where a log has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcap.growth.trace import PathTrace, canonical, taken
from kvcap.kernels.arrays import BoolArray
from kvcap.kernels.growth.draws import SAMPLE, draws
from kvcap.kernels.growth.paths import derived_sessions


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

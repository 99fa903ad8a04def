"""The same requests at other times: faster turns, and two logs in one cache."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from kvcap.errors import UsageError
from kvcap.growth.trace import PathTrace, canonical, in_time_order, put_together
from kvcap.kernels.arrays import Int64Array


def session_starts(trace: PathTrace) -> Int64Array:
    """Return when each session begins, in microseconds: int64 (n_sessions,)."""
    starts = np.full(trace.n_sessions, np.iinfo(np.int64).max)
    np.minimum.at(starts, trace.session, trace.time_us)
    return starts


def faster(trace: PathTrace, factor: Fraction) -> PathTrace:
    """Return the same requests with the pauses of sessions divided by a factor; their starts stay."""
    starts = session_starts(trace)[trace.session]
    # Whole multiples apart, so that nothing overflows: since * denominator // numerator.
    whole, rest = np.divmod(trace.time_us - starts, factor.numerator)
    since = whole * factor.denominator + rest * factor.denominator // factor.numerator
    return in_time_order(replace(trace, time_us=starts + since))


def clocks_overlap(first: PathTrace, second: PathTrace) -> bool:
    """Whether two traces were recorded at the same time, at least in part."""
    latest_start = max(first.time_us.min(), second.time_us.min())
    return bool(latest_start <= min(first.time_us.max(), second.time_us.max()))


def beginning_with(second: PathTrace, first: PathTrace) -> PathTrace:
    """Return a trace moved so that it begins when another does."""
    return replace(second, time_us=second.time_us + (first.time_us.min() - second.time_us.min()))


def joined(first: PathTrace, second: PathTrace) -> PathTrace:
    """Return two traces in one, by their times; they share neither prefixes nor sessions.

    Raises
    ------
    UsageError
        If their blocks are not of one size.
    """
    if first.block_size != second.block_size:
        raise UsageError(
            f"the logs have blocks of {first.block_size} and {second.block_size} tokens, expected one size: "
            "give --coarsen or --token-block-size where that can be had"
        )
    first, second = canonical(first), canonical(second)
    apart = replace(second, nodes=second.nodes + first.n_nodes, session=second.session + first.n_sessions)
    return put_together(first, apart)

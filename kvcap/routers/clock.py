"""A router over a virtual clock of arrivals, first tokens and ends.

Every request takes as long as it is said to, wherever it goes: a busy instance does not slow anything down,
so that there is no back-pressure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.routers.rule import Rule

_ARRIVAL: Final = 0
_FIRST_TOKEN: Final = 1
_END: Final = 2

Draw = Callable[[int, list[int]], int]
"""Takes a request and the instances that the router would draw from, and returns one of these."""


@dataclass(frozen=True)
class Times:
    """When things happen to every request: int64 (n_requests,), microseconds; arrivals ascend."""

    arrivals_us: Int64Array
    first_tokens_us: Int64Array
    ends_us: Int64Array


@dataclass(frozen=True)
class Decisions:
    """What a router decided.

    Attributes
    ----------
    instances : int32 (n_requests,)
        Where each request went.
    drawn_requests
        Decisions that were drawn among several instances.
    peak_in_flight
        Most requests in flight on one instance.
    """

    instances: Int32Array
    drawn_requests: int
    peak_in_flight: int


def run(rule: Rule, times: Times, draw: Draw) -> Decisions:
    """Let a router decide on every request, in order of arrival.

    Parameters
    ----------
    rule
        A router that has seen nothing yet.
    times
        What ends or begins to answer at a moment does so before the requests that arrive then.
    draw
        Decides where the router would draw.
    """
    n_requests = times.arrivals_us.size
    instances = np.full(n_requests, -1, np.int32)
    loads = [0] * rule.n_instances
    drawn = peak = 0
    for kind, request in _events(times):
        if kind == _ARRIVAL:
            options = rule.options(request, loads)
            instance = options[0] if len(options) == 1 else draw(request, options)
            drawn += len(options) > 1
            rule.take(request, instance)
            instances[request] = instance
            loads[instance] += 1
            peak = max(peak, loads[instance])
        elif kind == _FIRST_TOKEN:
            rule.see_first_token(request)
        else:
            rule.see_end(request)
            loads[instances[request]] -= 1
    return Decisions(instances, drawn, peak)


def seeded(seed: int) -> Draw:
    """Return draws that are uniform, and the same for a seed."""
    random = np.random.default_rng(seed)
    return lambda _, options: options[int(random.integers(len(options)))]


def _events(times: Times) -> zip[tuple[int, int]]:
    """Return what happens as kinds and requests.

    A request that takes no time at all has ended before the next one that arrives at the same moment.
    """
    n_requests = times.arrivals_us.size
    arrivals = times.arrivals_us
    first_tokens = np.maximum(times.first_tokens_us, arrivals)
    ends = np.maximum(times.ends_us, first_tokens)
    requests = np.arange(n_requests)
    # What comes later than its own request's arrival is before the arrivals of that moment; what comes with
    # it is right behind it.
    moments = np.concatenate((arrivals, first_tokens, ends))
    turns = np.concatenate(
        (
            requests,
            np.where(first_tokens > arrivals, -1, requests),
            np.where(ends > arrivals, -1, requests),
        )
    )
    kinds = np.repeat((_ARRIVAL, _FIRST_TOKEN, _END), n_requests)
    order = np.lexsort((kinds, turns, moments))
    return zip(kinds[order].tolist(), np.tile(requests, 3)[order].tolist(), strict=True)

"""One cache at many capacities: policies over the reuse runs of one pass, under an engine's rules.

A capacity of C blocks holds ``floor(factor * C) - reserve`` blocks of cached data. Where requests larger than
``floor(factor * C)`` are dropped, what is left of the trace has reuse runs of its own, once for each set of
dropped requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.engines.policies import POLICIES
from kvcap.kernels.arrays import BoolArray, Int64Array
from kvcap.kernels.reuse_runs import ReuseRuns, ReuseRunScanner
from kvcap.kernels.segments import path_keys, segment_paths

if TYPE_CHECKING:
    from fractions import Fraction

    from kvcap.engines.rules import Oversize

_CHUNK_BLOCKS: Final = 1 << 22


@dataclass(frozen=True)
class Requests:
    """The requests of one cache, numbered from 0.

    Attributes
    ----------
    runs
        Reuse runs over the blocks that they touch.
    touched, limits, held : int64 (n_requests,)
        Blocks that each one touches, those of them that may hit, and those that it occupies while it runs.
    tail_first
        The touch order.
    """

    runs: ReuseRuns
    touched: Int64Array
    limits: Int64Array
    held: Int64Array
    tail_first: bool


@dataclass(frozen=True)
class Points:
    """What to simulate, as int64 arrays of shape (n_points,).

    Attributes
    ----------
    capacity_blocks, reserved_blocks
        What was asked for.
    admitted_blocks, data_blocks
        The largest request that fits in, and the blocks of cached data.
    """

    capacity_blocks: Int64Array
    reserved_blocks: Int64Array
    admitted_blocks: Int64Array
    data_blocks: Int64Array


def simulation_points(capacities_blocks: Sequence[int], factor: Fraction, reserve_blocks: int) -> Points:
    """Return every capacity once, ascending, with the reserve and, if there is one, without it."""
    capacities = sorted(set(capacities_blocks))
    reserves = sorted({0, reserve_blocks})
    capacity, reserved = np.array(
        [(blocks, reserve) for blocks in capacities for reserve in reserves], np.int64
    ).T
    admitted = np.array([math.floor(blocks * factor) for blocks in capacity.tolist()], np.int64)
    return Points(capacity, reserved, admitted, np.maximum(0, admitted - reserved))


def simulate(
    requests: Requests, points: Points, policies: Sequence[str], oversize: Oversize
) -> Iterator[tuple[str, int, Int64Array]]:
    """Yield each policy, each point's number, and every request's hits there: int64 (n_requests,)."""
    everyone = np.arange(requests.touched.size)
    for chosen, kept in _admissions(requests, points, oversize):
        admitted = requests if kept.size == everyone.size else _only(requests, kept)
        for policy in policies:
            simulation = POLICIES[policy].simulate
            if simulation is None:
                continue
            found = simulation(admitted, points.data_blocks[chosen])
            np.minimum(found, admitted.limits, out=found)
            for point, hits in zip(chosen.tolist(), found, strict=True):
                hit_blocks = np.zeros(everyone.size, np.int64)
                hit_blocks[kept] = hits
                yield policy, point, hit_blocks


def _admissions(
    requests: Requests, points: Points, oversize: Oversize
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield points that admit the same requests, and those requests."""
    everyone = np.arange(requests.touched.size)
    if oversize == "keep":
        yield np.arange(points.capacity_blocks.size), everyone
        return
    by_size = np.sort(requests.held)
    n_admitted = np.searchsorted(by_size, points.admitted_blocks, side="right")
    for count in np.unique(n_admitted):
        chosen = np.flatnonzero(n_admitted == count)
        yield chosen, np.flatnonzero(requests.held <= points.admitted_blocks[chosen[0]])


def _only(requests: Requests, kept: Int64Array) -> Requests:
    """Return some of the requests, as if the others had never come."""
    paths = segment_paths(requests.runs, requests.touched)
    scanner = ReuseRunScanner()
    before = np.cumsum(requests.touched[kept]) // _CHUNK_BLOCKS
    found = [
        scanner.feed(*path_keys(paths, chunk))
        for chunk in np.split(kept, np.flatnonzero(np.diff(before)) + 1)
    ]
    return Requests(
        runs=ReuseRuns(*(np.concatenate(column) for column in zip(*found, strict=True))),
        touched=requests.touched[kept],
        limits=requests.limits[kept],
        held=requests.held[kept],
        tail_first=requests.tail_first,
    )


def dropped_requests(
    requests: Requests, policy: str, points: Points, point: int, oversize: Oversize
) -> BoolArray:
    """Return which requests are too large for a capacity and left out there: bool (n_requests,)."""
    dropped = np.zeros(requests.held.size, np.bool_)
    if POLICIES[policy].admits:
        dropped |= requests.held > points.data_blocks[point]
    if oversize == "drop":
        dropped |= requests.held > points.admitted_blocks[point]
    return dropped

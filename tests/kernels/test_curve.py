"""Hits over capacity against sums over runs, far beyond the sizes of a small log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcap.kernels.curve import Curve, hit_curve, hits_at, smallest_capacity, summed_curve
from kvcap.kernels.run_tables import WeightedRuns

RUN = st.tuples(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(1, 512), st.integers(0, 10**6))
RUNS = st.lists(RUN, max_size=12)
ORDERS = pytest.mark.parametrize("tail_first", [True, False])


def weighted(runs: list[tuple[int, int, int, int]]) -> WeightedRuns:
    """Runs of (depth, blocks, tokens per block, depth head-first)."""
    columns = np.array(runs, np.int64).reshape(-1, 4).T
    depth, blocks, tokens_per_block, depth_head_first = (np.ascontiguousarray(column) for column in columns)
    names = np.arange(depth.size)
    return WeightedRuns(names, names, names, blocks, tokens_per_block, depth, depth_head_first)


def hits(runs: list[tuple[int, int, int, int]], capacity: int, *, tail_first: bool) -> tuple[int, int]:
    """Hit blocks and tokens, run by run."""
    blocks = tokens = 0
    for depth, run_blocks, weight, depth_head_first in runs:
        if tail_first:
            hit = max(0, min(run_blocks, capacity - depth))
        else:
            hit = run_blocks if depth_head_first < capacity else 0
        blocks += hit
        tokens += hit * weight
    return blocks, tokens


def telling_capacities(runs: list[tuple[int, int, int, int]]) -> list[int]:
    """Where something begins or ends, next to it, and half way between."""
    edges = {0, 1}
    for depth, blocks, _, depth_head_first in runs:
        edges |= {depth, depth + 1, depth + blocks // 2, depth + blocks, depth_head_first + 1}
    return sorted({max(0, edge + step) for edge in edges for step in (-1, 0, 1)})


@ORDERS
@given(runs=RUNS)
def test_hits_are_the_sum_over_runs_at_every_capacity(
    tail_first: bool, runs: list[tuple[int, int, int, int]]
) -> None:
    curve = hit_curve(weighted(runs), tail_first=tail_first)
    capacities = telling_capacities(runs)
    found = hits_at(curve, np.array(capacities))
    expected = [hits(runs, capacity, tail_first=tail_first) for capacity in capacities]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


@ORDERS
@given(runs=RUNS, data=st.data())
def test_the_smallest_capacity_is_the_first_that_hits_so_much(
    tail_first: bool, runs: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    curve = hit_curve(weighted(runs), tail_first=tail_first)
    most = sum(run[1] for run in runs)
    wanted = data.draw(st.integers(0, most + 1))
    found = smallest_capacity(curve, wanted)
    if wanted > most:
        assert found is None
        return
    assert found is not None
    assert hits(runs, found, tail_first=tail_first)[0] >= wanted
    assert found == 0 or hits(runs, found - 1, tail_first=tail_first)[0] < wanted


@ORDERS
@given(parts=st.lists(RUNS, min_size=1, max_size=3))
def test_caches_of_the_same_capacity_add_up(
    tail_first: bool, parts: list[list[tuple[int, int, int, int]]]
) -> None:
    curves = [hit_curve(weighted(part), tail_first=tail_first) for part in parts]
    together: Curve = summed_curve(curves)
    for capacity in telling_capacities([run for part in parts for run in part]):
        each = [hits_at(curve, np.array([capacity])) for curve in curves]
        blocks, tokens = hits_at(together, np.array([capacity]))
        assert blocks[0] == sum(one[0][0] for one in each)
        assert tokens[0] == sum(one[1][0] for one in each)

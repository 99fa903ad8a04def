"""The figures of a replay that are evaluated again and again: one object of arrays over its Arrow tables.

Every printed figure has one of two sources. What is printed as it is asked comes from the queries in
``sql/``, for the command line as for people who ask in SQL. What a search, an interval or a chart evaluates
at many capacities comes from :class:`Figures`, which agrees with them (tested over all kinds of run):

==================================================  ===============================================
the answer of ``replay``, and ``diff``              ``_answer``, which joins ``totals``,
                                                    ``hit_rate_curve``, ``capacity_for_hit_rate`` and
                                                    ``capacity_percentiles``
policies, wherever they are printed                 ``policy_hit_rates``
``plan``: hits and reads of tiers                   ``tiers``
``plan``: capacity and hits of goal and steps,      :class:`Figures`
best sizes, writes, prefixes, intervals
``check``: every limit                              :class:`Figures`
``report``: what requests required, marks on axes   :class:`Figures`
``report``: curves and their table, over time,      ``hit_rate_curve``, ``by_hour``, ``reuse_time``,
ages, times to live, groups, sessions               ``ttl_surface``, ``by_group``, ``top_sessions``
the chart on a terminal                             :class:`Figures`
``grow``: all of it, of traces that grew            ``analysis.growing.measured``, which agrees for
                                                    today's
==================================================  ===============================================
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvcap.kernels.arrays import Int64Array, nearest_rank
from kvcap.kernels.curve import Curve, hits_at, smallest_capacity
from kvcap.kernels.run_tables import WeightedRuns, run_hits

if TYPE_CHECKING:
    from kvcap.queries import Results, RunInfo


@dataclass(frozen=True)
class Figures:
    """What was measured, request by request and run by run.

    Attributes
    ----------
    run
        The replay.
    curve
        Hits over capacity, all pools together.
    pools
        How many caches there are; every capacity is that of each.
    time_us : int64 (n_requests,)
        Microseconds since the first request; None where a timestamp is missing or all are the same.
    blocks, input_tokens, ceiling_blocks, required_blocks : int64 (n_requests,)
        Of the measured requests, in replay order.
    runs
        Reuse runs of those requests, numbered from 0; a source is negative where it belonged to the warm-up.
    """

    run: RunInfo
    curve: Curve
    pools: int
    time_us: Int64Array | None
    blocks: Int64Array
    input_tokens: Int64Array
    ceiling_blocks: Int64Array
    required_blocks: Int64Array
    runs: WeightedRuns

    @cached_property
    def total_blocks(self) -> int:
        """Blocks looked up."""
        return int(self.blocks.sum())

    @cached_property
    def total_input_tokens(self) -> int:
        """Prompt tokens."""
        return int(self.input_tokens.sum())

    @cached_property
    def total_ceiling_blocks(self) -> int:
        """Block hits with unlimited storage, or within the bound of the run."""
        return int(self.ceiling_blocks.sum())

    @property
    def span_seconds(self) -> float | None:
        """Time from the first to the last request; None without timestamps."""
        return None if self.time_us is None else float(self.time_us.max()) / 1e6

    @cached_property
    def ascending_required_blocks(self) -> Int64Array:
        """What requests required, in order: int64 (n_requests,)."""
        return np.sort(self.required_blocks)

    def hits(self, capacity_blocks: int) -> tuple[int, int]:
        """Return hit blocks and hit tokens at a capacity of each pool."""
        blocks, tokens = self.hits_at(np.array([capacity_blocks], np.int64))
        return int(blocks[0]), int(tokens[0])

    def hits_at(self, capacity_blocks: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return hit blocks and hit tokens at capacities of each pool, each int64 of the same shape."""
        return hits_at(self.curve, capacity_blocks)

    def request_hits(self, capacity_blocks: int) -> tuple[Int64Array, Int64Array]:
        """Return the hit blocks and hit tokens of every request at a capacity: both int64 (n_requests,)."""
        hit_blocks = run_hits(self.runs, capacity_blocks, tail_first=self.run.tail_first)
        return self._per_request(hit_blocks), self._per_request(hit_blocks * self.runs.tokens_per_block)

    def _per_request(self, run_values: Int64Array) -> Int64Array:
        sums = np.zeros(self.blocks.size, np.int64)
        np.add.at(sums, self.runs.request, run_values)
        return sums

    def capacity_for_hits(self, hit_blocks: int) -> int | None:
        """Return the smallest capacity with so many hit blocks; None when no capacity has."""
        return smallest_capacity(self.curve, hit_blocks)

    def capacity_for_ceiling_share(self, share: Fraction) -> int:
        """Return the smallest capacity whose hit blocks reach a share of the ceiling."""
        needed = -(-self.total_ceiling_blocks * share.numerator // share.denominator)
        capacity = self.capacity_for_hits(needed)
        assert capacity is not None, "the curve ends at the ceiling"
        return capacity

    def percentile(self, share: Fraction) -> int:
        """Return the nearest-rank percentile of the capacity that requests required; 0 of nothing."""
        return nearest_rank(self.ascending_required_blocks, share)


def load_figures(results: Results) -> Figures:
    """Return the figures of a replay, over the measured part of its tables."""
    run = results.run
    columns = ["pool", "timestamp", "input_length", "blocks", "ceiling_blocks", "required_blocks"]
    requests = results.table("requests", columns).slice(run.warm_up_requests)
    runs = results.table("reuse_runs")
    first = int(np.searchsorted(_int64(runs, "request_id"), run.warm_up_requests))
    runs = runs.slice(first)
    names = ("request_id", "source_request_id", *WeightedRuns._fields[2:])
    request, source, *others = (_int64(runs, name) for name in names)
    # All pools together come first.
    curve = results.table("curve")
    curve = curve.slice(0, curve.column("pool").null_count)
    pools = requests.column("pool")
    return Figures(
        run=run,
        curve=Curve(*(_int64(curve, name) for name in Curve._fields)),
        pools=1 if pools.null_count == len(pools) else len(pools.unique()),
        time_us=_time_us(requests.column("timestamp")),
        blocks=_int64(requests, "blocks"),
        input_tokens=_int64(requests, "input_length"),
        ceiling_blocks=_int64(requests, "ceiling_blocks"),
        required_blocks=_int64(requests, "required_blocks"),
        runs=WeightedRuns(request - run.warm_up_requests, source - run.warm_up_requests, *others),
    )


def _int64(table: pa.Table, name: str) -> Int64Array:
    return np.asarray(table.column(name).to_numpy(), np.int64)


def _time_us(timestamps: pa.ChunkedArray) -> Int64Array | None:
    if len(timestamps) == 0 or timestamps.null_count:
        return None
    values = np.asarray(timestamps.cast(pa.int64()).to_numpy(), np.int64)
    values = values - values.min()
    return values if values.max() > 0 else None

"""The measured requests of a replay and their reuse runs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.curve import Curve, hits_at

if TYPE_CHECKING:
    from kvcap.queries import Results, RunInfo


@dataclass(frozen=True)
class Traffic:
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
    run_request, run_source : int64 (n_runs,)
        Position of a run's request among the measured ones, and of the earlier request that last touched
        its blocks: negative when that belonged to the warm-up.
    run_blocks, run_tokens_per_block, run_depth : int64 (n_runs,)
        With depth in the run's own touch order.
    """

    run: RunInfo
    curve: Curve
    pools: int
    time_us: Int64Array | None
    blocks: Int64Array
    input_tokens: Int64Array
    ceiling_blocks: Int64Array
    required_blocks: Int64Array
    run_request: Int64Array
    run_source: Int64Array
    run_blocks: Int64Array
    run_tokens_per_block: Int64Array
    run_depth: Int64Array

    @cached_property
    def total_blocks(self) -> int:
        """Blocks looked up."""
        return int(self.blocks.sum())

    @cached_property
    def total_input_tokens(self) -> int:
        """Prompt tokens."""
        return int(self.input_tokens.sum())

    @property
    def span_seconds(self) -> float | None:
        """Time from the first to the last request; None without timestamps."""
        return None if self.time_us is None else float(self.time_us.max()) / 1e6

    def hits(self, capacity_blocks: int) -> tuple[int, int]:
        """Return hit blocks and hit tokens at a capacity of each pool."""
        blocks, tokens = hits_at(self.curve, np.array([capacity_blocks], np.int64))
        return int(blocks[0]), int(tokens[0])

    def run_hits(self, capacity_blocks: int) -> Int64Array:
        """Return the hit blocks of every run at a capacity: int64 (n_runs,)."""
        if self.run.tail_first:
            return np.clip(capacity_blocks - self.run_depth, 0, self.run_blocks)
        return np.where(self.run_depth < capacity_blocks, self.run_blocks, 0)

    def per_request(self, run_values: Int64Array) -> Int64Array:
        """Return the sum over each request's runs: int64 (n_requests,)."""
        sums = np.zeros(self.blocks.size, np.int64)
        np.add.at(sums, self.run_request, run_values)
        return sums

    def capacity_for_hits(self, hit_blocks: int) -> int | None:
        """Return the smallest capacity with so many hit blocks; None when no capacity has."""
        curve = self.curve
        corner = int(np.searchsorted(curve.hit_blocks, hit_blocks))
        if corner == curve.hit_blocks.size:
            return None
        reached = int(curve.capacity_blocks[corner])
        if corner == 0:
            return reached
        slope = int(curve.blocks_per_capacity_block[corner - 1])
        if slope == 0:
            return reached
        missing = hit_blocks - int(curve.hit_blocks[corner - 1])
        return min(reached, int(curve.capacity_blocks[corner - 1]) + -(-missing // slope))

    def percentile(self, share: Fraction) -> int:
        """Return the nearest-rank percentile of the capacity that requests required."""
        return nearest_rank(np.sort(self.required_blocks), share)


def nearest_rank(ascending: npt.NDArray[np.generic], share: Fraction) -> int:
    """Return ``ascending[ceil(share * n) - 1]``; 0 of nothing."""
    if ascending.size == 0:
        return 0
    rank = -(-ascending.size * share.numerator // share.denominator)
    return int(ascending[max(1, rank) - 1])


def load_traffic(results: Results) -> Traffic:
    """Return the measured part of a replay's tables."""
    run = results.run
    requests = results.table("requests").filter(pc.field("measured"))
    runs = results.table("reuse_runs").filter(pc.field("request_id") >= run.warm_up_requests)
    curve = results.table("curve").filter(pc.field("pool").is_null())
    return Traffic(
        run=run,
        curve=Curve(*(_int64(curve, name) for name in Curve._fields)),
        pools=max(1, len(pc.unique(requests.column("pool")))),
        time_us=_time_us(requests.column("timestamp")),
        blocks=_int64(requests, "blocks"),
        input_tokens=_int64(requests, "input_length"),
        ceiling_blocks=_int64(requests, "ceiling_blocks"),
        required_blocks=_int64(requests, "required_blocks"),
        run_request=_int64(runs, "request_id") - run.warm_up_requests,
        run_source=_int64(runs, "source_request_id") - run.warm_up_requests,
        run_blocks=_int64(runs, "blocks"),
        run_tokens_per_block=_int64(runs, "tokens_per_block"),
        run_depth=_int64(runs, "depth" if run.tail_first else "depth_head_first"),
    )


def _int64(table: pa.Table, name: str) -> Int64Array:
    return np.asarray(table.column(name).to_numpy(), np.int64)


def _time_us(timestamps: pa.ChunkedArray) -> Int64Array | None:
    if len(timestamps) == 0 or timestamps.null_count:
        return None
    values = np.asarray(timestamps.cast(pa.int64()).to_numpy(), np.int64)
    values = values - values.min()
    return values if values.max() > 0 else None

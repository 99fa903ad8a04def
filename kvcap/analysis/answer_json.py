"""The answer as JSON: a documented, stable schema in snake_case.

Top level: ``schema`` (``kvcap.answer/1``), ``run`` (definitions and counts of the replay, with
``reading``: what was left out of the log), ``definitions`` (one sentence for each term), ``together``
and ``pools``. Each pool has ``totals``, ``capacities`` (the last one unlimited), ``shares`` (smallest
capacity for a percentage of the ceiling), ``required_capacity`` (``samples`` and ``reusing``, with
nearest-rank percentiles in blocks and bytes), ``headline`` (hit rates at the p99), ``policies`` (every
simulated policy at every capacity, under ``run.rules``), ``headroom`` (from LRU to optimal) and
``fifo_falls`` (where FIFO hits less with more capacity).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kvcap.analysis.answer import Answer, CapacityPercentiles, PoolAnswer
    from kvcap.queries import RunInfo

ANSWER_SCHEMA: Final = "kvcap.answer/1"

DEFINITIONS: Final = {
    "block_hit_rate": "block hits / blocks looked up, over the measured requests",
    "reuse_hit_rate": "block hits / blocks that unlimited storage would have served",
    "prefix_hit_rate": "leading consecutive block hits / blocks looked up",
    "token_hit_rate": "tokens in leading consecutive block hits / input tokens",
    "ceiling_blocks": "block hits with unlimited storage",
    "required_blocks": "smallest capacity at which a request reaches target_percent of its own ceiling",
    "samples": "all measured requests; one with nothing to reuse requires 0",
    "reusing": "the measured requests with something to reuse",
    "percentiles": "nearest rank: sorted[ceil(p * n) - 1]",
    "capacity_blocks": "floor(capacity_bytes / block_bytes); of each pool where there are several",
    "ideal_prefill_speedup": "1 / (1 - token_hit_rate) over computing every prompt token, at most 1000",
    "filled": "whether the warm-up requests, or without a warm-up all requests, fill the capacity",
    "dropped_requests": "measured requests left out at a capacity because they are larger than the cache",
    "unreserved": "the bound with none of a capacity reserved for running requests",
    "headroom.points": "100 * (token hit rate of optimal - of lru)",
}


def answer_to_dict(answer: Answer) -> dict[str, Any]:
    """Return the answer in the schema that this module's docstring documents."""
    return {
        "schema": ANSWER_SCHEMA,
        "run": {**answer.run.summary(), "mean_input_tokens": answer.run.input_tokens / answer.run.requests},
        "definitions": DEFINITIONS,
        "together": _pool(answer.together, answer.run),
        "pools": [_pool(pool, answer.run) for pool in answer.pools],
    }


def _pool(pool: PoolAnswer, run: RunInfo) -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "totals": asdict(pool.totals),
        "capacities": [asdict(row) for row in pool.capacities],
        "shares": [asdict(row) for row in pool.shares],
        "required_capacity": {
            "samples": _percentiles(pool.samples, run),
            "reusing": _percentiles(pool.reusing, run),
        },
        "headline": None if pool.headline is None else asdict(pool.headline),
        "policies": [asdict(row) for row in pool.policies],
        "headroom": [asdict(row) for row in pool.headroom],
        "fifo_falls": [asdict(fall) for fall in pool.fifo_falls],
    }


def percentile_name(percent: float) -> str:
    """Return ``p50``, ``p999`` and the like."""
    return f"p{percent:g}".replace(".", "")


def _percentiles(sample: CapacityPercentiles, run: RunInfo) -> dict[str, Any]:
    size = run.block_bytes
    mean = sample.mean_blocks
    return {
        "requests": sample.requests,
        "mean_blocks": mean,
        "mean_bytes": None if mean is None or size is None else mean * size,
        "percentiles": {
            percentile_name(percent): {
                "required_blocks": blocks,
                "required_bytes": None if size is None else blocks * size,
            }
            for percent, blocks in sample.required_blocks.items()
        },
    }

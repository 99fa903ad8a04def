"""An explanation as Arrow tables, for Parquet and SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvcap.analysis.explain.survival import survival
from kvcap.kernels.observed.pieces import NO_LIMIT
from kvcap.schema import EXPLAINED, LIMITS, MISS_CAUSES, RESTARTS, SURVIVAL, TableName, schema_metadata

if TYPE_CHECKING:
    from kvcap.analysis.explain.fitting import Fitting
    from kvcap.analysis.explain.groups import Cells
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.kernels.observed.waterfall import Waterfall


def explain_tables(log: ObservedLog, fitting: Fitting, found: Waterfall, cells: Cells) -> dict[str, pa.Table]:
    """Return the tables ``explained``, ``limits``, ``restarts`` and ``survival``."""
    rows = [asdict(row) for row in survival(log, fitting, by_depth=True)]
    return {
        "explained": _explained(log, found, cells),
        "limits": _table("limits", _limits(log, fitting), LIMITS),
        "restarts": _table("restarts", _restarts(log, fitting), RESTARTS),
        "survival": _table("survival", rows, SURVIVAL),
    }


def _table(name: TableName, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema.with_metadata(schema_metadata(name)))


def _explained(log: ObservedLog, found: Waterfall, cells: Cells) -> pa.Table:
    chosen = np.flatnonzero(log.observed)
    columns = {
        "request_id": chosen,
        "input_tokens": log.prompts.input_tokens[chosen],
        "observed_tokens": cells.observed[chosen],
        "expected_tokens": cells.expected[chosen],
        "more_tokens": cells.more[chosen],
        "unexplained_tokens": cells.unexplained[chosen],
    }
    for place, cause in enumerate(MISS_CAUSES):
        columns[f"{cause}_tokens"] = found.missed[chosen, place]
        columns[f"{cause}_hit_tokens"] = found.hit[chosen, place]
    arrays = [pa.array(columns[name]) for name in EXPLAINED.names]
    return pa.Table.from_arrays(arrays, schema=EXPLAINED.with_metadata(schema_metadata("explained")))


def _limits(log: ObservedLog, fitting: Fitting) -> list[dict[str, Any]]:
    chosen = fitting.fitted.chosen
    lifetime = chosen.lifetime if chosen.has_lifetime else None
    common = {
        "structure": chosen.name,
        "ttl_us": None if chosen.lifetime_us == NO_LIMIT else chosen.lifetime_us,
        "ttl_low_us": None if lifetime is None else lifetime.low,
        "ttl_high_us": None if lifetime is None else lifetime.high,
        "misfit": fitting.fitted.misfit(chosen),
    }
    if not fitting.fitted.limits:
        return [
            {"instance": name, "first_request_id": 0, "since": log.time(0), **common}
            for name in log.cache_names
        ]
    return [
        {
            "instance": log.cache_names[limit.cache],
            "first_request_id": limit.first_request,
            "since": log.time(limit.first_request),
            "capacity_blocks": limit.best,
            "capacity_low_blocks": limit.low,
            "capacity_high_blocks": limit.high,
            **common,
        }
        for limit in fitting.fitted.limits
    ]


def _restarts(log: ObservedLog, fitting: Fitting) -> list[dict[str, Any]]:
    def existing(request: int) -> int | None:
        return request if 0 <= request < log.n_requests else None

    return [
        {
            "instance": log.cache_names[restart.cache],
            "last_request_id": existing(restart.last_before),
            "first_request_id": existing(restart.first_after),
            "after": log.time(restart.last_before),
            "until": log.time(restart.first_after),
            "requests": restart.requests,
            "missed_tokens": restart.missed_tokens,
            "is_given": restart.given,
        }
        for restart in fitting.restarts
    ]

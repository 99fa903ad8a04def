"""The Arrow tables of a replay, from its arrays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.kernels.curve import Curve, hit_curve
from kvcap.kernels.run_tables import WeightedRuns, ceilings, required_blocks
from kvcap.replay.stream import StreamedTrace
from kvcap.schema import CURVE, REQUESTS, REUSE_RUNS, schema_metadata


def requests_table(
    streamed: StreamedTrace, runs: WeightedRuns, target: Fraction, warm_up_requests: int, *, tail_first: bool
) -> pa.Table:
    """Return the ``requests`` table, kept columns at its end; ``runs`` are those that may hit."""
    n_requests = streamed.blocks.size
    known_blocks, _ = ceilings(streamed.runs, n_requests)
    ceiling_blocks, ceiling_tokens = ceilings(runs, n_requests)
    required = required_blocks(
        runs, ceiling_blocks, (target.numerator, target.denominator), tail_first=tail_first
    )
    computed = {
        "input_length": streamed.input_tokens,
        "blocks": streamed.blocks,
        "cacheable_tokens": streamed.cacheable_tokens,
        "touched_blocks": streamed.touched_blocks,
        "cold_blocks": streamed.touched_blocks - known_blocks,
        "ceiling_blocks": ceiling_blocks,
        "ceiling_tokens": ceiling_tokens,
        "required_blocks": required,
        "measured": np.arange(n_requests) >= warm_up_requests,
    }
    kept = [
        field
        for field in streamed.columns.schema
        if field.name not in REQUESTS.names and field.name != "block_size"
    ]
    columns = [
        pa.chunked_array([pa.array(computed[name])]) if name in computed else streamed.columns.column(name)
        for name in REQUESTS.names
    ]
    columns += [streamed.columns.column(field.name) for field in kept]
    schema = pa.schema([*REQUESTS, *kept]).with_metadata(schema_metadata("requests"))
    return pa.Table.from_arrays(columns, schema=schema)


def reuse_runs_table(runs: WeightedRuns) -> pa.Table:
    """Return the ``reuse_runs`` table."""
    schema = REUSE_RUNS.with_metadata(schema_metadata("reuse_runs"))
    return pa.Table.from_arrays([pa.array(column) for column in runs], schema=schema)


def curve_table(
    runs: WeightedRuns, pool_column: pa.ChunkedArray, warm_up_requests: int, *, tail_first: bool
) -> pa.Table:
    """Return the ``curve`` table of the measured requests: all pools together, then each."""
    measured = _where(runs, runs.request >= warm_up_requests)
    parts = [curve_part(None, hit_curve(measured, tail_first=tail_first))]
    if pool_column.null_count == len(pool_column):
        return parts[0]
    import pyarrow.compute as pc  # Slow to import, and most traces are one pool.

    values = sorted(value for value in pc.unique(pool_column).to_pylist() if value is not None)
    for value in values:
        in_pool = pc.fill_null(pc.equal(pool_column, value), False).to_numpy()
        curve = hit_curve(_where(measured, in_pool[measured.request]), tail_first=tail_first)
        parts.append(curve_part(value, curve))
    return pa.concat_tables(parts)


def _where(runs: WeightedRuns, mask: npt.NDArray[np.bool_]) -> WeightedRuns:
    return WeightedRuns(*(column[mask] for column in runs))


def curve_part(pool: str | None, curve: Curve) -> pa.Table:
    """Return the rows of the ``curve`` table for one pool, or for all together (None)."""
    n = curve.capacity_blocks.size
    columns = [pa.array([pool] * n, pa.string()), *(pa.array(column) for column in curve)]
    return pa.Table.from_arrays(columns, schema=CURVE.with_metadata(schema_metadata("curve")))

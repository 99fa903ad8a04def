"""The tables of what was simulated: pool by pool, and all pools together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvcap.engines.simulate import Points, Requests, dropped_requests, simulate, simulation_points
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.engine_rules import held_blocks, lookup_blocks
from kvcap.kernels.reuse_runs import ReuseRuns
from kvcap.kernels.run_tables import WeightedRuns, leading_tokens
from kvcap.schema import POLICIES, POLICY_REQUESTS, schema_metadata

if TYPE_CHECKING:
    from kvcap.options import ReplayOptions
    from kvcap.replay.stream import StreamedTrace


def lookup_limits(streamed: StreamedTrace, options: ReplayOptions) -> Int64Array:
    """Return how many leading blocks of each request may hit: int64 (n_requests,)."""
    if not options.rules.compute_last_token:
        return streamed.blocks
    return np.minimum(streamed.blocks, lookup_blocks(streamed.input_tokens, streamed.block_size))


def policy_tables(
    streamed: StreamedTrace,
    limits: Int64Array,
    options: ReplayOptions,
    capacities_blocks: Sequence[int],
    warm_up_requests: int,
) -> dict[str, pa.Table]:
    """Return the table ``policies``, and ``policy_requests`` if it was asked for.

    Parameters
    ----------
    streamed
        A trace after its pass.
    limits : int64 (n_requests,)
        Leading blocks of each request that may hit.
    options
        With policies in their rules, and the rules to simulate them by.
    capacities_blocks
        Capacities of each pool, in blocks.
    warm_up_requests
        How many requests, from the first, only fill the caches.
    """
    rules = options.rules
    points = simulation_points(capacities_blocks, rules.capacity_factor, rules.reserve_blocks)
    rows: list[dict[str, Any]] = []
    by_request: list[pa.Table] = []
    for pool, ids in pools(streamed.columns.column("pool")):
        weighted = numbered_from_0(streamed.runs, ids, streamed.blocks.size)
        requests = requests_of(streamed, weighted, ids, limits, tail_first=options.tail_first)
        measured = ids >= warm_up_requests
        for policy, point, hit_blocks in simulate(requests, points, rules.policies, rules.oversize):
            hit_tokens = leading_tokens(weighted, hit_blocks)
            dropped = measured & dropped_requests(requests, policy, points, point, rules.oversize)
            rows.append(
                {
                    **_point_columns(policy, points, point),
                    "pool": pool,
                    "data_blocks": int(points.data_blocks[point]),
                    "hit_blocks": int(hit_blocks[measured].sum()),
                    "hit_tokens": int(hit_tokens[measured].sum()),
                    "dropped_requests": np.count_nonzero(dropped),
                }
            )
            if rules.request_hits:
                by_request.append(
                    request_rows(_point_columns(policy, points, point), ids, hit_blocks, hit_tokens)
                )
    return simulation_tables(rows, by_request, rules.policies)


def simulation_tables(
    rows: list[dict[str, Any]], by_request: list[pa.Table], policies: Sequence[str]
) -> dict[str, pa.Table]:
    """Return the table ``policies`` of rows by pool, and ``policy_requests`` where there are any."""
    tables = {"policies": _policies_table(rows, policies)}
    if by_request:
        tables["policy_requests"] = pa.concat_tables(by_request)
    return tables


def pools(pool_column: pa.ChunkedArray) -> Iterator[tuple[str | None, Int64Array]]:
    """Yield every pool and the requests in it."""
    if pool_column.null_count == len(pool_column):
        yield None, np.arange(len(pool_column))
        return
    import pyarrow.compute as pc

    for value in sorted(pc.unique(pool_column).to_pylist()):
        yield value, np.flatnonzero(pc.equal(pool_column, value).to_numpy())


def numbered_from_0(runs: WeightedRuns, ids: Int64Array, n_requests: int) -> WeightedRuns:
    """Return the runs of some requests, numbered by their places in ``ids``."""
    if ids.size == n_requests:
        return runs
    places = np.full(n_requests, -1, np.int64)
    places[ids] = np.arange(ids.size)
    own = WeightedRuns(*(column[places[runs.request] >= 0] for column in runs))
    return own._replace(request=places[own.request], source_request=places[own.source_request])


def requests_of(
    streamed: StreamedTrace, runs: WeightedRuns, ids: Int64Array, limits: Int64Array, *, tail_first: bool
) -> Requests:
    """Return some requests of a trace as simulations take them, from runs that are numbered like ``ids``."""
    touched = streamed.touched_blocks[ids]
    held = held_blocks(streamed.input_tokens[ids], streamed.output_tokens[ids], streamed.block_size)
    return Requests(
        runs=ReuseRuns(*(getattr(runs, name) for name in ReuseRuns._fields)),
        touched=touched,
        limits=limits[ids],
        held=np.maximum(touched, held),
        tail_first=tail_first,
    )


def _point_columns(policy: str, points: Points, point: int) -> dict[str, Any]:
    return {
        "policy": policy,
        "capacity_blocks": int(points.capacity_blocks[point]),
        "reserved_blocks": int(points.reserved_blocks[point]),
    }


def request_rows(
    point: dict[str, Any], ids: Int64Array, hit_blocks: Int64Array, hit_tokens: Int64Array
) -> pa.Table:
    """Return rows of ``policy_requests``: a policy at a point, and the hits of some requests."""
    columns = {**point, "request_id": ids, "hit_blocks": hit_blocks, "hit_tokens": hit_tokens}
    arrays = [
        pa.array(columns[name])
        if isinstance(columns[name], np.ndarray)
        else pa.repeat(columns[name], ids.size)
        for name in POLICY_REQUESTS.names
    ]
    return pa.Table.from_arrays(
        arrays, schema=POLICY_REQUESTS.with_metadata(schema_metadata("policy_requests"))
    )


def _policies_table(rows: list[dict[str, Any]], policies: Sequence[str]) -> pa.Table:
    """Return the rows of all pools together, and of each where there are several, in order."""
    if any(row["pool"] is not None for row in rows):
        rows = [*_summed(rows), *rows]
    rows.sort(key=lambda row: (policies.index(row["policy"]), row["pool"] is not None, row["pool"] or ""))
    return pa.Table.from_pylist(rows, POLICIES.with_metadata(schema_metadata("policies")))


def _summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums over pools, each of them at the same capacity."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["policy"], row["capacity_blocks"], row["reserved_blocks"]].append(row)
    summed = ("hit_blocks", "hit_tokens", "dropped_requests")
    return [
        {**group[0], "pool": None, **{name: sum(row[name] for row in group) for name in summed}}
        for group in grouped.values()
    ]

"""A log from the tables of results, where these say all that is needed: the trace is not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from kvcap.kernels.run_tables import WeightedRuns
from kvcap.replay.stream import StreamedTrace

if TYPE_CHECKING:
    import pyarrow as pa

    from kvcap.kernels.arrays import Int64Array
    from kvcap.queries import Results


def stored_log(results: Results) -> tuple[StreamedTrace, Int64Array] | None:
    """Return the log behind results, and the tokens of each prompt that were known: int64 (n_requests,).

    None where its instances would have to be told apart, for which the runs of a pool lack what may not hit,
    or where it was replayed by other rules than an explanation's.
    """
    run = results.run
    explains = (
        run.options.rules.compute_last_token
        and run.options.tail_first
        and run.partial_block == "drop"
        and run.max_capacity_blocks is None
    )
    requests = results.table("requests")
    instance = requests.column("instance")
    has_instances = instance.null_count < len(instance)
    one_cache = run.pool_column is None and pc.count_distinct(instance, "all").as_py() == 1
    if not explains or (has_instances and not one_cache):
        return None
    runs = results.table("reuse_runs")
    columns = {"request": "request_id", "source_request": "source_request_id"}
    blocks, touched = _int64(requests, "blocks"), _int64(requests, "touched_blocks")
    cacheable = _int64(requests, "cacheable_tokens")
    streamed = StreamedTrace(
        runs=WeightedRuns(*(_int64(runs, columns.get(name, name)) for name in WeightedRuns._fields)),
        columns=requests,
        blocks=blocks,
        touched_blocks=touched,
        input_tokens=_int64(requests, "input_length"),
        output_tokens=np.zeros(blocks.size, np.int64),
        cacheable_tokens=cacheable,
        block_size=run.block_size,
        coarsen=run.coarsen,
    )
    known_blocks = np.minimum(blocks, touched - _int64(requests, "cold_blocks"))
    # Known blocks that may not hit are the last ones of a prompt that is known whole.
    known = np.where(known_blocks == blocks, cacheable, _int64(requests, "ceiling_tokens"))
    return streamed, known


def _int64(table: pa.Table, name: str) -> Int64Array:
    return np.ascontiguousarray(table.column(name).to_numpy(), np.int64)

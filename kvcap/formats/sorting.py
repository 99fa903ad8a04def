"""Order requests by time, in memory that does not grow with their ids."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from kvcap.kernels.arrays import Int64Array

MAX_ROWS: Final = 1 << 16
MAX_BATCH_IDS: Final = 1 << 20


def sorted_by_time(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, newest_first: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the order of ``timestamp``, equal times as they came, with ``request_id`` anew.

    With ``newest_first`` equal times are taken the other way round, as the rest of such a log is. Only times
    are held.
    """
    times: list[Int64Array] = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            times.append(batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False))
            yield batch

    def order() -> Int64Array:
        all_times = np.concatenate(times)
        if newest_first:
            return all_times.size - 1 - np.argsort(all_times[::-1], kind="stable")
        return np.argsort(all_times, kind="stable")

    return reordered(noted(), schema, order)


def reordered(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, order_of: Callable[[], Int64Array]
) -> Iterator[pa.RecordBatch]:
    """Yield all rows in another order, with ``request_id`` anew.

    The rows wait in a temporary file that is mapped into memory.

    Parameters
    ----------
    batches, schema
        The rows, and what they are.
    order_of
        Returns, once all rows are there, which row stands at each place: int64 (n_rows,).
    """
    with tempfile.TemporaryDirectory(prefix="kvcap-sort-") as directory:
        path = str(Path(directory, "rows.arrow"))
        weights: list[Int64Array] = []
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                weights.append(np.full(batch.num_rows, batch.nbytes // 8 // max(1, batch.num_rows) + 1))
        if not weights:
            return
        order = order_of()
        total = np.cumsum(np.concatenate(weights)[order])
        with pa.memory_map(path) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
            begin = 0
            while begin < order.size:
                done = total[begin - 1] if begin else 0
                end = int(np.searchsorted(total, done + MAX_BATCH_IDS, side="right"))
                end = min(max(end, begin + 1), begin + MAX_ROWS)
                rows = table.take(pa.array(order[begin:end])).combine_chunks()
                ids = pa.array(np.arange(begin, begin + rows.num_rows, dtype=np.int64))
                rows = rows.set_column(0, schema.field(0), ids).replace_schema_metadata(schema.metadata)
                yield from rows.to_batches()
                begin = end

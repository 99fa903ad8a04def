"""Order requests by time, in memory that does not grow with their ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc

MAX_ROWS: Final = 1 << 16
MAX_BATCH_IDS: Final = 1 << 20


def sorted_by_time(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows in the order of ``timestamp``, equal times as they came, with ``request_id`` anew.

    The rows wait in a temporary file that is mapped into memory; only times are held.
    """
    with tempfile.TemporaryDirectory(prefix="kvcap-sort-") as directory:
        path = str(Path(directory, "rows.arrow"))
        times: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        weights: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                times.append(batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False))
                weights.append(np.full(batch.num_rows, batch.nbytes // 8 // max(1, batch.num_rows) + 1))
        if not times:
            return
        order = np.argsort(np.concatenate(times), kind="stable")
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

"""The request log: Parquet files that follow each other, each of them complete when it appears.

A file is named for the number of its first request, so that names in order are requests in order. A crash
loses the requests that no file has yet, at most those of one interval; what was being written is a hidden
``.partial`` that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.blocks import list_arrays
from kvcap.errors import SchemaError, UsageError
from kvcap.online.estimator import RequestBatch
from kvcap.online.server.incoming import Incoming, joined
from kvcap.parquet_io import parquet_file
from kvcap.schema import HASH_IDS, TIMESTAMP, TOKEN_IDS, trace_kind, trace_schema

_NAME: Final = "requests-{:015d}.parquet"
_BATCH_IDS: Final = 1 << 20


class RequestLog:
    """Requests on their way to the next file of the log; not thread-safe.

    Parameters
    ----------
    directory
        Made where it is missing; what a crash left half written there is removed.
    block_size
        Tokens of a full block, which hash ids do not tell themselves.
    """

    def __init__(self, directory: str, block_size: int) -> None:
        self._directory = Path(directory)
        self._block_size = block_size
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(".*.partial"):
            leftover.unlink(missing_ok=True)
        self._pending: list[Incoming] = []
        self._first = 0
        self.pending_bytes = 0

    def append(self, first_request: int, incoming: Incoming) -> None:
        """Add observed, stamped requests."""
        if not self._pending:
            self._first = first_request
        self._pending.append(incoming)
        self.pending_bytes += incoming.requests.ids.nbytes

    def take(self) -> LogPart | None:
        """Return the requests for the next file, and begin anew; None when there are none."""
        if not self._pending:
            return None
        part = LogPart(self._directory / _NAME.format(self._first), self._first, self._pending)
        self._pending = []
        self.pending_bytes = 0
        return part

    def files(self) -> list[Path]:
        """Return the files of the log in order."""
        return sorted(self._directory.glob("requests-*.parquet"))

    def read_from(self, first_request: int) -> Iterator[RequestBatch]:
        """Yield what the log has from a request on.

        Raises
        ------
        SchemaError
            If a file is no part of a log, or requests are missing in between.
        """
        wanted = first_request
        for path in self.files():
            begin = int(path.stem.removeprefix("requests-"))
            with pq.ParquetFile(path) as file:
                end = begin + file.metadata.num_rows
                if end <= wanted:
                    continue
                if begin > wanted:
                    raise SchemaError(str(path), f"request {wanted} before it", f"request {begin} first")
                for batch in file.iter_batches(batch_size=1024):
                    skipped = min(batch.num_rows, max(0, wanted - begin))
                    begin += batch.num_rows
                    if skipped < batch.num_rows:
                        yield _requests(batch.slice(skipped), str(path))
                wanted = end


class LogPart:
    """The requests of one file."""

    def __init__(self, path: Path, first_request: int, parts: Sequence[Incoming]) -> None:
        self._path = path
        self._first = first_request
        self._parts = parts

    def write(self, block_size: int) -> None:
        """Write the file: beside, and then renamed."""
        whole = joined(self._parts, block_size)
        schema = trace_schema(whole.requests.kind)
        with parquet_file(self._path, schema, force=True) as sink:
            table = _table(whole, self._first, block_size)
            per_request = max(1, whole.requests.ids.size // max(1, len(whole)))
            for batch in table.to_batches(max_chunksize=max(1, _BATCH_IDS // per_request)):
                sink.write(batch)


def _table(incoming: Incoming, first_request: int, block_size: int) -> pa.Table:
    requests = incoming.requests
    n = len(requests)
    hashes = requests.kind == "hash_ids"
    lengths = np.diff(requests.offsets)
    if hashes:
        lengths = lengths * block_size if requests.input_tokens is None else requests.input_tokens
    ids = pa.ListArray.from_arrays(pa.array(requests.offsets.astype(np.int32)), pa.array(requests.ids))
    known = {
        "request_id": pa.array(np.arange(first_request, first_request + n)),
        "timestamp": pa.array(requests.timestamps_us).cast(TIMESTAMP),
        "pool": requests.pools,
        "input_length": pa.array(lengths),
        "block_size": [block_size] * n if hashes else None,
        requests.kind: ids.cast(HASH_IDS if hashes else TOKEN_IDS),
        **incoming.labels,
    }
    columns = []
    for field in trace_schema(requests.kind):
        values = known.get(field.name)
        columns.append(
            pa.nulls(n, field.type)
            if values is None
            else values
            if isinstance(values, pa.Array)
            else pa.array(values, field.type)
        )
    return pa.Table.from_arrays(columns, schema=trace_schema(requests.kind))


def _requests(batch: pa.RecordBatch, name: str) -> RequestBatch:
    kind = trace_kind(batch.schema)
    if kind not in ("token_ids", "hash_ids"):
        raise SchemaError(name, "a file of a request log", f"the columns {', '.join(batch.schema.names)}")
    dtype = np.dtype(np.uint32 if kind == "token_ids" else np.uint64)
    ids, offsets = list_arrays(batch.column(kind), dtype)
    pools = batch.column("pool")
    try:
        return RequestBatch(
            "token_ids" if kind == "token_ids" else "hash_ids",
            ids,
            offsets,
            None if kind == "token_ids" else batch.column("input_length").to_numpy(),
            batch.column("timestamp").cast(pa.int64()).to_numpy(),
            None if pools.null_count == len(pools) else pools.to_pylist(),
        )
    except (pa.ArrowException, UsageError) as error:
        raise SchemaError(name, "a file of a request log", str(error)) from error

"""The request log: Parquet files that follow each other, each of them complete when it appears.

A file is named for the number of its first request, so that names in order are requests in order, and for
the process that wrote it, so that two never write the same. A crash loses the requests that no file has yet,
at most those of one interval, unless they are kept in a journal until then; what was being written is a
hidden ``.partial`` that nobody reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.blocks.keyer import list_arrays
from kvcap.errors import SchemaError, UsageError
from kvcap.online.estimator import RequestBatch
from kvcap.online.server.directory_lock import DirectoryLock
from kvcap.online.server.incoming import Incoming, joined
from kvcap.online.server.journal import Journal, read_journal
from kvcap.parquet_io import parquet_file
from kvcap.schema import HASH_IDS, TIMESTAMP, TOKEN_IDS, trace_kind, trace_schema

_NAME: Final = "requests-{:015d}-{}"
_BATCH_IDS: Final = 1 << 20


class RequestLog:
    """Requests on their way to the next file of the log; not thread-safe.

    Parameters
    ----------
    directory
        Made where it is missing; what a crash left half written there is removed.
    block_size
        Tokens of a full block, which hash ids do not tell themselves.
    durable
        Whether requests can be committed before a file has them.

    Raises
    ------
    UsageError
        If another process writes the directory.
    """

    def __init__(self, directory: str, block_size: int, *, durable: bool = False) -> None:
        self._directory = Path(directory)
        self._block_size = block_size
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self._directory)
        self._writer = secrets.token_hex(4)
        self._durable = durable
        for leftover in self._directory.glob(".requests-*.partial"):
            leftover.unlink(missing_ok=True)
        self._recover()
        self._pending: list[Incoming] = []
        self._uncommitted: list[Incoming] = []
        self._journal: Journal | None = None
        self._first = self._next = 0
        self.pending_bytes = 0

    def append(self, first_request: int, incoming: Incoming) -> None:
        """Add observed, stamped requests."""
        if not self._pending:
            self._first = self._next = first_request
        self._pending.append(incoming)
        if self._durable:
            self._uncommitted.append(incoming)
        self.pending_bytes += incoming.requests.ids.nbytes

    def commit(self) -> None:
        """Put on disk what was added since the last call; does nothing unless the log is durable.

        Raises
        ------
        OSError
            If it is not there; the next call tries again.
        """
        if not self._uncommitted:
            return
        if self._journal is None:
            self._journal = Journal(self._directory / f".{_NAME.format(self._first, self._writer)}.journal")
        whole = joined(self._uncommitted, self._block_size)
        self._journal.append(_table(whole, self._next, self._block_size))
        self._next += len(whole)
        self._uncommitted = []

    def take(self) -> LogPart | None:
        """Return the requests for the next file, and begin anew; None when there are none."""
        if not self._pending:
            return None
        path = self._directory / f"{_NAME.format(self._first, self._writer)}.parquet"
        part = LogPart(path, self._first, self._pending, self._journal)
        self._pending, self._uncommitted, self._journal = [], [], None
        self.pending_bytes = 0
        return part

    def close(self) -> None:
        """Let another process write the directory."""
        self._lock.release()

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
        before = 0
        for path in self.files():
            begin = _first_request(path)
            if begin < before:
                raise SchemaError(
                    str(path), f"requests from {before} on, as files before it end there", str(begin)
                )
            with _parquet_file(path) as file:
                before = end = begin + file.metadata.num_rows
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

    def _recover(self) -> None:
        """Make files of the journals that a crash left."""
        for path in sorted(self._directory.glob(".requests-*.journal")):
            part = self._directory / path.name.removeprefix(".").replace(".journal", ".parquet")
            tables = [] if part.exists() else list(read_journal(path))
            if tables:
                _write(pa.concat_tables(tables), part)
            path.unlink()


def _first_request(path: Path) -> int:
    number = path.stem.split("-")[1]
    if not number.isdecimal():
        raise SchemaError(str(path), "requests-NUMBER.parquet; move it elsewhere to go on", path.name)
    return int(number)


@contextmanager
def _parquet_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file of the log."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowException as error:
        raise SchemaError(
            str(path), "a file of a request log; move it elsewhere to go on", str(error).splitlines()[0]
        ) from error


class LogPart:
    """The requests of one file."""

    def __init__(
        self, path: Path, first_request: int, parts: Sequence[Incoming], journal: Journal | None
    ) -> None:
        self._path = path
        self._first = first_request
        self._parts = parts
        self._journal = journal

    def write(self, block_size: int) -> None:
        """Write the file: beside, and then renamed; its journal is not needed any more then."""
        _write(_table(joined(self._parts, block_size), self._first, block_size), self._path)
        if self._journal is not None:
            self._journal.close()
            self._journal.path.unlink()
            self._journal = None


def _write(table: pa.Table, path: Path) -> None:
    """Write a file of the log, a row group for about so many ids."""
    per_request = max(1, table.nbytes // 8 // max(1, table.num_rows))
    with parquet_file(path, table.schema, force=True) as sink:
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
        "namespace": requests.namespaces,
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
    try:
        ids, offsets = list_arrays(batch.column(kind), dtype)
        return RequestBatch(
            "token_ids" if kind == "token_ids" else "hash_ids",
            ids,
            offsets,
            None if kind == "token_ids" else batch.column("input_length").to_numpy(),
            batch.column("timestamp").cast(pa.int64()).to_numpy(),
            _names(batch, "pool"),
            _names(batch, "namespace"),
        )
    except (pa.ArrowException, KeyError, UsageError) as error:
        raise SchemaError(name, "a file of a request log", str(error)) from error


def _names(batch: pa.RecordBatch, column: str) -> list[str | None] | None:
    """Return the pools or namespaces of a file's requests; older files have no namespaces."""
    if column not in batch.schema.names or batch.column(column).null_count == batch.num_rows:
        return None
    names: list[str | None] = batch.column(column).to_pylist()
    return names

"""A results directory: written beside, renamed when complete."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvcap.errors import UsageError
from kvcap.parquet_io import ParquetSink, parquet_file, write_table
from kvcap.queries import Results, RunInfo, open_results
from kvcap.queries.results import RUN_FILE, TABLE_NAMES
from kvcap.writing import check_new, recovered, written_beside

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import pyarrow as pa


_OWNED: Final = frozenset((RUN_FILE, *(f"{name}.parquet" for name in TABLE_NAMES)))


class ResultsDirectory:
    """Where a replay's tables gather until all are there.

    Parameters
    ----------
    path
        The directory to appear.
    trace_schema
        Schema of the trace batches to be kept; None keeps no trace.
    force
        Replace a directory that exists; it stays whole until the new one is complete.

    Raises
    ------
    UsageError
        If ``path`` exists and is not to be replaced, or is no results directory.
    """

    def __init__(self, path: str | os.PathLike[str], trace_schema: pa.Schema | None, *, force: bool) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._target = recovered(path)
        check_new(self._target, force=force, directory=True)
        if self._target.exists() and not (self._target / RUN_FILE).is_file() and any(self._target.iterdir()):
            raise UsageError(f"{path} is no results directory, not replacing it")
        self._force = force
        self._trace_schema = trace_schema
        self._trace: ParquetSink | None = None
        self._stack = ExitStack()

    def __enter__(self) -> ResultsDirectory:
        place = written_beside(self._target, force=self._force, directory=True, owned=_OWNED)
        self._partial = self._stack.enter_context(place)
        if self._trace_schema is not None:
            trace = parquet_file(self._partial / "trace.parquet", self._trace_schema)
            self._trace = self._stack.enter_context(trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write_trace(self, batch: pa.RecordBatch) -> None:
        """Keep a batch of the trace."""
        assert self._trace is not None
        self._trace.write(batch)

    def write_batches(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Path:
        """Write a table that is too large for memory, and return where it stands for now."""
        path = self._partial / f"{name}.parquet"
        with parquet_file(path, schema) as sink:
            for batch in batches:
                sink.write(batch)
        return path

    def commit(self, run: RunInfo, tables: dict[str, pa.Table], threads: int | None = None) -> Results:
        """Write the tables, put the directory in place and open it for queries of so many threads."""
        for name, table in tables.items():
            write_table(table, self._partial / f"{name}.parquet")
        (self._partial / RUN_FILE).write_text(run.to_json(), encoding="utf-8")
        self._stack.close()
        return open_results(self._target, threads)

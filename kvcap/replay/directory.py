"""A results directory: written beside, renamed when complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kvcap.errors import OutputExistsError, UsageError
from kvcap.parquet_io import ParquetSink, write_table
from kvcap.queries import Results, RunInfo, open_results
from kvcap.queries.results import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import pyarrow as pa


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
        self._target = Path(path)
        if self._target.exists():
            if not force:
                raise OutputExistsError(path)
            if not (self._target / RUN_FILE).is_file() and any(self._target.iterdir()):
                raise UsageError(f"{path} is no results directory, not replacing it")
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._trace_schema = trace_schema
        self._trace: ParquetSink | None = None

    def __enter__(self) -> ResultsDirectory:
        self._partial = Path(tempfile.mkdtemp(prefix=f".{self._target.name}.", dir=self._target.parent))
        if self._trace_schema is not None:
            self._trace = ParquetSink(str(self._partial / "trace.parquet"), self._trace_schema).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._trace is not None:
            self._trace.__exit__(kind, error, trace)
        shutil.rmtree(self._partial, ignore_errors=True)

    def write_trace(self, batch: pa.RecordBatch) -> None:
        """Keep a batch of the trace."""
        assert self._trace is not None
        self._trace.write(batch)

    def write_batches(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Path:
        """Write a table that is too large for memory, and return where it stands for now."""
        path = self._partial / f"{name}.parquet"
        with ParquetSink(path, schema) as sink:
            for batch in batches:
                sink.write(batch)
        return path

    def commit(self, run: RunInfo, tables: dict[str, pa.Table], threads: int | None = None) -> Results:
        """Write the tables, put the directory in place and open it for queries of so many threads."""
        if self._trace is not None:
            self._trace.__exit__(None, None, None)
        for name, table in tables.items():
            write_table(table, str(self._partial / f"{name}.parquet"))
        (self._partial / RUN_FILE).write_text(run.to_json(), encoding="utf-8")
        self._partial.chmod(0o777 & ~_umask())
        if self._target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{self._target.name}.old.", dir=self._target.parent))
            self._target.rename(old / self._target.name)
            self._partial.rename(self._target)
            shutil.rmtree(old)
        else:
            self._partial.rename(self._target)
        return open_results(self._target, threads)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask

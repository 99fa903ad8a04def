"""The main job: a trace in, results out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap._version import __version__
from kvcap.blocks import DEFAULT_PARTIAL_BLOCK, BlockKeyer, BlockOptions
from kvcap.errors import EmptyTraceError, TraceError, UsageError
from kvcap.queries import ReadAccount, Results, RunInfo
from kvcap.replay.directory import ResultsDirectory
from kvcap.replay.options import ReplayOptions
from kvcap.replay.sizing import bytes_per_token, decimal_text
from kvcap.replay.stream import StreamedTrace, stream
from kvcap.replay.tables import curve_table, requests_table, reuse_runs_table

if TYPE_CHECKING:
    from kvcap.formats.base import ReadReport, Trace


def source_paths(source: Any) -> list[str] | None:
    """Return the files that a source names, or None when it is a table."""
    if isinstance(source, (str, os.PathLike)):
        return [os.fspath(source)]
    if isinstance(source, Sequence):
        return [os.fspath(path) for path in source]
    return None


def replay_trace(
    trace: Trace,
    options: ReplayOptions,
    *,
    pool_column: str | None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Results:
    """Replay an open trace and return its results, kept in ``out`` where that is given.

    Raises
    ------
    UsageError
        If the trace is text, options contradict it, or ``out`` exists and ``force`` is not given.
    EmptyTraceError
        If it holds no request.
    """
    if trace.kind == "request_json":
        raise UsageError("this log holds text: give --tokenizer to replay it, or run `kvcap tokenize` first")
    if out is None:
        run, tables = _replayed(trace, options, pool_column, None, progress)
        return Results(run, tables)
    with ResultsDirectory(out, trace.schema, force=force) as directory:
        run, tables = _replayed(trace, options, pool_column, directory, progress)
        return directory.commit(run, tables)


def _replayed(
    trace: Trace,
    options: ReplayOptions,
    pool_column: str | None,
    directory: ResultsDirectory | None,
    progress: Callable[[int], None] | None,
) -> tuple[RunInfo, dict[str, pa.Table]]:
    """Return the metadata and the tables of a replay."""
    keyer = BlockKeyer(
        BlockOptions(options.block_size, options.coarsen, options.partial_block), chained=trace.chained
    )
    batches = _observed(trace, directory, progress, pool_column)
    streamed = stream(batches, trace.schema, keyer)
    if streamed.blocks.size == 0:
        raise EmptyTraceError(", ".join(trace.report.sources), "no requests in it")
    run = _run_info(trace, streamed, options, pool_column)
    return run, _tables(streamed, options, run.warm_up_requests)


def _observed(
    trace: Trace,
    directory: ResultsDirectory | None,
    progress: Callable[[int], None] | None,
    pool_column: str | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a trace, keeping and counting them on the way."""
    n_requests = 0
    for batch in trace.batches():
        if pool_column is not None:
            _check_pools(batch, pool_column, trace.report)
        if directory is not None:
            directory.write_trace(batch)
        yield batch
        n_requests += batch.num_rows
        if progress is not None:
            progress(n_requests)


def _check_pools(batch: pa.RecordBatch, pool_column: str, report: ReadReport) -> None:
    missing = np.flatnonzero(pc.is_null(batch.column("pool")).to_numpy(zero_copy_only=False))
    if missing.size:
        request_id = batch.column("request_id")[int(missing[0])].as_py()
        raise TraceError(
            ", ".join(report.sources),
            f"request {request_id}: {pool_column} is missing, expected a value, since it names the pool",
        )


def _tables(streamed: StreamedTrace, options: ReplayOptions, warm_up_requests: int) -> dict[str, pa.Table]:
    tail_first = options.touch_order == "tail-first"
    return {
        "requests": requests_table(streamed, options.target, warm_up_requests, tail_first=tail_first),
        "reuse_runs": reuse_runs_table(streamed.runs),
        "curve": curve_table(
            streamed.runs, streamed.columns.column("pool"), warm_up_requests, tail_first=tail_first
        ),
    }


def _run_info(
    trace: Trace, streamed: StreamedTrace, options: ReplayOptions, pool_column: str | None
) -> RunInfo:
    n_requests = int(streamed.blocks.size)
    per_token, sizing = bytes_per_token(options, streamed.input_tokens)
    block_bytes = None if per_token is None else math.ceil(per_token * streamed.block_size)
    blocks = int(streamed.blocks.sum())
    return RunInfo(
        kvcap_version=__version__,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        kind=trace.kind,
        block_size=streamed.block_size,
        coarsen=options.coarsen,
        partial_block=options.partial_block or DEFAULT_PARTIAL_BLOCK[trace.kind],
        touch_order=options.touch_order,
        target_percent=decimal_text(options.target * 100),
        warm_up_percent=decimal_text(options.warm_up * 100),
        pool_column=pool_column,
        kv_bytes_per_token=None if per_token is None else decimal_text(per_token),
        sizing=sizing,
        block_bytes=block_bytes,
        requests=n_requests,
        warm_up_requests=math.floor(n_requests * options.warm_up),
        blocks=blocks,
        distinct_blocks=blocks - int(streamed.runs.blocks.sum()),
        input_tokens=int(streamed.input_tokens.sum()),
        largest_request_blocks=int(streamed.blocks.max()),
        reading=_account(trace.report),
    )


def _account(report: ReadReport) -> ReadAccount:
    values = asdict(report)
    for name in ("sources", "bad_examples", "notices"):
        values[name] = tuple(values[name])
    return ReadAccount(**values)

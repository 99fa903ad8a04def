"""The main job: a trace in, results out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap._version import __version__
from kvcap.blocks.keyer import UNKNOWN_TOKENS, BlockKeyer, KeyedRequests
from kvcap.errors import EmptyTraceError, TraceError
from kvcap.formats.parallel import READING_THREADS, ahead, working_threads
from kvcap.kernels._jit import kernel_threads
from kvcap.kernels.run_tables import leading_parts, runs_within
from kvcap.options import ReplayOptions
from kvcap.queries import ReadAccount, Results, RunInfo, resolve_capacities
from kvcap.replay.hybrid_tables import hybrid_info, hybrid_tables
from kvcap.replay.identity import identity_notices
from kvcap.replay.policy_tables import lookup_limits, policy_tables
from kvcap.replay.sizing import bytes_per_token, max_capacity_blocks, with_bytes_of_log
from kvcap.replay.stream import StreamedTrace, keyed_batches, stream
from kvcap.replay.tables import curve_table, requests_table, reuse_runs_table
from kvcap.units import decimal_text
from kvcap.writing import check_apart

if TYPE_CHECKING:
    from kvcap.engines.hybrid import HybridCache
    from kvcap.formats.base import ReadReport, Trace
    from kvcap.replay.directory import ResultsDirectory
    from kvcap.schema import TraceKind


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
    threads: int | None = None,
) -> Results:
    """Replay an open trace and return its results, kept in ``out`` where that is given.

    Raises
    ------
    UsageError
        If options contradict the trace, or ``out`` exists and ``force`` is not given.
    EmptyTraceError
        If it holds no request.
    """
    if out is None:
        run, tables = _replayed(trace, options, pool_column, None, progress, threads)
        return Results(run, tables, threads)
    from kvcap.replay.directory import ResultsDirectory

    check_apart(out, trace.report.sources)
    with ResultsDirectory(out, trace.schema, force=force) as directory:
        run, tables = _replayed(trace, options, pool_column, directory, progress, threads)
        return directory.commit(run, tables, threads)


def _replayed(
    trace: Trace,
    options: ReplayOptions,
    pool_column: str | None,
    directory: ResultsDirectory | None,
    progress: Callable[[int], None] | None,
    threads: int | None,
) -> tuple[RunInfo, dict[str, pa.Table]]:
    """Return the metadata and the tables of a replay."""
    threads = working_threads(threads)
    streamed = streamed_trace(trace, options, pool_column, directory, progress, threads)
    return finished(streamed, options, trace, pool_column, threads)


def streamed_trace(
    trace: Trace,
    options: ReplayOptions,
    pool_column: str | None,
    directory: ResultsDirectory | None,
    progress: Callable[[int], None] | None,
    threads: int,
) -> StreamedTrace:
    """Return a trace after its pass, kept in a directory on the way where there is one.

    Raises
    ------
    EmptyTraceError
        If it holds no request.
    """
    keyer = BlockKeyer(options.blocks, chained=trace.chained)
    # An error leaves this frame in a traceback: threads must not wait for the collector to be stopped.
    with closing(_observed(trace, keyer, directory, progress, pool_column, threads)) as batches:
        streamed = stream(batches, trace.schema, partial(max_capacity_blocks, options), threads)
    if streamed.blocks.size == 0:
        raise EmptyTraceError(", ".join(trace.report.sources), "no requests in it")
    return streamed


def finished(
    streamed: StreamedTrace, options: ReplayOptions, trace: Trace, pool_column: str | None, threads: int
) -> tuple[RunInfo, dict[str, pa.Table]]:
    """Return the metadata and the tables of a trace after its pass."""
    options = with_bytes_of_log(options, trace.report)
    streamed, counts = counted(streamed, options)
    for text in identity_notices(streamed.columns):
        trace.report.notice(text)
    pools = streamed.columns.column("pool")
    if pool_column is None and pools.null_count < len(pools):
        # Logs of several models name their pools themselves.
        pool_column = "pool"
    run = run_info(
        counts, options, streamed.input_tokens, trace.report, kind=trace.kind, pool_column=pool_column
    )
    cache = options.hybrid_cache()
    with kernel_threads(threads):
        if cache is not None:
            return _with_hybrid_tables(streamed, options, run, cache)
        return run, _tables(streamed, options, run)


@dataclass(frozen=True)
class RunCounts:
    """What a replay counts, of all its pools or of one; see :class:`kvcap.queries.RunInfo`."""

    block_size: int
    coarsen: int
    blocks: int
    distinct_blocks: int
    largest_request_blocks: int
    requests_without_output: int
    max_depth: int | None
    beyond_blocks: int
    forgotten_blocks: int


def counted(streamed: StreamedTrace, options: ReplayOptions) -> tuple[StreamedTrace, RunCounts]:
    """Return a trace after its pass without runs deeper than its bound, and its counts."""
    runs = streamed.runs
    if streamed.max_depth is not None:
        runs = runs_within(runs, streamed.max_depth, tail_first=options.tail_first)
    return replace(streamed, runs=runs), RunCounts(
        block_size=streamed.block_size,
        coarsen=streamed.coarsen,
        blocks=int(streamed.blocks.sum()),
        distinct_blocks=int(streamed.touched_blocks.sum() - runs.blocks.sum()),
        largest_request_blocks=int(streamed.blocks.max()),
        requests_without_output=int(np.count_nonzero(streamed.output_tokens == UNKNOWN_TOKENS)),
        max_depth=streamed.max_depth,
        beyond_blocks=int(streamed.runs.blocks.sum() - runs.blocks.sum()),
        forgotten_blocks=streamed.forgotten_blocks,
    )


def _observed(
    trace: Trace,
    keyer: BlockKeyer,
    directory: ResultsDirectory | None,
    progress: Callable[[int], None] | None,
    pool_column: str | None,
    threads: int,
) -> Generator[tuple[pa.RecordBatch, KeyedRequests], None, None]:
    """Yield the batches of a trace and their keys, keeping and counting them on the way."""
    n_requests = 0
    with closing(ahead(keyed_batches(trace.batches(), keyer), threads - READING_THREADS)) as batches:
        for batch, keyed in batches:
            if pool_column is not None:
                _check_pools(batch, pool_column, trace.report)
            if directory is not None:
                directory.write_trace(batch)
            yield batch, keyed
            n_requests += batch.num_rows
            if progress is not None:
                progress(n_requests)


def _check_pools(batch: pa.RecordBatch, pool_column: str, report: ReadReport) -> None:
    missing = np.flatnonzero(batch.column("pool").is_null().to_numpy(zero_copy_only=False))
    if missing.size:
        request_id = batch.column("request_id")[int(missing[0])].as_py()
        raise TraceError(
            ", ".join(report.sources),
            f"request {request_id}: {pool_column} is missing, expected a value, since it names the pool",
        )


def _with_hybrid_tables(
    streamed: StreamedTrace, options: ReplayOptions, run: RunInfo, cache: HybridCache
) -> tuple[RunInfo, dict[str, pa.Table]]:
    """Return the tables with those of the engine's own cache, and the metadata that tells of it."""
    run = replace(run, hybrid=hybrid_info(streamed, cache, run.warm_up_requests))
    tables = _tables(streamed, options, run)
    if cache.policy in options.rules.policies:
        capacities = resolve_capacities(options.rules.capacities, run)
        usable = [capacity.pool_blocks or 0 for capacity in capacities]
        for name, table in hybrid_tables(streamed, options, cache, usable, run.warm_up_requests).items():
            tables[name] = pa.concat_tables([tables[name], table]) if name in tables else table
    return run, tables


def _tables(streamed: StreamedTrace, options: ReplayOptions, run: RunInfo) -> dict[str, pa.Table]:
    tables = lru_tables(streamed, options, run.warm_up_requests)
    if options.rules.policies:
        capacities = [capacity.blocks for capacity in resolve_capacities(options.rules.capacities, run)]
        limits = lookup_limits(streamed, options)
        tables |= policy_tables(streamed, limits, options, capacities, run.warm_up_requests)
    return tables


def lru_tables(streamed: StreamedTrace, options: ReplayOptions, warm_up_requests: int) -> dict[str, pa.Table]:
    """Return the tables ``requests``, ``reuse_runs`` and ``curve``."""
    tail_first = options.tail_first
    runs = streamed.runs
    if options.rules.compute_last_token or options.blocks.output_blocks:
        runs = leading_parts(runs, lookup_limits(streamed, options))
    pools = streamed.columns.column("pool")
    return {
        "requests": requests_table(streamed, runs, options.target, warm_up_requests, tail_first=tail_first),
        "reuse_runs": reuse_runs_table(runs),
        "curve": curve_table(runs, pools, warm_up_requests, tail_first=tail_first),
    }


def run_info(
    counts: RunCounts,
    options: ReplayOptions,
    input_tokens: npt.NDArray[np.int64],
    report: ReadReport,
    *,
    kind: TraceKind,
    pool_column: str | None,
) -> RunInfo:
    """Return the metadata of a replay.

    Parameters
    ----------
    counts
        What was counted on the way.
    options
        What the replay was told.
    input_tokens : int64 (n_requests,)
        Prompt lengths.
    report
        The account of the reading.
    kind, pool_column
        Of the trace.
    """
    per_token, sizing = bytes_per_token(options, input_tokens)
    block_bytes = None if per_token is None else math.ceil(per_token * counts.block_size)
    return RunInfo(
        kvcap_version=__version__,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        kind=kind,
        options=replace(options, model_bytes=None),
        block_size=counts.block_size,
        coarsen=counts.coarsen,
        pool_column=pool_column,
        kv_bytes_per_token=None if per_token is None else decimal_text(per_token),
        sizing=sizing,
        block_bytes=block_bytes,
        requests=input_tokens.size,
        warm_up_requests=math.floor(input_tokens.size * options.warm_up),
        blocks=counts.blocks,
        distinct_blocks=counts.distinct_blocks,
        input_tokens=int(input_tokens.sum()),
        largest_request_blocks=counts.largest_request_blocks,
        requests_without_output=counts.requests_without_output,
        reading=account_of(report),
        max_capacity_blocks=counts.max_depth,
        beyond_blocks=counts.beyond_blocks,
        forgotten_blocks=counts.forgotten_blocks,
    )


def account_of(report: ReadReport) -> ReadAccount:
    """Return the account of a reading that is complete."""
    values = asdict(report)
    del values["start_up_lines"]
    for name in ("sources", "bad_examples", "notices"):
        values[name] = tuple(values[name])
    return ReadAccount(**values)

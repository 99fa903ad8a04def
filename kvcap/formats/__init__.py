"""Readers of request logs: :func:`open_trace` takes what serving stacks write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvcap.formats.base import ReadReport, Trace
from kvcap.formats.options import ReadOptions

if TYPE_CHECKING:
    from kvcap.formats.records import AnyChunk
    from kvcap.formats.sources import Source

__all__ = ["ReadOptions", "ReadReport", "Trace", "open_table", "open_trace"]


def open_trace(paths: Sequence[str], options: ReadOptions | None = None) -> Trace:
    """Open logs or a Parquet trace for one reading.

    Parameters
    ----------
    paths
        Files, directories, globs, URLs of object stores, or ``-`` for standard input; several replay in
        the order given. The format is told from the content.
    options
        How to read them.

    Returns
    -------
    Trace
        Its kind is known at once; its batches are read on demand.

    Raises
    ------
    UsageError
        If an option is wrong for these logs.
    TraceError
        If a log cannot be read, is empty, or is of no known format.
    SchemaError
        If a Parquet file lacks what a trace needs.
    OSError
        If a file cannot be opened.
    """
    from functools import partial

    from kvcap.formats.log_trace import LogFile, LogTrace
    from kvcap.formats.sources import STDIN, expand, is_parquet, repeated_files

    options = options or ReadOptions()
    sources = expand(paths)
    if is_parquet(sources[0]):
        from kvcap.formats.stored_trace import StoredTrace, stored_files

        parts = stored_files(sources, options.max_request_tokens)
        if parts is not None:
            return StoredTrace(parts, options)
    notices = []
    for again, first in repeated_files(sources):
        left_out = "it is left out" if options.drop_repeats else "its requests count again (--drop-repeats)"
        notices.append(f"{again.name} holds the same bytes as {first.name}: {left_out}")
        if options.drop_repeats:
            sources.remove(again)
    trace = LogTrace(
        [
            LogFile(source.name, partial(_chunks, source, options.max_request_tokens), source.name != STDIN)
            for source in sources
        ],
        options,
    )
    for text in notices:
        trace.report.notice(text)
    return trace


def open_table(table: Any, options: ReadOptions | None = None) -> Trace:
    """Open a table in memory for one reading: Arrow, Polars, or whatever else exports Arrow data.

    Parameters
    ----------
    table
        One row per request, with the columns that a log has (``token_ids``, ``hash_ids`` and so on), or a
        trace of kvcap.
    options
        How to read it.

    Raises
    ------
    UsageError
        If it is no table, or an option is wrong for it.
    TraceError
        If a row is wrong, or there is none.
    """
    import pyarrow as pa

    from kvcap.errors import UsageError
    from kvcap.formats.arrow_chunks import table_chunks
    from kvcap.formats.log_trace import LogFile, LogTrace
    from kvcap.formats.stored_trace import StoredTrace, stored_table

    options = options or ReadOptions()
    if not hasattr(table, "__arrow_c_stream__"):
        raise UsageError(
            f"a {type(table).__name__} is no source, expected paths, or an Arrow or Polars table"
        )
    arrow = table if isinstance(table, pa.Table) else pa.table(table)
    part = stored_table(arrow)
    if part is not None:
        return StoredTrace([part], options)
    return LogTrace([LogFile("table", lambda: table_chunks(arrow, "table"))], options)


def _chunks(source: Source, max_request_tokens: int) -> Iterator[AnyChunk]:
    from kvcap.formats.arrow_chunks import read_parquet_chunks
    from kvcap.formats.chunks import read_chunks
    from kvcap.formats.sources import is_parquet

    if is_parquet(source):
        yield from read_parquet_chunks(source, max_request_tokens)
    else:
        yield from read_chunks(source)

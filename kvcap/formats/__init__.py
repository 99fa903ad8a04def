"""Readers of request logs: :func:`open_trace` takes what serving stacks write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcap.formats.base import ReadOptions, ReadReport, Trace

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = ["ReadOptions", "ReadReport", "Trace", "open_table", "open_trace"]


def open_table(table: pa.Table | pl.DataFrame, options: ReadOptions | None = None) -> Trace:
    """Take an Arrow table or a Polars frame for a trace.

    Raises
    ------
    SchemaError
        If it has neither ``token_ids``, nor ``hash_ids`` with ``input_length``.
    """
    from kvcap.formats.table_trace import TableTrace

    return TableTrace(table, options or ReadOptions())


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
    from kvcap.formats.log_trace import LogTrace
    from kvcap.formats.sources import expand, is_parquet

    options = options or ReadOptions()
    sources = expand(paths)
    if is_parquet(sources[0]):
        from kvcap.formats.parquet_trace import ParquetTrace

        return ParquetTrace(sources, options)
    return LogTrace(sources, options)

"""Replay a trace through LRU caches of every size at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcap.options import ReplayOptions, engine_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    import polars as pl
    import pyarrow as pa

    from kvcap.formats.options import ReadOptions
    from kvcap.queries import Results
    from kvcap.tokenize import TokenizeOptions

__all__ = ["ReplayOptions", "engine_options", "replay"]


def replay(
    source: str | PathLike[str] | Sequence[str | PathLike[str]] | pa.Table | pl.DataFrame,
    options: ReplayOptions | None = None,
    *,
    reading: ReadOptions | None = None,
    tokenizing: TokenizeOptions | None = None,
    out: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Results:
    """Replay request logs, or a table of requests, and return the results.

    Parameters
    ----------
    source
        Files in replay order (``-`` is standard input), or a table with ``token_ids``, or with
        ``hash_ids`` and ``input_length``.
    options
        What a block, a hit and the target are.
    reading
        How to read the files.
    tokenizing
        How to turn a log of texts into token ids; without it such a log is refused.
    out
        Directory to keep the results in, as Parquet; it appears when complete.
    force
        Replace an existing ``out``.
    progress
        Called with the number of requests so far.

    Returns
    -------
    Results
        Close it, or use it as a context manager.

    Raises
    ------
    TraceError
        If the log cannot be read.
    UsageError
        If options contradict each other or the log, or ``out`` exists.
    """
    from kvcap.formats import open_table, open_trace
    from kvcap.formats.options import ReadOptions
    from kvcap.replay.job import replay_trace, source_paths

    options = options or ReplayOptions()
    reading = reading or ReadOptions(block_size=options.blocks.block_size)
    paths = source_paths(source)
    trace = open_table(source, reading) if paths is None else open_trace(paths, reading)
    if trace.kind == "request_json":
        from kvcap.tokenize.driver import prompts_of_ids, tokenize_trace

        if tokenizing is not None:
            trace = tokenize_trace(trace, tokenizing)
        else:
            trace = prompts_of_ids(trace, reading.skip_bad)
    try:
        return replay_trace(
            trace,
            options,
            pool_column=reading.pool,
            out=out,
            force=force,
            progress=progress,
            threads=reading.threads,
        )
    finally:
        trace.close()

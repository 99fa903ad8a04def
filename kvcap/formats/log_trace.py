"""Logs as a trace: chunks to records to rows to batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from kvcap.errors import EmptyTraceError, UsageError
from kvcap.formats.assemble import Assembler, is_ordered_by_time
from kvcap.formats.base import ReadReport
from kvcap.formats.block_size import check_block_size, infer_block_size
from kvcap.formats.columns import kept_columns
from kvcap.formats.detect import detect
from kvcap.formats.dialect import Dialect
from kvcap.formats.fields import NamedFields
from kvcap.formats.options import ReadOptions, TimestampUnit
from kvcap.formats.parallel import close_batches, map_in_order, working_threads
from kvcap.formats.records import AnyChunk, Outcome, read_chunk
from kvcap.formats.rows import Row
from kvcap.formats.sorting import sorted_by_time
from kvcap.formats.timestamps import detect_unit
from kvcap.schema import TraceKind

PLAIN_BYTES: Final = 4 << 20
"""So much is read without the compiled kernel and without threads, which take longer to start."""


class LogTrace:
    """A trace read from chunks of records; see :class:`kvcap.formats.base.Trace`.

    Parameters
    ----------
    names
        The sources, as the user named them.
    chunks
        Their records, in replay order.
    options
        How to read them.

    Raises
    ------
    TraceError
        If a log cannot be read, is empty, or is of no known format.
    UsageError
        If an option names a column that is not there.
    """

    def __init__(self, names: Sequence[str], chunks: Iterator[AnyChunk], options: ReadOptions) -> None:
        self._options = options
        self._chunks = chunks
        first = next(self._chunks, None)
        if first is None:
            raise EmptyTraceError(names[0], "is empty, expected at least one request")
        dialect = detect(first, options).of_conversations(options.conversations)
        self.report = ReadReport(dialect.name, tuple(names))
        pool = options.pool or dialect.pool
        named = NamedFields(options.fields)
        parts = options.namespace or ()
        columns = options.keep + named.paths + parts + ((pool,) if pool is not None else ())
        self._read = partial(read_chunk, dialect=dialect, columns=columns)
        self._first = (first, self._read(first, compiled=False))
        rows = [outcome for outcome in self._first[1] if isinstance(outcome, Row)]
        n_kept, n_named = len(options.keep), len(named.paths)
        kept = kept_columns(options.keep, [row.kept[:n_kept] for row in rows], first.path)
        if pool is not None:
            kept_columns((pool,), [row.kept[-1:] for row in rows], first.path, option="--pool")
        begin, end = n_kept + n_named, n_kept + n_named + len(parts)
        kept_columns(parts, [row.kept[begin:end] for row in rows], first.path, option="--namespace")
        values = [row.kept[n_kept : n_kept + n_named] for row in rows]
        for text in named.prepare(values, first.path):
            self.report.notice(text)
        times = [row.timestamp for row in rows]
        if options.fields.time is not None:
            times = [taken[named.paths.index(options.fields.time)] for taken in values]
        unit = self._unit(dialect, [time for time in times if time is not None])
        inferred = None
        if dialect.kind == "hash_ids" and all(row.block_size is None for row in rows):
            if options.block_size is not None:
                check_block_size(rows, options.block_size, dialect.usual_block_size)
            else:
                inferred = infer_block_size(rows, dialect.usual_block_size)
        self._assembler = Assembler(dialect, options, self.report, unit, kept, named, inferred)
        self._dialect = dialect
        self._batches: Iterator[pa.RecordBatch] | None = None

    @property
    def kind(self) -> TraceKind:
        """What the payload is."""
        return self._assembler.kind

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch."""
        return self._assembler.schema

    @property
    def chained(self) -> bool:
        """Whether hash ids are known to be keys of whole prefixes: a log does not say so."""
        return False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in replay order; may be called once."""
        if self._batches is not None:
            raise UsageError("a trace is read once, expected a newly opened one")
        self._batches = self._make_batches()
        if is_ordered_by_time(self._options, self._dialect):
            self._batches = sorted_by_time(self._batches, self.schema)
        return self._batches

    def close(self) -> None:
        """Release files and workers."""
        close_batches(self._batches)

    def _unit(self, dialect: Dialect, timestamps: list[Any]) -> TimestampUnit:
        if self._options.timestamp_unit is not None:
            return self._options.timestamp_unit
        unit = detect_unit(timestamps)
        if any(not isinstance(value, str) or value.strip().isdecimal() for value in timestamps):
            how = "as their size shows" if unit else f"as {dialect.name} logs have them"
            self.report.notice(f"numeric timestamps are read in {unit or dialect.timestamp_unit}, {how}")
        return unit or dialect.timestamp_unit

    def _make_batches(self) -> Iterator[pa.RecordBatch]:
        assembler = self._assembler
        parsed = self._parsed()
        try:
            for chunk_path, outcomes in parsed:
                for outcome in outcomes:
                    if assembler.is_done:
                        break
                    assembler.add(outcome, chunk_path)
                    if assembler.is_full:
                        yield assembler.flush()
                if assembler.is_done:
                    break
            assembler.add_rest(chunk_path)
            last = assembler.flush()
            if last is not None:
                yield last
        finally:
            parsed.close()
        if self.report.requests == 0:
            skipped = ", ".join(f"{count:,} {reason}" for reason, count in self.report.skipped.items())
            raise EmptyTraceError(
                self.report.sources[0],
                f"holds no request in {self.report.records:,} records{f' ({skipped})' if skipped else ''}",
            )
        assembler.finish()

    def _parsed(self) -> Generator[tuple[str, list[Outcome]], None, None]:
        chunk, outcomes = self._first
        size = chunk.size
        yield chunk.path, outcomes
        del chunk, outcomes, self._first
        for chunk in self._chunks:
            size += chunk.size
            if size > PLAIN_BYTES:
                break
            yield chunk.path, self._read(chunk, compiled=False)
        else:
            return
        threads = working_threads(self._options.threads)
        yield from map_in_order(self._read_compiled, chain([chunk], self._chunks), threads)

    def _read_compiled(self, chunk: AnyChunk) -> tuple[str, list[Outcome]]:
        return chunk.path, self._read(chunk, compiled=True)

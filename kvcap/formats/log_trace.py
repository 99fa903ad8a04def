"""Logs as a trace: chunks to records to rows to batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final

import pyarrow as pa

from kvcap.errors import EmptyTraceError, UsageError
from kvcap.formats.assemble import Assembler, is_ordered_by_time
from kvcap.formats.base import ReadReport
from kvcap.formats.block_size import check_block_size, infer_block_size
from kvcap.formats.chunks import Chunk
from kvcap.formats.columns import kept_columns
from kvcap.formats.detect import detect
from kvcap.formats.dialect import Dialect
from kvcap.formats.fields import NamedFields
from kvcap.formats.merging import MergedFiles, Parsed, TimedFile, notice_of
from kvcap.formats.options import ReadOptions, TimestampUnit
from kvcap.formats.parallel import close_batches, map_in_order, working_threads
from kvcap.formats.records import AnyChunk, Outcome, read_chunk
from kvcap.formats.rows import FieldError, Row
from kvcap.formats.sorting import sorted_by_time
from kvcap.formats.timestamps import YearSteps, detect_unit, to_microseconds
from kvcap.schema import TraceKind

_FIRST_LINES: Final = 64
"""So many records show where a file begins, and whether it runs backwards."""
_FEWEST_STEPS: Final = 2
_BACKWARDS_SHARE: Final = 0.95
PLAIN_BYTES: Final = 4 << 20
"""So much is read without the compiled kernel and without threads, which take longer to start."""


@dataclass(frozen=True)
class LogFile:
    """One file of a log: its name, and how to read its chunks from the beginning.

    ``is_lasting`` says that it may be read more than once.
    """

    name: str
    chunks: Callable[[], Iterator[AnyChunk]]
    is_lasting: bool = True


class LogTrace:
    """A trace read from chunks of records; see :class:`kvcap.formats.base.Trace`.

    Parameters
    ----------
    files
        The files of the log, in the order given.
    options
        How to read them.

    Raises
    ------
    TraceError
        If a log cannot be read, is empty, or is of no known format.
    UsageError
        If an option names a column that is not there.
    """

    def __init__(self, files: Sequence[LogFile], options: ReadOptions) -> None:
        self._options = options
        self._files = list(files)
        first = None
        while first is None and self._files:
            # Empty files say nothing of the others.
            self._chunks = self._files[0].chunks()
            first = next(self._chunks, None)
            if first is None:
                del self._files[0]
        if first is None:
            raise EmptyTraceError(files[0].name, "is empty, expected at least one request")
        dialect = detect(first, options).of_conversations(options.conversations)
        self.report = ReadReport(dialect.name, tuple(file.name for file in files))
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
        self._dialect, self._named, self._unit_of_times = dialect, named, unit
        self._newest_first = dialect.sequencer is None and self._runs_backwards(rows)
        if self._newest_first:
            self._options = options = replace(options, order="time")
            self.report.notice(
                "the log runs backwards, newest first: requests are replayed in the order of time "
                "(--order file keeps that of the log)"
            )
        self._assembler = Assembler(dialect, options, self.report, unit, kept, named, inferred)
        self._order_notice: str | None = None
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
            self._batches = self._sorted(self._batches)
        return self._batches

    def _sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from sorted_by_time(batches, self.schema, newest_first=self._newest_first)
        self.report.in_order()

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
        parsed = self._in_order()
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
        if self._order_notice is not None:
            self.report.notice(self._order_notice)

    def _in_order(self) -> Generator[Parsed, None, None]:
        """Yield the records of all files: one file after the other, or merged by time."""
        files = self._timed_files()
        if files is None:
            rest = (chunk for file in self._files[1:] for chunk in file.chunks())
            yield from self._parsed(chain(self._chunks, rest), self._years(), first=self._taken_first())
            return
        merged = MergedFiles(files, self._time_of)
        yield from merged
        self._order_notice = notice_of(is_overlapping=merged.is_overlapping, is_reordered=merged.is_reordered)

    def _timed_files(self) -> list[TimedFile] | None:
        """Return all files with their first times; None where files stay in the order given."""
        is_given = self._options.order == "file" or is_ordered_by_time(self._options, self._dialect)
        # Records that are joined to those before them stand in one file, in its order.
        if (
            is_given
            or self._dialect.sequencer is not None
            or len(self._files) < 2
            or not all(file.is_lasting for file in self._files)
        ):
            return None
        years = self._years()
        timed = []
        for number, file in enumerate(self._files):
            outcomes = self._first[1] if number == 0 else self._begin(file)
            if outcomes is None:
                continue
            begun = None if years is None else years.copy()
            times = map(self._time_of, _dated(outcomes, years))
            first_us = next((time for time in times if time is not None), None)
            if first_us is None:
                return None
            timed.append(TimedFile(first_us, partial(self._read_file, None if number == 0 else file, begun)))
        return timed

    def _years(self) -> YearSteps | None:
        return YearSteps() if self._dialect.has_no_year else None

    def _begin(self, file: LogFile) -> list[Outcome] | None:
        """Return what the first records of a file come to; None for an empty one."""
        chunks = file.chunks()
        try:
            chunk = next(chunks, None)
            if chunk is None:
                return None
            head = chunk.head(_FIRST_LINES) if isinstance(chunk, Chunk) else chunk
            return self._read(head, compiled=False)
        finally:
            close_batches(chunks)

    def _time_of(self, outcome: Outcome) -> int | None:
        """Return the time of a record in microseconds, None where it has none that can be read."""
        if not isinstance(outcome, Row):
            return None
        value, field = outcome.timestamp, self._options.fields.time
        if field is not None:
            value = outcome.kept[len(self._options.keep) + self._named.paths.index(field)]
        try:
            return None if value is None else to_microseconds(value, self._unit_of_times)
        except FieldError:
            return None

    def _runs_backwards(self, rows: Sequence[Row]) -> bool:
        """Return whether a log that stays as it is goes back in time at nearly every request."""
        if self._options.order != "auto" or is_ordered_by_time(self._options, self._dialect):
            return False
        times = [time for time in map(self._time_of, rows[:_FIRST_LINES]) if time is not None]
        steps = [after - before for before, after in pairwise(times) if after != before]
        down = sum(step < 0 for step in steps)
        return len(steps) >= _FEWEST_STEPS and down >= _BACKWARDS_SHARE * len(steps)

    def _read_file(self, file: LogFile | None, years: YearSteps | None, alone: bool) -> Iterator[Parsed]:
        """Read a file from the beginning; None is the first one, whose beginning is there."""
        if file is None:
            return self._parsed(self._chunks, years, alone=alone, first=self._taken_first())
        return self._parsed(file.chunks(), years, alone=alone)

    def _taken_first(self) -> list[tuple[AnyChunk, list[Outcome]]]:
        """Return the first chunk for whoever drops it when it is read."""
        first = [self._first]
        del self._first
        return first

    def _parsed(
        self,
        chunks: Iterator[AnyChunk],
        years: YearSteps | None,
        *,
        alone: bool = True,
        first: list[tuple[AnyChunk, list[Outcome]]] | None = None,
    ) -> Generator[Parsed, None, None]:
        for path, outcomes in self._undated(chunks, alone, first or []):
            yield path, _dated(outcomes, years)

    def _undated(
        self, chunks: Iterator[AnyChunk], alone: bool, first: list[tuple[AnyChunk, list[Outcome]]]
    ) -> Generator[Parsed, None, None]:
        size = 0
        if first:
            chunk, outcomes = first.pop()
            size = chunk.size
            yield chunk.path, outcomes
            del chunk, outcomes
        for chunk in chunks:
            size += chunk.size
            if size > PLAIN_BYTES:
                break
            yield chunk.path, self._read(chunk, compiled=False)
        else:
            return
        threads = working_threads(self._options.threads) if alone else 1
        yield from map_in_order(self._read_compiled, chain([chunk], chunks), threads)

    def _read_compiled(self, chunk: AnyChunk) -> tuple[str, list[Outcome]]:
        return chunk.path, self._read(chunk, compiled=True)


def _dated(outcomes: list[Outcome], years: YearSteps | None) -> list[Outcome]:
    """Give times of a log without years the year that their order shows."""
    if years is not None:
        for outcome in outcomes:
            if isinstance(outcome, Row) and type(outcome.timestamp) is str:
                outcome.timestamp = years.dated(outcome.timestamp)
    return outcomes

"""One results directory from the pools of a fleet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvcap.fleet.job import FleetJob
from kvcap.fleet.parts import FileHead
from kvcap.fleet.pools import FleetPlan, PoolResult
from kvcap.formats import ReadReport
from kvcap.formats.base import MAX_EXAMPLES
from kvcap.formats.merging import order_notice
from kvcap.kernels.curve import Curve, summed_curve
from kvcap.replay.directory import ResultsDirectory
from kvcap.replay.identity import IDENTITY_COLUMNS, identity_notices
from kvcap.replay.job import RunCounts, run_info
from kvcap.replay.tables import curve_part

if TYPE_CHECKING:
    from types import TracebackType

    from kvcap.queries import Results

_ROWS: Final = 1 << 20


class FleetResults:
    """The results of a fleet, pool by pool as they come.

    They are those of one replay of all files with the same options: the same tables row by row, without the
    trace, and the same ``run.json`` but for the time and ``backward_timestamps``, which are counted inside
    each file alone. Merging happens out of core.

    Parameters
    ----------
    job, heads, plan
        What the parts were told, and what they found.
    out
        Directory of the results; it appears when complete.
    force
        Replace an existing ``out``.

    Raises
    ------
    UsageError
        If ``out`` exists and is not to be replaced, or is no results directory.
    """

    def __init__(
        self,
        job: FleetJob,
        heads: Sequence[FileHead],
        plan: FleetPlan,
        out: str | os.PathLike[str],
        *,
        force: bool = False,
    ) -> None:
        self._job, self._plan = job, plan
        self._report = merged_report([head.report for head in heads])
        notice = None if job.reading.by_time else order_notice([head.times for head in heads])
        if notice is not None:
            self._report.notice(notice)
        self._directory = ResultsDirectory(out, None, force=force)
        self._counts: list[RunCounts] = []
        self._names: dict[str | None, int] = {}

    def __enter__(self) -> FleetResults:
        self._directory.__enter__()
        self._work = tempfile.TemporaryDirectory(prefix="kvcap-fleet-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.__exit__(kind, error, trace)
        self._work.cleanup()

    def add(self, result: PoolResult) -> None:
        """Take the result of one pool; the order of pools makes no difference."""
        number = self._names[result.pool] = len(self._names)
        for name, buffer in result.tables.items():
            self._path(name, number).write_bytes(buffer)
        self._counts.append(result.counts)

    def commit(self) -> Results:
        """Merge the pools, put the directory in place and open it."""
        requests = self._merge("requests", "request_id")
        self._merge("reuse_runs", "request_id, first_block")
        self._directory.write_batches("curve", *self._curves())
        input_tokens = pq.read_table(requests, columns=["input_length"]).column(0).to_numpy()
        for text in identity_notices(pq.read_table(requests, columns=list(IDENTITY_COLUMNS))):
            self._report.notice(text)
        run = run_info(
            _summed(self._counts),
            self._job.options,
            input_tokens,
            self._report,
            kind=self._plan.facts.kind,
            pool_column=self._job.pool_column,
        )
        return self._directory.commit(run, {})

    def _path(self, table: str, number: int) -> Path:
        return Path(self._work.name, f"{table}-{number:06d}.parquet")

    def _merge(self, table: str, order: str) -> Path:
        """Write a table of all pools in order, and return where it stands."""
        paths = [str(self._path(table, number)) for number in self._names.values()]
        schema = pq.read_schema(paths[0])
        if len(paths) == 1:
            with pq.ParquetFile(paths[0]) as file:
                return self._directory.write_batches(table, schema, file.iter_batches(_ROWS))
        with duckdb.connect(config={"temp_directory": self._work.name}) as connection:
            reader = connection.read_parquet(paths).order(order).to_arrow_reader(_ROWS)
            return self._directory.write_batches(table, schema, _cast(reader, schema))

    def _curves(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        names = sorted(name for name in self._names if name is not None)
        curves = {name: self._curve(name) for name in self._names}
        parts = [curve_part(None, summed_curve(list(curves.values())))]
        parts += [curve_part(name, curves[name]) for name in names]
        table = pa.concat_tables(parts)
        return table.schema, iter(table.combine_chunks().to_batches(_ROWS))

    def _curve(self, pool: str | None) -> Curve:
        table = pq.read_table(self._path("curve", self._names[pool]))
        own = pc.is_null(table["pool"])
        return Curve(*(table.filter(own).column(name).to_numpy() for name in Curve._fields))


def merged_report(reports: Sequence[ReadReport]) -> ReadReport:
    """Return the account of reading several files, in order."""
    sums = ("records", "requests", "bad_records", "overfull_requests", "underfull_requests")
    more = ("backward_timestamps", "clipped_cached_tokens")
    counts: dict[str, Any] = {
        name: sum(getattr(report, name) for report in reports) for name in (*sums, *more)
    }
    merged = ReadReport(reports[0].format_name, tuple(name for report in reports for name in report.sources))
    for name, count in counts.items():
        setattr(merged, name, count)
    for report in reports:
        merged.largest_step_back_us = max(merged.largest_step_back_us, report.largest_step_back_us)
        merged.kv_bytes_per_token = merged.kv_bytes_per_token or report.kv_bytes_per_token
        merged.start_up_lines += report.start_up_lines
        for reason, count in report.skipped.items():
            merged.skip(reason, count)
        for notice in report.notices:
            merged.notice(notice)
        merged.bad_examples += report.bad_examples[: MAX_EXAMPLES - len(merged.bad_examples)]
    return merged


def _summed(counts: Sequence[RunCounts]) -> RunCounts:
    first = counts[0]
    return RunCounts(
        block_size=first.block_size,
        coarsen=first.coarsen,
        blocks=sum(c.blocks for c in counts),
        distinct_blocks=sum(c.distinct_blocks for c in counts),
        largest_request_blocks=max(c.largest_request_blocks for c in counts),
        requests_without_output=sum(c.requests_without_output for c in counts),
        max_depth=first.max_depth,
        beyond_blocks=sum(c.beyond_blocks for c in counts),
        forgotten_blocks=sum(c.forgotten_blocks for c in counts),
    )


def _cast(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

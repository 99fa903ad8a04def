"""Read a log in a test and look at what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from kvcap.formats import ReadOptions, ReadReport, open_trace


def read_log(paths: str | Path | Sequence[str | Path], **options: Any) -> tuple[pa.Table, ReadReport]:
    """Return all requests of a log, and the account of reading it, which must add up."""
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    trace = open_trace(names, ReadOptions(**options))
    try:
        table = pa.Table.from_batches(list(trace.batches()), trace.schema)
    finally:
        trace.close()
    report = trace.report
    assert report.requests == table.num_rows
    assert table["request_id"].to_pylist() == list(range(table.num_rows))
    if options.get("max_requests") is None:
        assert report.records == report.requests + sum(report.skipped.values()) + report.bad_records
    return table, report


def id_of(name: str) -> int:
    """Return the number of an id that is a string: 64 bits of its BLAKE2b hash."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def write_log(path: Path, *lines: str) -> Path:
    """Write lines to a file and return it."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path

"""One Parquet trace from one or many logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kvcap._version import __version__
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions, ReadReport, Trace, open_trace
from kvcap.parquet_io import ParquetSink, check_new
from kvcap.schema import TraceKind

Target = Literal["parquet", "mooncake"]


@dataclass(frozen=True)
class ConvertOptions:
    """How to write a trace.

    Parameters
    ----------
    target
        ``parquet``, or ``mooncake`` for hash ids as JSON Lines.
    anonymize
        Replace ids by dense integers in order of first appearance, and drop text, names and kept columns.
    force
        Overwrite an existing output.
    """

    target: Target = "parquet"
    anonymize: bool = False
    force: bool = False


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did.

    Parameters
    ----------
    path
        The file written.
    kind
        What its requests are.
    report
        The account of the reading.
    chained
        Whether no id ever follows two different ids, so that ids are keys of whole prefixes.
    """

    path: str
    kind: TraceKind
    report: ReadReport
    chained: bool


def convert(
    inputs: Sequence[str],
    output: str,
    read_options: ReadOptions | None = None,
    options: ConvertOptions | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> ConvertResult:
    """Write one trace from one or many logs.

    Parameters
    ----------
    inputs
        Logs, as :func:`kvcap.formats.open_trace` takes them.
    output
        The file to write. It appears, or replaces the old one, only when it is complete.
    read_options
        How to read the logs.
    options
        How to write the trace.
    progress
        Called with the number of requests so far.

    Returns
    -------
    ConvertResult
        With the account of what was read and left out.

    Raises
    ------
    UsageError
        If the output exists (without ``force``), or an option does not fit these logs.
    TraceError
        If a log cannot be read.
    """
    read_options = read_options or ReadOptions()
    options = options or ConvertOptions()
    check_new(output, force=options.force)
    if options.anonymize and read_options.keep:
        raise UsageError("--anonymize drops all kept columns, expected no --keep with it")
    trace = open_trace(inputs, read_options)
    try:
        return _write_parquet(trace, output, read_options, options, progress)
    finally:
        trace.close()


def _write_parquet(
    trace: Trace,
    output: str,
    read_options: ReadOptions,
    options: ConvertOptions,
    progress: Callable[[int], None] | None,
) -> ConvertResult:
    with ParquetSink(output, trace.schema, force=options.force) as sink:
        for batch in trace.batches():
            sink.write(batch)
            if progress is not None:
                progress(trace.report.requests)
        sink.set_provenance(provenance(trace, read_options, options, chained=trace.chained))
    return ConvertResult(output, trace.kind, trace.report, trace.chained)


def provenance(
    trace: Trace, read_options: ReadOptions, options: ConvertOptions, *, chained: bool
) -> dict[str, Any]:
    """Return how a trace came about: version, sources, options, counts and notices."""
    account = asdict(trace.report)
    if options.anonymize:
        account = {name: value for name, value in account.items() if isinstance(value, int)}
    return {
        "kvcap_version": __version__,
        "chained": chained,
        "anonymized": options.anonymize,
        "read_options": {name: value for name, value in asdict(read_options).items() if name != "threads"},
        "report": account,
    }

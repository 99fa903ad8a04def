"""Read logs, check and transform their requests, write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from kvcap._version import __version__
from kvcap.convert.transform import TransformedTrace, ids_and_offsets
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions, ReadReport, Trace, open_trace
from kvcap.parquet_io import ParquetSink, check_new
from kvcap.schema import TraceKind

if TYPE_CHECKING:
    import pyarrow as pa

Target = Literal["parquet", "mooncake"]

MAX_CHECK_ENTRIES: Final = 1 << 20
"""How much may be remembered to find out whether ids are chained: 50 MB at most."""

_TEXT: Final = (
    "the log holds text, which a tokenizer turns into tokens: replay it with --tokenizer, or write its token "
    "ids with `kvcap tokenize`"
)


@dataclass(frozen=True)
class ConvertOptions:
    """How to write a trace.

    Parameters
    ----------
    target
        ``parquet``, or ``mooncake`` for hash ids as JSON Lines.
    anonymize
        Number ids (of token lists: the keys of their blocks) by first appearance, and drop text, names and
        kept columns.
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
        raise UsageError("--anonymize drops all kept columns, expected no --keep beside it")
    trace = open_trace(inputs, read_options)
    try:
        if trace.kind == "request_json":
            trace.report.notice(_TEXT)
        if options.anonymize or (options.target == "mooncake" and trace.kind == "token_ids"):
            trace = TransformedTrace(trace, read_options.block_size, anonymize=options.anonymize)
        if options.target == "mooncake":
            chained = _write_mooncake(trace, output, options, progress)
        else:
            chained = _write_parquet(trace, output, read_options, options, progress)
    finally:
        trace.close()
    return ConvertResult(output, trace.kind, trace.report, chained)


def _write_mooncake(
    trace: Trace, output: str, options: ConvertOptions, progress: Callable[[int], None] | None
) -> bool:
    from kvcap.convert.mooncake import write_mooncake

    if trace.kind == "request_json":
        raise UsageError(
            "this log holds text, expected token ids or hash ids for --to mooncake: tokenize it first"
        )
    write_mooncake(_observed(trace, progress), output, force=options.force)
    return trace.chained


def _write_parquet(
    trace: Trace,
    output: str,
    read_options: ReadOptions,
    options: ConvertOptions,
    progress: Callable[[int], None] | None,
) -> bool:
    """Write the trace, and return whether its ids are chained; encode beside reading."""
    from kvcap.kernels.chain_check import ChainCheck

    check = ChainCheck(MAX_CHECK_ENTRIES) if trace.kind == "hash_ids" and not trace.chained else None
    with ParquetSink(output, trace.schema, force=options.force) as sink, _beside(sink.write) as write:
        for batch in _observed(trace, progress):
            write(batch)
            if check is not None:
                check.add(*ids_and_offsets(batch.column("hash_ids")))
        write(None)
        chained = trace.chained if check is None else check.is_chained
        sink.set_provenance(provenance(trace, read_options, options, chained=chained))
    return chained


def _observed(trace: Trace, progress: Callable[[int], None] | None) -> Iterator[pa.RecordBatch]:
    n_requests = 0
    for batch in trace.batches():
        yield batch
        n_requests += batch.num_rows
        if progress is not None:
            progress(n_requests)


@contextmanager
def _beside(write: Callable[[pa.RecordBatch], None]) -> Iterator[Callable[[pa.RecordBatch | None], None]]:
    """Run ``write`` in a thread, one batch behind; None waits for the last one."""
    with ThreadPoolExecutor(1, thread_name_prefix="kvcap-write") as executor:
        pending: list[Future[None]] = []

        def write_beside(batch: pa.RecordBatch | None) -> None:
            if pending:
                pending.pop().result()
            if batch is not None:
                pending.append(executor.submit(write, batch))

        yield write_beside


def provenance(
    trace: Trace, read_options: ReadOptions, options: ConvertOptions, *, chained: bool
) -> dict[str, Any]:
    """Return how a trace came about: version, sources, options, counts and notices.

    Of an anonymized trace only counts are told.
    """
    account = asdict(trace.report)
    told = {name: value for name, value in asdict(read_options).items() if name != "threads"}
    if options.anonymize:
        account = {name: value for name, value in account.items() if isinstance(value, int)}
        told = {}
    return {
        "kvcap_version": __version__,
        "chained": chained,
        "anonymized": options.anonymize,
        "read_options": told,
        "report": account,
    }

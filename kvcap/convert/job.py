"""Read logs, check and transform their requests, write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kvcap._version import __version__
from kvcap.convert.options import ConvertOptions, ConvertResult
from kvcap.convert.transform import TransformedTrace, ids_and_offsets
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions, Trace, open_trace
from kvcap.parquet_io import parquet_file
from kvcap.writing import check_apart, check_new

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CHECK_ENTRIES: Final = 1 << 20
"""How much may be remembered to find out whether ids are chained: 50 MB at most."""

_TEXT: Final = (
    "the log holds text, which a tokenizer turns into tokens: replay it with --tokenizer, or write its token "
    "ids with `kvcap tokenize`"
)


def convert_logs(
    inputs: Sequence[str],
    output: str,
    read_options: ReadOptions | None,
    options: ConvertOptions | None,
    progress: Callable[[int], None] | None,
) -> ConvertResult:
    """Write one trace from one or many logs: the body of :func:`kvcap.convert.convert`."""
    read_options = read_options or ReadOptions()
    options = options or ConvertOptions()
    check_new(output, force=options.force)
    if options.anonymize and read_options.keep:
        raise UsageError("--anonymize drops all kept columns, expected no --keep beside it")
    trace = open_trace(inputs, read_options)
    check_apart(output, trace.report.sources)
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
    has_media = False
    with parquet_file(output, trace.schema, force=options.force) as sink, _beside(sink.write) as write:
        for batch in _observed(trace, progress):
            write(batch)
            media = batch.column("media_hashes")
            has_media = has_media or media.null_count < len(media)
            if check is not None:
                check.add(*ids_and_offsets(batch.column("hash_ids")))
        write(None)
        # Ids of requests with media are keys of whole prefixes only together with the media.
        chained = (trace.chained if check is None else check.is_chained) and not has_media
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

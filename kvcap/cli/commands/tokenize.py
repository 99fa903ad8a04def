"""``kvcap tokenize``: request texts to token ids."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import (
    add_force,
    add_output,
    add_quiet,
    add_reading_options,
    add_tokenizer_options,
    read_options,
    tokenize_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kvcap.tokenize.driver import TokenizedTrace

HELP: Final = "Turn logs of OpenAI requests into token ids, as the engine sees them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="logs in replay order; - is stdin")
    add_tokenizer_options(parser)
    add_reading_options(parser)
    add_output(
        parser,
        "a name in .parquet makes a trace, any other JSON lines with one array of ids each "
        "(default: JSON lines on stdout)",
    )
    add_force(parser)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Tokenize and write."""
    options, reading = tokenize_options(args), read_options(args)

    from kvcap.cli.layouts import reading_lines
    from kvcap.cli.progress import Progress
    from kvcap.cli.writer import print_parts
    from kvcap.formats import open_trace
    from kvcap.tokenize.driver import tokenize_trace

    started = time.monotonic()
    tokens = 0
    with (
        closing(open_trace(args.trace, reading)) as texts,
        closing(tokenize_trace(texts, options)) as trace,
        _writer(args.output, trace, force=args.force) as write,
        Progress(quiet=args.quiet) as progress,
    ):
        for batch in trace.batches():
            write(batch)
            tokens += len(batch.column("token_ids").values)
            progress(trace.report.requests)
    if not args.quiet:
        seconds = time.monotonic() - started
        rate = f"{tokens:,} tokens in {seconds:.1f} s ({tokens / seconds:,.0f} tokens/s)"
        print_parts([*reading_lines(trace.report), rate], sys.stderr)
    return 0


@contextmanager
def _writer(
    path: str | None, trace: TokenizedTrace, *, force: bool
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield what takes batches; a file appears when all of them are in it."""
    from kvcap.writing import check_apart

    if path is not None:
        check_apart(path, trace.report.sources)
    if path is not None and path.endswith(".parquet"):
        from kvcap.parquet_io import parquet_file

        with parquet_file(path, trace.schema, force=force) as sink:
            yield sink.write
            sink.set_provenance(trace.provenance())
        return

    import orjson

    from kvcap.cli.writer import text_output

    with text_output(path, force=force) as stream:

        def write(batch: pa.RecordBatch) -> None:
            lists = batch.column("token_ids")
            values = lists.values.to_numpy()
            offsets = lists.offsets.to_numpy().tolist()
            for begin, end in pairwise(offsets):
                stream.write(orjson.dumps(values[begin:end], option=orjson.OPT_SERIALIZE_NUMPY).decode())
                stream.write("\n")

        yield write

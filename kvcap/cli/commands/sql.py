"""``kvcap sql``: ad hoc SQL and named queries over the results of a replay."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import add_force, add_format, add_output

if TYPE_CHECKING:
    import pyarrow as pa

HELP: Final = "Ask the results of a replay in SQL, or with a named query."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "results",
        nargs="?",
        metavar="RESULTS_DIR",
        help="what `kvcap replay --out` wrote, or a directory of such days, day=YYYY-MM-DD",
    )
    parser.add_argument(
        "sql",
        nargs="?",
        metavar="SQL",
        help="over the views requests, reuse_runs, curve, trace and run, and over named queries, as in "
        "FROM tiers('640GiB, 2TiB')",
    )
    parser.add_argument("--query", metavar="NAME", help="run a named query instead")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the named query; may be given several times",
    )
    parser.add_argument("--shell", action="store_true", help="ask at a prompt, with history")
    parser.add_argument(
        "--attach",
        metavar="FILE",
        help="write tables, macros and named queries to this DuckDB file, for other clients",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the named queries with their parameters; with --query NAME, say all about that one",
    )
    parser.add_argument(
        "--unsafe",
        action="store_true",
        help="let SQL read and write files, load extensions and change settings, as DuckDB does by itself",
    )
    add_format(parser, "csv", "parquet")
    add_output(parser, "write the answer to this file (default: stdout)")
    add_force(parser)


def run(args: argparse.Namespace) -> int:
    """Run SQL and print its rows."""
    from kvcap.cli.sql_shell import FORMATS, print_queries, run_shell
    from kvcap.errors import UsageError

    if args.list:
        print_queries(args.query)
        return 0
    if args.results is None:
        raise UsageError("give a results directory, or --list")
    if sum((args.sql is not None, args.query is not None, args.shell, args.attach is not None)) != 1:
        raise UsageError("give one of SQL, --query NAME, --shell and --attach FILE")
    if args.format == "parquet" and args.output in (None, "-") and not args.shell:
        raise UsageError("--format parquet needs a file to write: -o FILE")
    if args.parameter and args.query is None:
        raise UsageError("-p goes with --query")
    if args.shell and args.format not in FORMATS:
        raise UsageError(f"--shell prints rows as {', '.join(FORMATS)}, not as {args.format}")
    parameters = dict(_parameter(text) for text in args.parameter)

    from kvcap.queries import History, is_history, open_results, write_database

    open_all = History if is_history(args.results) else open_results
    with open_all(args.results, unsafe=args.unsafe) as results:
        if args.shell:
            run_shell(results, args.format)
            return 0
        if args.attach is not None:
            if isinstance(results, History):
                raise UsageError(f"--attach takes one day, such as {args.results}/day={max(results.days)}")
            write_database(results, args.attach, force=args.force)
            return 0
        table = results.query(args.query, **parameters) if args.query else results.sql(args.sql)
    _write(table, args)
    return 0


def _parameter(text: str) -> tuple[str, str]:
    from kvcap.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"-p is {text!r}, expected NAME=VALUE")
    return name, value


def _write(table: pa.Table, args: argparse.Namespace) -> None:
    from kvcap.cli.layouts import ROWS
    from kvcap.cli.writer import text_output, write
    from kvcap.parquet_io import write_table

    if args.format == "parquet":
        write_table(table, args.output, force=args.force)
        return
    with text_output(args.output, force=args.force) as stream:
        write(ROWS, table, args.format, stream, raw=args.raw)

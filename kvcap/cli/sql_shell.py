"""The prompt of ``kvcap sql --shell``: statements end with a semicolon, commands begin with a dot."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvcap.cli.layouts import ROWS
from kvcap.cli.writer import print_parts, write
from kvcap.errors import KvcapError, UsageError

if TYPE_CHECKING:
    from kvcap.queries import History, Results

FORMATS: Final = ("table", "csv", "json")
_PROMPT: Final = "kvcap> "
_CONTINUED: Final = "  ...> "
_MAX_HISTORY: Final = 5000
_LITERAL: Final = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*")
_COLUMNS: Final = "SELECT DISTINCT column_name AS name FROM duckdb_columns() WHERE NOT internal"

HELP: Final = """\
SQL ends with a semicolon and may go on over several lines. Views: requests, reuse_runs, curve, trace, run.
Named queries are tables: FROM by_hour; FROM tiers('640GiB, 2TiB');
.queries         list the named queries
.queries NAME    what one is for, its parameters, its columns, an example
.format FORM     print rows as table, csv or json
.help            this text
.exit            leave, as Ctrl-D does"""


class SqlShell:
    """Read statements, run them, print their rows.

    On a terminal an error is printed and the next statement is read; in a pipe it ends the shell.

    Parameters
    ----------
    results
        What to ask.
    form
        How to print rows, one of ``FORMATS``.
    read_line
        Called with a prompt, returns the next line or raises EOFError, as :func:`input` does.
    interactive
        Whether a person is typing.
    """

    def __init__(
        self, results: Results | History, form: str, *, read_line: Callable[[str], str], interactive: bool
    ) -> None:
        self._results = results
        self._form = form
        self._read_line = read_line
        self._interactive = interactive

    def run(self) -> None:
        """Go on until the input ends or says ``.exit``.

        Raises
        ------
        KvcapError
            If a statement fails and nobody is there to read about it.
        """
        for text in self._statements():
            try:
                if text.startswith("."):
                    self._command(*text.split())
                else:
                    table = self._results.sql(text)
                    if table.num_columns:
                        write(ROWS, table, self._form, sys.stdout)
            except KvcapError as error:
                if not self._interactive:
                    raise
                print_parts(f"error: {error}".splitlines(), sys.stdout)

    def _statements(self) -> Iterator[str]:
        """Yield whole statements and dot commands; ``.exit`` and the end of the input end it."""
        pending = ""
        while True:
            try:
                line = self._read_line(_CONTINUED if pending else _PROMPT)
            except KeyboardInterrupt:
                print()
                pending = ""
                continue
            except EOFError:
                if pending.strip():
                    yield pending.strip()
                return
            if not pending and line.strip() in (".exit", ".quit"):
                return
            if not pending and line.startswith("."):
                yield line.strip()
                continue
            pending = f"{pending}\n{line}" if pending else line
            if not pending.strip():
                pending = ""
            elif _is_complete(pending):
                yield pending.strip()
                pending = ""

    def _command(self, name: str, *arguments: str) -> None:
        if name == ".help":
            print(HELP)
        elif name == ".queries":
            print_queries(*arguments[:1])
        elif name == ".format" and arguments and arguments[0] in FORMATS:
            self._form = arguments[0]
        else:
            raise UsageError(f"{' '.join((name, *arguments))!r} is no command, see .help")


def _is_complete(text: str) -> bool:
    """Return whether SQL ends with a semicolon that is in no string and no comment."""
    bare = _LITERAL.sub("", text).rstrip()
    return bare.endswith(";") and "'" not in bare and '"' not in bare


def print_queries(name: str | None = None) -> None:
    """Print the named queries with their parameters, or everything about one of them."""
    from kvcap.queries import list_queries, load_query

    if name is not None:
        print_parts(load_query(name).header.splitlines(), sys.stdout)
        return
    for query in list_queries():
        lines = [f"{query.name}: {query.purpose}"]
        for parameter in query.parameters:
            default = "required" if parameter.default is None else f"default {parameter.default}"
            lines.append(f"    -p {parameter.name}=...  {parameter.meaning} ({default})")
        print_parts(lines, sys.stdout)


def run_shell(results: Results | History, form: str) -> None:
    """Run a shell on standard input, with history and completion on a terminal."""
    if not sys.stdin.isatty():
        SqlShell(results, form, read_line=lambda _: input(), interactive=False).run()
        return
    print(".help for help")
    with line_editing(results, history_path()):
        SqlShell(results, form, read_line=input, interactive=True).run()
    print()


def history_path() -> Path:
    """Return where the shell keeps what was typed."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "kvcap" / "sql_history"


@contextmanager
def line_editing(results: Results | History, history: Path) -> Iterator[None]:
    """Give :func:`input` a history that outlives the shell, and completion of names.

    Without readline, as on Windows, lines are read as they come.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_MAX_HISTORY)
    words = completion_words(results)

    def complete(start: str, state: int) -> str | None:
        matching = [word for word in words if word.startswith(start)]
        return matching[state] if state < len(matching) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def completion_words(results: Results | History) -> list[str]:
    """Return the names of views and columns, and of queries where they can stand in SQL, in order."""
    from kvcap.queries import History, list_queries

    columns = results.sql(_COLUMNS)["name"].to_pylist()
    # Of many days a named query is asked day by day, and is no table.
    queries = [] if isinstance(results, History) else [query.name for query in list_queries()]
    return sorted({*columns, *results.table_names, "run", *queries})

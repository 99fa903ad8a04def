"""A replay's tables, in memory or in a directory, and SQL over them."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvcap.errors import QueryError, SchemaError, UsageError
from kvcap.queries.connection import connect_to_tables, fetched, mapped_errors, parquet_dataset
from kvcap.queries.library import defined_names, definition, load_query
from kvcap.queries.run_info import RunInfo
from kvcap.writing import recovered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import duckdb
    import pyarrow as pa

RUN_FILE: Final = "run.json"
TABLE_NAMES: Final = (
    "requests",
    "reuse_runs",
    "curve",
    "policies",
    "policy_requests",
    "explained",
    "limits",
    "restarts",
    "survival",
    "trace",
)

_HOW_TO_LEAVE: Final = {
    "policies": "replay with --policies or --engine",
    "policy_requests": "replay with --request-hits",
    **dict.fromkeys(("explained", "limits", "restarts", "survival"), "let `kvcap explain --out` make it"),
}
"""What leaves tables that not every run has."""


class Results:
    """The tables of one replay, and SQL over them.

    Views: ``requests``, ``reuse_runs``, ``curve``, ``run`` (one row with the definitions in force); and
    where they were asked for ``policies``, ``policy_requests`` and ``trace``; beside them the macros of
    ``sql/_setup.sql``, and every named query under its name. DuckDB is loaded when SQL is asked, not before.
    Close it, or use it as a context manager.

    Parameters
    ----------
    run
        What was replayed, and how.
    tables
        Arrow tables, or Parquet files, by name.
    threads
        How many threads a query may use; None takes one per core.
    unsafe
        Whether SQL may read and write files, load extensions and change settings.
    """

    def __init__(
        self,
        run: RunInfo,
        tables: Mapping[str, pa.Table | Path],
        threads: int | None = None,
        *,
        unsafe: bool = False,
    ) -> None:
        self.run = run
        self._tables: dict[str, pa.Table | Path] = {**tables, "run": run_table(run)}
        self._threads = threads
        self._unsafe = unsafe
        self._undefined = defined_names()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, where there is one."""
        if "_connection" in vars(self):
            self._connection.close()

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        tables = {
            name: parquet_dataset([table]) if isinstance(table, Path) else table
            for name, table in self._tables.items()
        }
        return connect_to_tables(tables, self._threads, unsafe=self._unsafe)

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables at hand."""
        return tuple(name for name in self._tables if name != "run")

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one of the tables, or some columns of it, as it is held or stored.

        Raises
        ------
        UsageError
            If there is no such table.
        """
        table = self._held(name)
        if isinstance(table, Path):
            import pyarrow.parquet as pq

            return pq.read_table(table, columns=columns)
        return table if columns is None else table.select(columns)

    def _held(self, name: str) -> pa.Table | Path:
        found = self._tables.get(name)
        if found is None:
            how = _HOW_TO_LEAVE.get(name)
            raise UsageError(f"this run has no table {name}{f': {how}' if how else ''}")
        return found

    def sql(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run SQL over the views and the named queries, and return its rows.

        Raises
        ------
        QueryError
            If it does not parse or run.
        """
        return self._execute(text, text, parameters)

    def query(self, name: str, **parameters: object) -> pa.Table:
        """Run a named query.

        Raises
        ------
        UsageError
            If there is no such query or parameter, one is missing, or the run lacks a table that it reads.
        QueryError
            If a value does not fit.
        """
        query = load_query(name)
        for table in query.reads:
            self._held(table)
        bound = query.bind({key: str(value) for key, value in parameters.items()})
        return self._execute(query.name, query.sql, bound)

    def _execute(self, label: str, text: str, parameters: Mapping[str, Any] | None) -> pa.Table:
        try:
            self._define_names_in(text)
            with mapped_errors(label):
                return fetched(self._connection, text, parameters, unsafe=self._unsafe)
        except QueryError as error:
            missing = re.search(r"Table with name (\w+) does not exist", str(error))
            if missing is not None and missing[1] in TABLE_NAMES:
                self._held(missing[1])
            raise

    def _define_names_in(self, text: str) -> None:
        """Create the macros and views that a text names; all of them would take longer than most answers."""
        words = re.findall(r"(\w+)(\s*\()?", text.lower())
        for name in {f"{word}(" if call else word for word, call in words} & self._undefined:
            if name not in self._undefined:
                continue
            # First of all, since its own text names it.
            self._undefined.remove(name)
            try:
                statements = definition(name)
                self._define_names_in(statements)
                with mapped_errors(name):
                    self._connection.execute(statements)
            except QueryError:
                self._undefined.add(name)
                raise


def open_results(directory: str | Path, threads: int | None = None, *, unsafe: bool = False) -> Results:
    """Open what ``kvcap replay --out`` wrote.

    Parameters
    ----------
    directory
        Where it stands.
    threads
        How many threads a query may use; None takes one per core.
    unsafe
        Whether SQL may read and write files, load extensions and change settings.

    Raises
    ------
    SchemaError
        If the directory holds no results, or not all of them.
    FileNotFoundError
        If there is no such directory.
    """
    root = recovered(directory)
    try:
        text = (root / RUN_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        if not root.exists():
            raise
        raise SchemaError(str(directory), "the results of kvcap replay", f"no {RUN_FILE}") from None
    except NotADirectoryError:
        raise SchemaError(str(directory), "a directory of results", "a file") from None
    run = RunInfo.from_json(text, str(root / RUN_FILE))
    tables = {name: root / f"{name}.parquet" for name in TABLE_NAMES}
    present = {name: path for name, path in tables.items() if path.is_file()}
    missing = [name for name in ("requests", "reuse_runs", "curve") if name not in present]
    if missing:
        raise SchemaError(str(directory), f"{missing[0]}.parquet", "no such file")
    return Results(run, present, threads, unsafe=unsafe)


def run_table(run: RunInfo) -> pa.Table:
    """Return the ``run`` view: one row with every field but those that are records of their own."""
    import pyarrow as pa

    types = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
    columns = {}
    for name, value in run.scalars().items():
        arrow_type = (
            pa.int64()
            if name in ("block_bytes", "max_capacity_blocks")
            else types.get(type(value), pa.string())
        )
        columns[name] = pa.array([value], arrow_type)
    return pa.table(columns)

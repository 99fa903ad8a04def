"""Results as one DuckDB file, for clients that know nothing of kvcap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvcap.queries.connection import connect, mapped_errors
from kvcap.queries.library import list_queries, setup_sql
from kvcap.writing import written_beside

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from kvcap.queries.results import Results

STORAGE_VERSION: Final = "v1.4.0"
"""The oldest DuckDB that kvcap works with reads the file."""


def write_database(results: Results, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write the tables, macros, views and named queries of a replay to a DuckDB file.

    The prompts of a kept trace stay out of it: they are most of its size, and no query reads them.

    Parameters
    ----------
    results
        An open replay.
    path
        The file to appear, complete.
    force
        Replace an existing file.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    QueryError
        If DuckDB cannot write it.
    """
    with written_beside(path, force=force) as beside, mapped_errors(str(path)):
        _write(results, beside)


def _write(results: Results, path: Path) -> None:
    with connect(str(path), {"storage_compatibility_version": STORAGE_VERSION}) as connection:
        names = {*results.table_names, "run"} - {"trace"}
        for name in sorted(names):
            connection.from_arrow(results.table(name)).create(name)
        connection.execute(setup_sql())
        for query in list_queries():
            if set(query.reads) <= names:
                connection.execute(query.macro_sql + query.view_sql)

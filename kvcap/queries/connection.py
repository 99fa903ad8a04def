"""Connections to DuckDB that reach the tables of a replay and nothing else, unless that is asked for."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

from kvcap.errors import QueryError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa
    from pyarrow.dataset import Dataset

_LOCKED: Final = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
}
_REFUSED: Final = re.compile(
    r"disabled (by|through) configuration|configuration has been locked|exists in the \w+ extension"
)
"""What DuckDB says of files, extensions and settings that a locked connection keeps from a statement."""
_LOGGING: Final = re.compile(r"\benable_logging\b", re.IGNORECASE)


def connect(path: str = ":memory:", config: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database; the library is loaded here, since much is asked that takes no SQL."""
    import duckdb

    return duckdb.connect(path, config=dict(config or {}))


def connect_to_tables(
    tables: Mapping[str, pa.Table | Dataset], threads: int | None = None, *, unsafe: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a connection with these tables as views.

    Statements reach nothing else: files, extensions and settings are locked. Arrow reads the tables, since a
    file that DuckDB itself may read (``allowed_paths``) is one that COPY may overwrite.

    Parameters
    ----------
    tables
        By name.
    threads
        How many threads a query may use; None takes one per core.
    unsafe
        Leave DuckDB's powers over files, extensions and settings as they are.
    """
    config = {} if threads is None else {"threads": threads}
    connection = connect(config=config if unsafe else {**config, **_LOCKED})
    for name, table in tables.items():
        connection.register(name, table)
    return connection


def parquet_dataset(
    files: Sequence[Path],
    schema: pa.Schema | None = None,
    *,
    directory_columns: pa.Schema | None = None,
    root: Path | None = None,
) -> Dataset:
    """Return Parquet files as one table that is read when it is asked; every character of a path is itself.

    Parameters
    ----------
    files
        At least one.
    schema
        Of the table, with columns that a file lacks; None for that of the first file.
    directory_columns, root
        Columns that directories below the root say, as ``day=2026-01-01``; None without any.

    Raises
    ------
    SchemaError
        If one is no Parquet.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    paths = [str(file.absolute()) for file in files]
    try:
        return ds.dataset(
            paths,
            schema,
            format="parquet",
            filesystem=LocalFileSystem(),
            partitioning=None
            if directory_columns is None
            else ds.partitioning(directory_columns, flavor="hive"),
            partition_base_dir=None if root is None else str(root.absolute()),
        )
    except pa.ArrowInvalid as error:
        raise SchemaError(str(files[0]), "a Parquet file", str(error).splitlines()[0]) from error


def fetched(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    parameters: Mapping[str, Any] | None,
    *,
    unsafe: bool = False,
) -> pa.Table:
    """Return the rows of a statement, columns of the same name numbered."""
    import duckdb
    import pyarrow as pa

    if not unsafe and _LOGGING.search(text):
        # DuckDB 1.5 refuses the file of its log as well, and does not survive it.
        raise duckdb.PermissionException("logging is disabled by configuration")
    relation = connection.sql(text, params=dict(parameters) if parameters else None)
    table = pa.table({}) if relation is None else relation.to_arrow_table()
    names: list[str] = []
    for name in table.column_names:
        numbered = (f"{name}_{i}" for i in count(1))
        names.append(next(new for new in chain([name], numbered) if new not in names))
    return table.rename_columns(names)


@contextmanager
def mapped_errors(label: str) -> Iterator[None]:
    """Turn what DuckDB raises into :class:`QueryError`, with the first line of its text."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        if _REFUSED.search(reason):
            reason += "; --unsafe (unsafe=True in Python) gives DuckDB its powers over files and settings"
        raise QueryError(label, reason) from error

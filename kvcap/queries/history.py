"""Results of many days under one root, ``ROOT/day=YYYY-MM-DD``, read as one."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvcap.errors import SchemaError
from kvcap.queries.connection import connect_to_tables, fetched, mapped_errors, parquet_dataset
from kvcap.queries.results import RUN_FILE, TABLE_NAMES, open_results, run_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from kvcap.queries.results import Results

DAY_PREFIX: Final = "day="


def day_directories(root: str | Path) -> dict[date, Path]:
    """Return the complete days under a root, ascending.

    Raises
    ------
    SchemaError
        If a directory that is named like a day is none.
    """
    days = {}
    for path in sorted(Path(root).glob(f"{DAY_PREFIX}*")):
        if (path / RUN_FILE).is_file():
            try:
                days[date.fromisoformat(path.name.removeprefix(DAY_PREFIX))] = path
            except ValueError:
                raise SchemaError(str(path), "a directory named day=YYYY-MM-DD", path.name) from None
    return days


class History:
    """The tables of many days behind one DuckDB connection.

    The views are those of :class:`~kvcap.queries.Results` with a column ``day``; ``run`` has a row per
    day. Request ids count within a day. Close it, or use it as a context manager.

    Parameters
    ----------
    root
        A directory of days.
    unsafe
        Whether SQL may read and write files, load extensions and change settings.

    Raises
    ------
    SchemaError
        If there is no day in it, or a day lacks a table.
    """

    def __init__(self, root: str | Path, *, unsafe: bool = False) -> None:
        self._root = Path(root)
        self.days = day_directories(root)
        if not self.days:
            raise SchemaError(str(root), "results by day, day=YYYY-MM-DD", "no such directory")
        import pyarrow as pa

        runs = []
        for day in self.days:
            with self.open_day(day) as results:
                runs.append(_with_day(run_table(results.run), day))
        stored = {name: self._stored(name) for name in TABLE_NAMES}
        tables = {name: table for name, table in stored.items() if table is not None}
        self._names = tuple(tables)
        run = pa.concat_tables(runs, promote_options="permissive")
        self._unsafe = unsafe
        self._connection = connect_to_tables({**tables, "run": run}, unsafe=unsafe)

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables at hand."""
        return self._names

    def open_day(self, day: date) -> Results:
        """Open the results of one day."""
        return open_results(self.days[day])

    def sql(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run SQL over the views of all days and return its rows.

        Raises
        ------
        QueryError
            If it does not parse or run.
        """
        with mapped_errors(text):
            return fetched(self._connection, text, parameters, unsafe=self._unsafe)

    def query(self, name: str, **parameters: object) -> pa.Table:
        """Run a named query for each day and return all rows, ``day`` first.

        Raises
        ------
        UsageError
            If there is no such query or parameter, or one is missing.
        QueryError
            If a value does not fit.
        """
        import pyarrow as pa

        tables = []
        for day in self.days:
            with self.open_day(day) as results:
                tables.append(_with_day(results.query(name, **parameters), day))
        return pa.concat_tables(tables, promote_options="permissive")

    def _stored(self, name: str) -> Dataset | None:
        """Return a table of all days that have it, ``day`` last, columns that a day lacks null."""
        import pyarrow as pa

        paths = [path / f"{name}.parquet" for path in self.days.values()]
        present = [path for path in paths if path.is_file()]
        if not present:
            return None
        day = pa.schema([("day", pa.date32())])
        schemas = [parquet_dataset([path]).schema for path in present]
        schema = pa.unify_schemas([*schemas, day], promote_options="permissive")
        return parquet_dataset(present, schema, directory_columns=day, root=self._root)


def is_history(root: str | Path) -> bool:
    """Tell a directory of days from the results of one replay."""
    return not (Path(root) / RUN_FILE).exists() and any(Path(root).glob(f"{DAY_PREFIX}*/{RUN_FILE}"))


def _with_day(table: pa.Table, day: date) -> pa.Table:
    import pyarrow as pa

    return table.add_column(0, pa.field("day", pa.date32()), pa.array([day] * len(table), pa.date32()))

"""Tables in memory as traces: Arrow or Polars, with token ids or hash ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import EmptyTraceError, SchemaError, UsageError
from kvcap.formats.base import ReadOptions, ReadReport
from kvcap.schema import trace_kind, trace_schema

if TYPE_CHECKING:
    import polars as pl

TABLE_NAME: Final = "table"
_BATCH_ROWS: Final = 1 << 14


class TableTrace:
    """A table in memory; see :class:`kvcap.formats.base.Trace`.

    Parameters
    ----------
    table
        With ``token_ids``, or with ``hash_ids`` and ``input_length``; other columns of a trace are
        optional, and null where they are absent.
    options
        ``pool``, ``keep``, ``block_size`` and ``max_requests`` are heeded.

    Raises
    ------
    SchemaError
        If columns are missing, or cannot be what a trace needs.
    UsageError
        If an option names a column that is not there.
    """

    chained = False

    def __init__(self, table: pa.Table | pl.DataFrame, options: ReadOptions) -> None:
        arrow = table if isinstance(table, pa.Table) else table.to_arrow()
        kind = trace_kind(arrow.schema)
        if kind is None:
            found = f"columns {', '.join(arrow.column_names)}"
            raise SchemaError(TABLE_NAME, "one column of token_ids, hash_ids or request_json", found)
        for column in (*options.keep, *([options.pool] if options.pool else [])):
            if column not in arrow.column_names:
                raise UsageError(f"the table has no column {column}")
        if kind == "hash_ids" and "input_length" not in arrow.column_names:
            raise SchemaError(TABLE_NAME, "a column input_length beside hash_ids", "none")
        self.kind = kind
        self.schema = trace_schema(kind, tuple(arrow.schema.field(name) for name in options.keep))
        self.report = ReadReport(TABLE_NAME, (TABLE_NAME,))
        self._table = arrow.slice(0, options.max_requests)
        self._options = options

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in the table's order."""
        if self._table.num_rows == 0:
            raise EmptyTraceError(TABLE_NAME, "has no rows")
        columns = [self._column(field) for field in self.schema]
        trace = pa.Table.from_arrays(columns, schema=self.schema).combine_chunks()
        for batch in trace.to_batches(max_chunksize=_BATCH_ROWS):
            self.report.records += batch.num_rows
            self.report.requests += batch.num_rows
            yield batch

    def close(self) -> None:
        """Release nothing: the table is the caller's."""

    def _column(self, field: pa.Field) -> Any:
        table, n_rows = self._table, self._table.num_rows
        if field.name == "request_id":
            return pa.array(np.arange(n_rows))
        if field.name == "pool":
            wanted = self._options.pool
            return pa.nulls(n_rows, field.type) if wanted is None else table[wanted].cast(pa.string())
        if field.name == "input_length" and self.kind == "token_ids":
            return pc.list_value_length(table["token_ids"]).cast(field.type)
        if field.name == "block_size" and field.name not in table.column_names:
            return pa.array([self._options.block_size] * n_rows, field.type)
        if field.name not in table.column_names:
            return pa.nulls(n_rows, field.type)
        column = table[field.name]
        try:
            cast = column.cast(field.type)
        except pa.ArrowException as error:
            raise SchemaError(
                TABLE_NAME, f"{field.name} as {field.type}", f"{column.type} ({error})"
            ) from error
        if not field.nullable and cast.null_count:
            raise SchemaError(TABLE_NAME, f"{field.name} without nulls", f"{cast.null_count} nulls")
        return cast

"""Whether the rows of a stored trace are what kvcap writes: its schema alone does not say so."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.errors import SchemaError
from kvcap.schema import EARLIEST_US, LATEST_US, TraceKind

_COUNTS: Final = (
    "input_length",
    "output_length",
    "observed_cached_tokens",
    "queue_us",
    "ttft_us",
    "duration_us",
)
_TOKEN_COUNTS: Final = ("input_length", "output_length")


def check_stored(batch: pa.RecordBatch, kind: TraceKind, name: str, max_request_tokens: int) -> None:
    """Look through rows of a trace.

    Parameters
    ----------
    batch
        Rows with ``request_id``, of the schema of a trace.
    kind
        What its payload is.
    name
        The file, as the user named it.
    max_request_tokens
        The most tokens, or ids, that one request may have.

    Raises
    ------
    SchemaError
        If a value is none that kvcap writes; names file, request and column.
    """
    for column in _COUNTS:
        most = max_request_tokens if column in _TOKEN_COUNTS else None
        _check_range(batch, column, 0, most, name)
    _check_range(batch, "block_size", 1, 2**31 - 1, name)
    _check_range(batch, "timestamp", EARLIEST_US, LATEST_US, name)
    if kind == "request_json":
        return
    _check_there(batch, "input_length", name)
    _check_there(batch, kind, name)
    ids = batch.column(kind)
    if ids.flatten().null_count:
        _refuse_where(batch, _lists_with_nulls(ids), kind, "a null inside", "ids alone", name)
    lengths = pc.list_value_length(ids).to_numpy(zero_copy_only=False)
    expected = f"at most {max_request_tokens:,} (--max-request-tokens)"
    _refuse_where(batch, lengths > max_request_tokens, kind, "more ids", expected, name)
    if kind == "hash_ids":
        _check_weights(batch, lengths, name)


def check_pools(batch: pa.RecordBatch, named: bool | None, name: str) -> bool:
    """Return whether requests name their pools: all do or none, those before (``named``) included.

    Raises
    ------
    SchemaError
        If some do and some do not.
    """
    there = batch.column("pool").is_valid().to_numpy(zero_copy_only=False)
    expected = bool(there[0]) if named is None else named
    found = "null" if expected else "a name"
    _refuse_where(batch, there != expected, "pool", found, "a name in every request or in none,", name)
    return expected


def _check_weights(batch: pa.RecordBatch, lengths: np.ndarray, name: str) -> None:
    weights = batch.column("block_tokens")
    if weights.null_count == len(weights):
        return
    there = weights.is_valid().to_numpy(zero_copy_only=False)
    counts = pc.list_value_length(weights).fill_null(0).to_numpy(zero_copy_only=False)
    _refuse_where(
        batch, there & (counts != lengths), "block_tokens", "another number", "one per id of hash_ids", name
    )
    values = weights.flatten()
    if values.null_count or (len(values) and pc.min(values).as_py() < 1):
        small = pc.fill_null(pc.less(values, 1), True).to_numpy(zero_copy_only=False)
        owner = np.repeat(np.flatnonzero(there), counts[there])
        wrong = np.zeros(batch.num_rows, np.bool_)
        wrong[owner[small]] = True
        _refuse_where(batch, wrong, "block_tokens", "a value below 1 or null", "integers from 1", name)


def _check_range(batch: pa.RecordBatch, column: str, least: int, most: int | None, name: str) -> None:
    values = batch.column(column)
    if values.null_count == len(values):
        return
    numbers = values.cast(pa.int64())
    extremes = pc.min_max(numbers)
    if extremes["min"].as_py() >= least and (most is None or extremes["max"].as_py() <= most):
        return
    wrong = pc.less(numbers, least)
    if most is not None:
        wrong = pc.or_(wrong, pc.greater(numbers, most))
    row = int(np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))[0])
    upper = "" if most is None else f" to {most:,}"
    more = " (--max-request-tokens)" if column in _TOKEN_COUNTS else ""
    raise SchemaError(
        name,
        f"{column} from {least:,}{upper}{more} in request {_id(batch, row)}",
        f"{numbers[row].as_py():,}",
    )


def _check_there(batch: pa.RecordBatch, column: str, name: str) -> None:
    if batch.column(column).null_count:
        missing = batch.column(column).is_null().to_numpy(zero_copy_only=False)
        _refuse_where(batch, missing, column, "null", "a value", name)


def _refuse_where(
    batch: pa.RecordBatch, wrong: np.ndarray, column: str, found: str, expected: str, name: str
) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        request = f"request {_id(batch, int(rows[0]))}"
        raise SchemaError(name, f"{expected} in {column} of {request}", found)


def _lists_with_nulls(lists: pa.ListArray) -> np.ndarray:
    return np.array([value.is_valid and value.values.null_count > 0 for value in lists])


def _id(batch: pa.RecordBatch, row: int) -> int:
    return int(batch.column("request_id")[row].as_py())

"""Columns of a trace: the scalars that the user keeps, with their types, and lists of ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from kvcap.errors import UsageError
from kvcap.formats.rows import INT64_MAX, INT64_MIN, FieldError, Ids, show
from kvcap.schema import PAYLOAD_COLUMNS, REQUEST_COLUMNS

_RESERVED = {field.name for field in REQUEST_COLUMNS} | {
    field.name for fields in PAYLOAD_COLUMNS.values() for field in fields
}


@dataclass(frozen=True)
class KeptColumn:
    """A kept column: its name in the log, and its field in the trace."""

    name: str
    field: pa.Field

    def convert(self, value: Any) -> Any:
        """Return a value as the column's type holds it.

        Raises
        ------
        FieldError
            If it does not fit the type that the first records have.
        """
        kind = self.field.type
        if value is None:
            return None
        if kind == pa.string():
            return value if type(value) is str else orjson.dumps(value, default=str).decode().strip('"')
        if type(value) is bool and kind == pa.bool_():
            return value
        if type(value) is int and kind == pa.int64() and INT64_MIN <= value <= INT64_MAX:
            return value
        if type(value) in (int, float) and kind == pa.float64():
            return float(value)
        raise FieldError(self.name, f"is {show(value)}, expected {kind} as in the first records")


def kept_columns(
    names: Sequence[str], rows: Iterable[Sequence[Any]], path: str, option: str = "--keep"
) -> list[KeptColumn]:
    """Return the columns that ``option`` names, typed by the first records.

    A column of booleans, integers or numbers keeps its type; any other is text, lists and objects as JSON.

    Raises
    ------
    UsageError
        If the first records have no such column, or it is named twice.
    """
    columns = list(zip(*rows, strict=True))
    kept: list[KeptColumn] = []
    for index, name in enumerate(names):
        present = [value for value in columns[index] if value is not None] if columns else []
        if not present:
            raise UsageError(f"{option} {name}: the first records of {path} have no such column")
        if name in names[:index]:
            raise UsageError(f"{option} {name} is given twice")
        # A column of the trace itself comes along under its own name.
        target = f"source_{name}" if name in _RESERVED else name
        kept.append(KeptColumn(name, pa.field(target, _type_of(present))))
    return kept


def _type_of(values: list[Any]) -> pa.DataType:
    types = set(map(type, values))
    if types == {bool}:
        return pa.bool_()
    if types == {int} and all(INT64_MIN <= value <= INT64_MAX for value in values):
        return pa.int64()
    if types <= {int, float}:
        return pa.float64()
    return pa.string()


def list_array(parts: Sequence[Ids | None], type_: pa.ListType) -> Any:
    """Return a list array of integers, or of nulls."""
    present = [part for part in parts if part is not None]
    if not present:
        return pa.nulls(len(parts), type_)
    offsets = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([0 if part is None else part.values.size for part in parts], out=offsets[1:])
    values = np.concatenate(_stretches(present)).astype(np.dtype(str(type_.value_type)), copy=False)
    mask = None if len(present) == len(parts) else pa.array([part is None for part in parts])
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=type_, mask=mask)


def _stretches(parts: Sequence[Ids]) -> list[NDArray[np.uint64]]:
    """Return the values of parts, those that stand side by side in one array in one piece.

    Copying takes and frees the interpreter lock for each piece, for which other threads are waiting.
    """
    pieces: list[NDArray[np.uint64]] = []
    array: NDArray[Any] | None = None
    begin, end = 0, None
    for part in parts:
        base = part.values.base
        if base is not None and base is array and part.begin is not None and part.begin == end:
            end += part.values.size
            # What they are a view of may hold signed integers.
            pieces[-1] = base[begin:end].view(np.uint64)
            continue
        pieces.append(part.values)
        array, end = base, None
        if part.begin is not None:
            begin, end = part.begin, part.begin + part.values.size
    return pieces

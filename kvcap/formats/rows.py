"""One request on its way from a record of some log to the columns of a trace.

A dialect turns a record into :class:`Row` objects with the helpers here, which say what is wrong with a
field by raising :class:`FieldError`; whoever knows the file and the line makes a
:class:`~kvcap.errors.RecordError` of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from kvcap.kernels.json_flags import ABOVE_INT64, ABOVE_UINT32, NEGATIVE

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1
INT64_MIN: Final = -(2**63)
_SHOWN: Final = 40
_WHOLE: Final = re.compile(r"([0-9]{1,20})(?:\.0*)?")


class FieldError(Exception):
    """A field of a record is wrong: its name (empty for the whole record) and what was expected."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}".strip())
        self.field = field
        self.reason = reason


def number_of_name(name: str) -> int:
    """Return 64 bits of a hash of an id's text, the same in every log."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


@dataclass(slots=True)
class Ids:
    """Integers of 64 bits, as uint64, with the flags of :mod:`kvcap.kernels.json_arrays`.

    ``begin`` is where they begin in the array that they are a view of, None where that is not known.
    """

    values: NDArray[np.uint64]
    flags: int = 0
    begin: int | None = None

    @classmethod
    def empty(cls) -> Ids:
        """Return no integers."""
        return cls(np.empty(0, dtype=np.uint64))


@dataclass(slots=True)
class Row:
    """One request, as its record says it.

    Attributes
    ----------
    ids
        Block ids or token ids; block ids may be strings.
    timestamp
        A number, a string, or None, as the log has it.
    text
        The request's JSON, for logs of text.
    extra
        What the dialect's own sequencing needs (a session, a parent).
    record
        Where kept columns and the pool are looked up.
    identity
        What besides model and tokens must agree for two prefixes to be the same, by its name.
    namespace
        All of that as one text, where the record has it; empty for nothing.
    media, media_offsets
        Digests of what is no text, and the tokens at which each stands (None: unknown).
    kv_bytes_per_token
        Bytes of one token's keys and values, where the record itself says them.
    observed_cached_tokens, instance, queue_us, ttft_us, duration_us
        What the cache did, who served, and when; see :data:`kvcap.schema.LOGGED_COLUMNS`.
    remarks
        What the user should hear of, counted over all requests: "requests hold ...".
    request_id
        What the log calls the request, where it does.
    kept
        Values of the kept columns, of the fields that the user named and, last, of the pool.
    """

    ids: Ids | list[str] | None = None
    timestamp: Any = None
    session: str | None = None
    model: str | None = None
    input_length: int | None = None
    output_length: int | None = None
    block_size: int | None = None
    block_tokens: Ids | None = None
    output_ids: Ids | None = None
    text: str | None = None
    extra: Any = None
    record: Any = None
    identity: dict[str, str] | None = None
    namespace: str | None = None
    media: Sequence[int] | None = None
    media_offsets: Sequence[int] | None = None
    kv_bytes_per_token: Fraction | None = None
    observed_cached_tokens: int | None = None
    instance: str | None = None
    queue_us: int | None = None
    ttft_us: int | None = None
    duration_us: int | None = None
    request_id: str | None = None
    line: int = 0
    remarks: tuple[str, ...] = ()
    kept: Sequence[Any] = ()


@dataclass(slots=True)
class Skip:
    """A record that is left out on purpose; ``start_up`` is a line of an engine's start."""

    reason: str
    line: int = 0
    start_up: str | None = None


class Values:
    """Read the lists of one record; lists that the fast path has cut out come from its arrays."""

    __slots__ = ()

    def integers(self, value: Any, field: str) -> Ids:
        """Return a list of integers of 64 bits, signed or unsigned."""
        if type(value) is str and is_list(value):
            return PLAIN_VALUES.integers(_list_in_text(value, field), field)
        if type(value) is not list:
            raise FieldError(field, f"is {show(value)}, expected a list of integers")
        if value and set(map(type, value)) != {int}:
            index = next(i for i, item in enumerate(value) if type(item) is not int)
            raise FieldError(
                f"{field}[{index}]", f"is {show(value[index])}, expected an integer of at most 64 bits"
            )
        return _from_python(value)

    def ids(self, value: Any, field: str) -> Ids | list[str]:
        """Return block ids: integers of 64 bits, or strings."""
        if type(value) is str and is_list(value):
            return PLAIN_VALUES.ids(_list_in_text(value, field), field)
        if type(value) is list and value and type(value[0]) is str:
            for index, item in enumerate(value):
                if type(item) is not str:
                    raise FieldError(f"{field}[{index}]", f"is {show(item)}, expected a string as before it")
            return value
        return self.integers(value, field)

    def tokens(self, value: Any, field: str) -> Ids:
        """Return token ids: integers from 0 to 2**32 - 1."""
        ids = self.integers(value, field)
        if ids.flags:
            signed = ids.values.view(np.int64)
            index = int(np.flatnonzero((signed < 0) | (signed > 2**32 - 1))[0])
            number = int(signed[index] if ids.flags & NEGATIVE else ids.values[index])
            raise FieldError(f"{field}[{index}]", f"is {number}, expected a token id from 0 to {2**32 - 1}")
        return ids

    def weights(self, value: Any, field: str, count: int) -> Ids:
        """Return tokens per block: ``count`` integers from 1 to 2**31 - 1."""
        ids = self.integers(value, field)
        if ids.values.size != count:
            raise FieldError(field, f"has {ids.values.size} entries, expected one per block id ({count})")
        wrong = np.flatnonzero((ids.values < 1) | (ids.values > 2**31 - 1))
        if wrong.size:
            index = int(wrong[0])
            found = int(ids.values.view(np.int64)[index])
            raise FieldError(f"{field}[{index}]", f"is {found}, expected an integer from 1 to {2**31 - 1}")
        return ids


class CutValues(Values):
    """Values of a record in which ``[k]`` stands for array k of those cut out."""

    __slots__ = ("_flags", "_offsets", "_values")

    def __init__(self, values: NDArray[np.uint64], offsets: list[int], flags: list[int]) -> None:
        self._values = values
        self._offsets = offsets
        self._flags = flags

    def integers(self, value: Any, field: str) -> Ids:
        """Return a list of integers of 64 bits, signed or unsigned."""
        if type(value) is list and len(value) == 1 and type(value[0]) is int:
            k = value[0]
            begin = self._offsets[k]
            return Ids(self._values[begin : self._offsets[k + 1]], self._flags[k], begin)
        return Values.integers(self, value, field)


PLAIN_VALUES: Final = Values()


def _list_in_text(text: str, field: str) -> list[Any]:
    """Return a list that a table holds as JSON text."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FieldError(field, f"is {show(text)}, expected a list ({error.msg})") from None
    return value  # type: ignore[no-any-return]


def is_list(value: Any) -> bool:
    """Return whether a field holds a list, or one as JSON text, as tables do."""
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip()[:1] == "[")


def integer_flags(values: NDArray[np.integer[Any]]) -> int:
    """Return the flags of an array of integers."""
    if values.size == 0:
        return 0
    return _flags(int(values.min()), int(values.max()))


def _flags(least: int, most: int) -> int:
    flags = NEGATIVE if least < 0 else 0
    if most > INT64_MAX:
        return flags | ABOVE_INT64 | ABOVE_UINT32
    return flags | (ABOVE_UINT32 if most > 2**32 - 1 else 0)


def _from_python(value: list[int]) -> Ids:
    if not value:
        return Ids.empty()
    least, most = min(value), max(value)
    flags = _flags(least, most)
    if least < 0 and most > INT64_MAX:
        return Ids(np.array([item & UINT64_MAX for item in value], dtype=np.uint64), flags)
    if least < 0:
        return Ids(np.array(value, dtype=np.int64).view(np.uint64), flags)
    return Ids(np.array(value, dtype=np.uint64), flags)


def usual_weights(count: int, input_length: int, block_size: int) -> Ids:
    """Return the tokens of each block of a request: all full, the last one with what is left, at least 1."""
    left = input_length - block_size * np.arange(count, dtype=np.int64)
    return Ids(np.clip(left, 1, block_size).astype(np.uint64))


def show(value: Any) -> str:
    """Return a value for a message: JSON-like and short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def optional_count(record: Mapping[str, Any], field: str) -> int | None:
    """Return an integer from 0 to 2**63 - 1, or None where the field is absent or null."""
    value = record.get(field)
    whole = whole_number(value)
    if value is None:
        return None
    if whole is None or not 0 <= whole <= INT64_MAX:
        raise FieldError(field, f"is {show(value)}, expected an integer from 0")
    return whole


def whole_number(value: Any) -> int | None:
    """Return an integer, also one that a table wrote as ``1024.0`` or as text, or None for anything else."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and (match := _WHOLE.fullmatch(value)) is not None:
        return int(match[1])
    return None


def required_count(record: Mapping[str, Any], field: str) -> int:
    """Return an integer from 0 to 2**63 - 1."""
    value = optional_count(record, field)
    if value is None:
        raise FieldError(field, "is missing, expected an integer from 0")
    return value


def optional_size(record: Mapping[str, Any], field: str) -> int | None:
    """Return an integer from 1 to 2**31 - 1, or None where the field is absent or null."""
    value = record.get(field)
    whole = whole_number(value)
    if value is None:
        return None
    if whole is None or not 1 <= whole <= 2**31 - 1:
        raise FieldError(field, f"is {show(value)}, expected an integer from 1")
    return whole


def optional_text(record: Mapping[str, Any], *fields: str) -> str | None:
    """Return the first of some names or numbers that is there, as text."""
    for field in fields:
        value = record.get(field)
        if value is not None:
            if type(value) is str:
                return value
            if type(value) is int:
                return str(value)
            raise FieldError(field, f"is {show(value)}, expected a string")
    return None


def optional_number(record: Mapping[str, Any], field: str) -> int | float | None:
    """Return a finite number from 0, or None where the field is absent or null."""
    value = record.get(field)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise FieldError(field, f"is {show(value)}, expected a number from 0")
    return value  # type: ignore[no-any-return]


def an_object(record: Any, what: str) -> dict[str, Any]:
    """Return a record that must be an object."""
    if type(record) is not dict:
        raise FieldError("", f"is {show(record)}, expected an object with {what}")
    return record


def inner_object(record: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return a field that must be an object."""
    value = record.get(field)
    if type(value) is not dict:
        found = show(value) if field in record else "missing"
        raise FieldError(field, f"is {found}, expected an object")
    return value


def inner_list(record: Mapping[str, Any], field: str) -> list[Any]:
    """Return a field that must be a list of values that are not all integers."""
    value = record.get(field)
    if type(value) is not list:
        found = show(value) if field in record else "missing"
        raise FieldError(field, f"is {found}, expected a list")
    return value


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Put a path before the name of a field that turns out to be wrong."""
    try:
        yield
    except FieldError as error:
        parts = [part for part in (path, error.field) if part]
        raise FieldError(".".join(parts), error.reason) from None


def required(record: Mapping[str, Any], field: str, expected: str) -> Any:
    """Return a field that must be there."""
    value = record.get(field)
    if value is None:
        raise FieldError(field, f"is {'null' if field in record else 'missing'}, expected {expected}")
    return value

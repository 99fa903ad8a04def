"""Columns that the user names: where a log of any shape says when, who, and what its cache did.

``--cached-field usage.cached`` and its like give the path of a field. What it holds goes into the column of
the trace that it stands for, in place of what the reader of the log's kind makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, get_args

from kvcap.errors import UsageError
from kvcap.formats.options import FieldOptions, TimestampUnit
from kvcap.formats.rows import INT64_MAX, FieldError, Row, show, whole_number

_DURATIONS: Final = ("queue", "ttft", "duration")
_US_PER_UNIT: Final[dict[TimestampUnit, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_UNIT_IN_NAME: Final = re.compile(
    r"(?:^|[^a-z])(?:(s|secs?|seconds)|(ms|msecs?|millis|milliseconds)|(us|micros|microseconds)|(ns|nanos|nanoseconds))$"
)
_SHORTEST_IN_MS: Final = 1000.0
"""From here on a duration of a request is no number of seconds."""


class NamedFields:
    """Put what the named fields hold into rows.

    Parameters
    ----------
    options
        What the user named.
    """

    def __init__(self, options: FieldOptions) -> None:
        self._setters = {name: _SETTERS[name] for name in _SETTERS if getattr(options, name) is not None}
        self.paths: tuple[str, ...] = tuple(getattr(options, name) for name in self._setters)
        self._units: dict[str, TimestampUnit] = {}
        self._given_unit = options.duration_unit

    def prepare(self, values: Iterable[Sequence[Any]], path: str) -> list[str]:
        """Look at the first records' values, one per path, and return what was made of their units.

        Raises
        ------
        UsageError
            If the first records have no such field.
        """
        columns = list(zip(*values, strict=True))
        notices = []
        for index, (name, field) in enumerate(zip(self._setters, self.paths, strict=True)):
            present = [value for value in columns[index] if value is not None] if columns else []
            if not present:
                raise UsageError(
                    f"--{name}-field {field}: the first records of {path} have no such field; give the path "
                    "of one that they have"
                )
            if name in _DURATIONS:
                unit = self._given_unit or _unit_of(field, present)
                self._units[name] = unit
                if self._given_unit is None:
                    notices.append(f"{field} is read in {unit} (--duration-unit says it otherwise)")
        return notices

    def apply(self, row: Row, values: Sequence[Any]) -> None:
        """Put the values of the named fields, one per path, into a row.

        Raises
        ------
        FieldError
            If one is not what its column holds.
        """
        for (name, setter), field, value in zip(self._setters.items(), self.paths, values, strict=True):
            if value is not None:
                setter(row, field, value, self._units.get(name, "s"))


def _unit_of(field: str, values: Sequence[Any]) -> TimestampUnit:
    """Return the unit that a duration's name ends in, else the one that its size and kind suggest."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field).lower()
    found = _UNIT_IN_NAME.search(snake)
    if found is not None:
        return get_args(TimestampUnit)[found.lastindex - 1]  # type: ignore[operator,no-any-return]
    numbers = [value for value in values if type(value) in (int, float)]
    return "s" if max(numbers, default=0) < _SHORTEST_IN_MS else "ms"


def _text(column: str) -> Callable[[Row, str, Any, TimestampUnit], None]:
    def put(row: Row, field: str, value: Any, unit: TimestampUnit) -> None:
        if type(value) not in (str, int):
            raise FieldError(field, f"is {show(value)}, expected a string")
        setattr(row, column, str(value))

    return put


def _count(column: str) -> Callable[[Row, str, Any, TimestampUnit], None]:
    def put(row: Row, field: str, value: Any, unit: TimestampUnit) -> None:
        whole = whole_number(value)
        if whole is None or not 0 <= whole <= INT64_MAX:
            raise FieldError(field, f"is {show(value)}, expected an integer from 0")
        setattr(row, column, whole)

    return put


def _duration(column: str) -> Callable[[Row, str, Any, TimestampUnit], None]:
    def put(row: Row, field: str, value: Any, unit: TimestampUnit) -> None:
        if type(value) not in (int, float) or not 0 <= value * _US_PER_UNIT[unit] <= INT64_MAX:
            raise FieldError(field, f"is {show(value)}, expected a duration from 0")
        setattr(row, column, round(value * _US_PER_UNIT[unit]))

    return put


def _time(row: Row, field: str, value: Any, unit: TimestampUnit) -> None:
    row.timestamp = value


_SETTERS: Final[dict[str, Callable[[Row, str, Any, TimestampUnit], None]]] = {
    "session": _text("session"),
    "time": _time,
    "model": _text("model"),
    "output": _count("output_length"),
    "cached": _count("observed_cached_tokens"),
    "instance": _text("instance"),
    "queue": _duration("queue_us"),
    "ttft": _duration("ttft_us"),
    "duration": _duration("duration_us"),
}

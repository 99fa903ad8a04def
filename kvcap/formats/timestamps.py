"""Timestamps as logs write them, to whole microseconds.

Numbers, numbers in strings, and ISO 8601 dates, with or without a zone (without one they are UTC). The unit
of numbers is what the user says, else what their size says (only an epoch is as large as one), else
what the dialect's own documentation says. Integers and decimal strings are exact; floats are rounded to
the nearest microsecond.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final

from kvcap.formats.options import TimestampUnit
from kvcap.formats.rows import FieldError, show
from kvcap.schema import EARLIEST_US, LATEST_US

_EXPECTED: Final = "expected a number or an ISO 8601 date"
_PER_UNIT: Final[dict[TimestampUnit, int]] = {"s": 1_000_000, "ms": 1000, "us": 1}
# 1973 in one unit is decades off in the next one, so relative times never reach these by accident.
_EPOCH_FROM: Final[tuple[tuple[float, TimestampUnit], ...]] = (
    (1e17, "ns"),
    (1e14, "us"),
    (1e11, "ms"),
    (1e8, "s"),
)
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*"
    r"(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?\Z"
)
_MAX_DIGITS: Final = 30
_FIRST_YEAR: Final = 2000
_HALF_A_YEAR: Final = 6 * 31
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def number_of(value: Any) -> int | float | Decimal | None:
    """Return a timestamp's number, or None if it is absent or a date."""
    if value is None or type(value) is int or type(value) is float:
        return value
    if type(value) is str:
        try:
            number = Decimal(value.strip())
        except InvalidOperation:
            return None
        # Larger ones are no times, and have integers of up to a billion digits.
        return number if number.is_finite() and number.adjusted() < _MAX_DIGITS else None
    return None


def detect_unit(values: Iterable[Any]) -> TimestampUnit | None:
    """Return the unit that the largest of some numbers shows, or None if they are not since 1970."""
    largest = max((abs(float(n)) for n in map(number_of, values) if n is not None), default=0.0)
    for least, unit in _EPOCH_FROM:
        if largest >= least:
            return unit
    return None


def to_microseconds(value: Any, unit: TimestampUnit, field: str = "timestamp") -> int:
    """Return a timestamp in whole microseconds.

    Raises
    ------
    FieldError
        If it is neither a finite number nor a date, or not in the years 1 to 9999.
    """
    if isinstance(value, datetime):
        return (value.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)
    number = number_of(value)
    if number is None:
        return _from_date(value, field)
    if type(number) is float and not math.isfinite(number):
        raise FieldError(field, f"is {number}, {_EXPECTED}")
    if type(number) is int and unit != "ns":
        microseconds = number * _PER_UNIT[unit]
    elif type(number) is float:
        microseconds = round(number / 1000 if unit == "ns" else number * _PER_UNIT[unit])
    else:
        with localcontext() as context:
            context.prec = 50
            exact = Decimal(number)
            microseconds = round(exact / 1000 if unit == "ns" else exact * _PER_UNIT[unit])
    if not EARLIEST_US <= microseconds <= LATEST_US:
        raise FieldError(field, f"is {show(value)}, expected a time in the years 1 to 9999")
    return microseconds


def _from_date(value: Any, field: str) -> int:
    match = _ISO.match(value.strip()) if type(value) is str else None
    if match is None:
        raise FieldError(field, f"is {show(value)}, {_EXPECTED}")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        date = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=timezone.utc,
        )
    except ValueError as error:
        raise FieldError(field, f"is {show(value)} ({error}), {_EXPECTED}") from None
    microseconds = (date - _EPOCH) // timedelta(microseconds=1)
    if fraction:
        microseconds += round(int(fraction) * 10 ** (6 - len(fraction)))
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = 60 * (60 * int(digits[:2]) + int(digits[2:])) * 1_000_000
        microseconds += offset if zone[0] == "-" else -offset
    return microseconds


class YearSteps:
    """The year of dates that lack it: the next one where the months begin anew.

    Dates begin with ``2000-``. A line of the old year that comes late, after New Year, stays in it.
    """

    def __init__(self, year: int = _FIRST_YEAR, latest: int | None = None) -> None:
        self._year = year
        self._latest = latest

    def copy(self) -> YearSteps:
        """Return the same, to go on from here apart."""
        return YearSteps(self._year, self._latest)

    def dated(self, text: str) -> str:
        """Return a date in its year."""
        day = 31 * int(text[5:7]) + int(text[8:10])
        year = self._year
        if self._latest is not None and day < self._latest - _HALF_A_YEAR:
            self._year = year = year + 1
        elif self._latest is not None and day > self._latest + _HALF_A_YEAR and year > _FIRST_YEAR:
            return f"{year - 1}{text[4:]}"
        self._latest = day
        # 2000 is a leap year; where a later one turns out to be, its day is taken for the one after it.
        rest = f"-03-01{text[10:]}" if year % 4 and text[5:10] == "02-29" else text[4:]
        return f"{year}{rest}"

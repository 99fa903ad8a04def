"""Sizes as people write them, and exact shares.

Decimal prefixes (``GB``) are powers of 1000 and binary ones (``GiB``) powers of 1024. Everything is
exact: sizes are integers or :class:`fractions.Fraction`, never floats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, Literal, Protocol

from kvcap.errors import UsageError

_BYTE_UNITS: Final = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", 1)},
}
_COUNT_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_SIZE: Final = re.compile(r"\s*(?P<number>[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)\s*(?P<unit>[A-Za-z]+)\s*\Z")
_COUNT: Final = re.compile(r"(?P<prefix>[kmgbt]?)(?P<what>blocks?|tokens?)\Z")

CapacityUnit = Literal["bytes", "blocks", "tokens"]


class HasBlockBytes(Protocol):
    """What knows the bytes of a block, or that it does not."""

    @property
    def block_bytes(self) -> int | None:
        """Bytes of a full block; None when unknown."""
        ...


@dataclass(frozen=True)
class Capacity:
    """A capacity as the user wrote it.

    Parameters
    ----------
    amount
        How many of ``unit``, exact.
    unit
        ``bytes``, ``blocks`` or ``tokens``.
    """

    amount: Fraction
    unit: CapacityUnit

    def in_blocks(self, what: str, block_size: int, block_bytes: int | None) -> int:
        """Return how many whole blocks fit.

        Raises
        ------
        UsageError
            If it is in bytes and ``block_bytes`` is unknown; ``what`` names it in the message.
        """
        if self.unit == "blocks":
            return int(self.amount)
        if self.unit == "tokens":
            return int(self.amount / block_size)
        if block_bytes is None:
            raise UsageError(
                f"{what} in bytes needs --kv-bytes-per-token or --model; without it give blocks or tokens, "
                "such as 5000blocks or 2.5Mtokens"
            )
        return int(self.amount / block_bytes)


def parse_number(text: str, what: str) -> Fraction:
    """Return a positive decimal number exactly.

    Raises
    ------
    UsageError
        If ``text`` is not a finite decimal number above 0; ``what`` names it in the message.
    """
    try:
        number = Decimal(text.strip().replace("_", ""))
    except InvalidOperation:
        raise UsageError(f"{what} is {text!r}, expected a number above 0") from None
    if not number.is_finite() or number <= 0:
        raise UsageError(f"{what} is {text!r}, expected a number above 0")
    return Fraction(number)


def parse_percent(text: str, what: str, *, zero_allowed: bool) -> Fraction:
    """Return a share of 1 from a percentage such as ``99``, ``99.5`` or ``20%``.

    Raises
    ------
    UsageError
        If it is not a number from 0 to 100 (0 itself only when ``zero_allowed``).
    """
    expected = f"expected a percentage {'from 0' if zero_allowed else 'above 0'} to 100"
    try:
        number = Decimal(text.strip().removesuffix("%").rstrip())
    except InvalidOperation:
        raise UsageError(f"{what} is {text!r}, {expected}") from None
    if not number.is_finite() or not 0 <= number <= 100 or (number == 0 and not zero_allowed):
        raise UsageError(f"{what} is {text!r}, {expected}")
    if number != round(number, 6):
        raise UsageError(f"{what} is {text!r}, expected at most six decimals")
    return Fraction(number) / 100


def parse_size_bytes(text: str, what: str = "size") -> int:
    """Return the bytes of a size such as ``1.5TiB`` or ``640 GB``, rounded down.

    Raises
    ------
    UsageError
        If the unit is missing or unknown, or the number is not above 0.
    """
    capacity = parse_capacity(text, what)
    if capacity.unit != "bytes":
        raise UsageError(f"{what} is {text!r}, expected bytes with a unit, such as 1.5TiB")
    return int(capacity.amount)


def parse_capacity(text: str, what: str = "capacity") -> Capacity:
    """Return a capacity in bytes (``2TiB``), blocks (``5000blocks``) or tokens (``2.5Mtokens``).

    Raises
    ------
    UsageError
        If the unit is missing or unknown, or the number is not above 0.
    """
    expected = "expected a size above 0 such as 640GiB, 2TB, 5000blocks or 2.5Mtokens"
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"{what} is {text!r}, {expected}")
    amount = Fraction(Decimal(match["number"].replace("_", "")))
    unit = match["unit"].lower()
    if amount == 0:
        raise UsageError(f"{what} is {text!r}, {expected}")
    if unit in _BYTE_UNITS:
        return Capacity(amount * _BYTE_UNITS[unit], "bytes")
    count = _COUNT.match(unit)
    if count is None:
        raise UsageError(f"{what} is {text!r}, {expected}")
    name: CapacityUnit = "blocks" if count["what"].startswith("block") else "tokens"
    return Capacity(amount * _COUNT_PREFIXES[count["prefix"]], name)


def decimal_text(number: Fraction) -> str:
    """Return a fraction as exact decimal text, or as ``a/b`` where it has none."""
    for digits in range(19):
        scaled = number * 10**digits
        if scaled.denominator == 1:
            whole, part = divmod(scaled.numerator, 10**digits)
            return f"{whole}.{part:0{digits}d}" if digits else str(whole)
    return str(number)


def format_size(size_bytes: float) -> str:
    """Return a size in the largest binary unit that keeps it at 1 or more, such as ``1.50 TiB``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            return _trimmed(value, unit)
        value /= 1024
    return _trimmed(value, "PiB")


def format_count(count: int) -> str:
    """Return a count with thousands separators."""
    return f"{count:,}"


def format_percent(share: float) -> str:
    """Return a share of 1 as a percentage with two decimals, such as ``36.64 %``."""
    return f"{100 * share:.2f} %"


def say_size(run: HasBlockBytes, blocks: float | None) -> str:
    """Return a capacity as a size, in blocks where ``run`` does not know its bytes, ``-`` for None."""
    if blocks is None:
        return "-"
    size = run.block_bytes
    return f"{blocks:,.0f} blocks" if size is None else format_size(blocks * size)


def say_rate(rate: float | None) -> str:
    """Return a share of 1 as a percentage, ``-`` for None."""
    return "-" if rate is None else format_percent(rate)


def _trimmed(value: float, unit: str) -> str:
    if value == int(value):
        return f"{int(value):,} {unit}"
    return f"{value:,.2f} {unit}"

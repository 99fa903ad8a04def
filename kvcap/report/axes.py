"""Axes of charts: where a value stands, and which values get a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from math import ceil, floor, log, log10
from typing import Final, Literal

from kvcap.units import format_size

Tick = tuple[float, str]

HEADROOM: Final = 0.02
"""How much of a linear axis is left free above the highest value, at least."""

_NICE: Final = (1, 2, 2.5, 5, 10)
_TIME_STEPS_SECONDS: Final = (
    1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
_CLOCKS_FROM: Final = 10 * 365 * 86400


@dataclass(frozen=True)
class Axis:
    """A range of values, and how to label it.

    Parameters
    ----------
    title
        What is measured, with its unit.
    low, high
        The ends.
    kind
        ``linear``, ``log``, or ``time`` (seconds since 1970).
    text
        Writes a value; labels and what is shown on hover alike.
    tick_values
        Returns the values to label, given how many fit.
    """

    title: str
    low: float
    high: float
    kind: Literal["linear", "log", "time"]
    text: Callable[[float], str]
    tick_values: Callable[[int], Sequence[float]]

    def position(self, value: float) -> float:
        """Return where a value stands, from 0 at the low end to 1 at the high end."""
        if self.kind == "log":
            low, high, at = log10(self.low), log10(self.high), log10(max(value, self.low))
        else:
            low, high, at = self.low, self.high, value
        return min(1.0, max(0.0, (at - low) / (high - low)))

    def ticks(self, most: int) -> list[Tick]:
        """Return at most about ``most`` labelled values."""
        if self.kind == "time":
            step = _time_step(self.high - self.low, most)
            return [(value, _clock(value, step)) for value in self.tick_values(most)]
        return [(value, self.text(value)) for value in self.tick_values(most)]


def linear_axis(
    title: str, high: float, text: Callable[[float], str], low: float = 0.0, unit: float = 1.0
) -> Axis:
    """Return an axis from ``low`` to a value of at least ``high`` that is round in ``unit``."""
    step = _nice_step(max(high - low, 1e-12) / unit, 5) * unit
    top = step * max(floor(low / step) + 1, ceil((high + HEADROOM * (high - low)) / step - 1e-9))

    def values(most: int) -> list[float]:
        step = _nice_step((top - low) / unit, most) * unit
        return [step * i for i in range(ceil(low / step - 1e-9), floor(top / step + 1e-9) + 1)]

    return Axis(title, low, top, "linear", text, values)


def linear_size_axis(title: str, high_bytes: float) -> Axis:
    """Return an axis of sizes from 0, labelled at round numbers of their own unit."""
    unit = 1024.0 ** max(0, floor(log(max(high_bytes, 1.0), 1024)))
    return linear_axis(title, high_bytes, size_text, unit=unit)


def size_axis(title: str, low: float, high: float, *, in_bytes: bool) -> Axis:
    """Return a logarithmic axis of capacities: bytes labelled at powers of two, blocks at powers of ten."""
    base = 2 if in_bytes else 10
    low, high = max(low, 1.0), max(high, 2 * low, 2.0)

    def values(most: int) -> list[float]:
        first, last = ceil(log(low, base) - 1e-9), floor(log(high, base) + 1e-9)
        step = max(1, ceil((last - first + 1) / most))
        return [float(base**power) for power in range(first, last + 1) if power % step == 0]

    return Axis(title, low, high, "log", size_text if in_bytes else count_text, values)


def time_axis(title: str, low: float, high: float) -> Axis:
    """Return an axis of moments in seconds since 1970, UTC."""
    high = max(high, low + 1)

    def values(most: int) -> list[float]:
        step = _time_step(high - low, most)
        return [step * i for i in range(ceil(low / step), floor(high / step) + 1)]

    return Axis(title, low, high, "time", _moment, values)


def size_text(size_bytes: float) -> str:
    """Return a size in three digits or so, such as ``1.5 TiB``."""
    text = format_size(size_bytes)
    number, _, unit = text.partition(" ")
    value = float(number.replace(",", ""))
    return f"{value:,.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.3g} {unit}"


def count_text(count: float) -> str:
    """Return a count in three digits or so, such as ``12.5 k``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g}"


def percent_text(share: float) -> str:
    """Return a share of 1 as a percentage, such as ``36.6 %``."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent - round(percent)) < 0.005 else f"{percent:.1f} %"


def times_text(factor: float) -> str:
    """Return a factor, such as ``1.58x``."""
    return f"{factor:.3g}x"


def _nice_step(span: float, most: int) -> float:
    raw = span / max(1, most)
    magnitude = 10.0 ** floor(log10(raw))
    return magnitude * next((nice for nice in _NICE if nice * magnitude >= raw * (1 - 1e-9)), 10)


def _time_step(span_seconds: float, most: int) -> float:
    wanted = span_seconds / max(1, most)
    return next((step for step in _TIME_STEPS_SECONDS if step >= wanted), _TIME_STEPS_SECONDS[-1])


def _at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


def is_clock(seconds: float) -> bool:
    """Tell moments from times since the beginning of a trace whose clock starts at 0."""
    return seconds >= _CLOCKS_FROM


def _clock(seconds: float, step: float) -> str:
    if not is_clock(seconds):
        return _elapsed(seconds, with_seconds=step < 60)
    moment = _at(seconds)
    if step >= 86400 or (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def _moment(seconds: float) -> str:
    if not is_clock(seconds):
        return f"{_elapsed(seconds, with_seconds=True)} into the trace"
    return f"{_at(seconds):%Y-%m-%d %H:%M:%S}"


def _elapsed(seconds: float, *, with_seconds: bool) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if with_seconds:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d} h" if minutes else f"{hours} h"

"""What an explanation is told, with its defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from typing import Final, Literal, get_args

from kvcap.errors import UsageError

Grouping = Literal["hour", "instance", "session", "model"]
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

AUTO: Final = "auto"
NONE: Final = "none"


@dataclass(frozen=True)
class GivenRestart:
    """A restart that the user knows of: microseconds since 1970, and of which instance (None: of all)."""

    time_us: int
    instance: str | None

    @classmethod
    def parse(cls, text: str) -> GivenRestart:
        """Return ``TIME[@INSTANCE]``; TIME is ISO 8601 (UTC unless it says otherwise) or seconds since 1970.

        Raises
        ------
        UsageError
            If it is neither.
        """
        time, _, instance = text.partition("@")
        return cls(_time_us(time, text), instance or None)


@dataclass(frozen=True)
class ExplainOptions:
    """What is known of a cache, and what to tell.

    Parameters
    ----------
    capacity
        Size of each cache (``640GiB``, ``5000blocks``), which is then judged and not fitted; ``auto`` fits
        it, ``none`` says that there is no limit.
    ttl
        Seconds since the last use, likewise.
    restarts
        Known ones; further ones are looked for.
    step_tokens
        Observed values are cut down to multiples of it; None takes their greatest common divisor where that
        is larger than a block.
    least_tokens
        Hits below it are not granted.
    worst_requests
        How many requests with most unexplained tokens to list.

    Raises
    ------
    UsageError
        If a number is out of range.
    """

    capacity: str = AUTO
    ttl: str = AUTO
    restarts: tuple[GivenRestart, ...] = ()
    step_tokens: int | None = None
    least_tokens: int = 0
    worst_requests: int = 10

    def __post_init__(self) -> None:
        for name in ("step_tokens", "least_tokens", "worst_requests"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"{name} is {value}, expected a whole number from 0")


def _time_us(text: str, whole: str) -> int:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return int(Fraction(text) * 1_000_000)
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"--restart is {whole!r}, expected TIME or TIME@INSTANCE, such as 2026-05-01T12:30:00@worker-3"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return int(time.timestamp() * 1_000_000)

"""What an explanation is told, with its defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from typing import Final

from kvcap.errors import UsageError
from kvcap.option_fields import option, whole_number

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


def _restart(text: str, name: str) -> GivenRestart:
    return GivenRestart.parse(text)


def _step(text: str, name: str) -> int | None:
    return None if text == AUTO else whole_number(0)(text, name)


@dataclass(frozen=True)
class ExplainOptions:
    """What is known of a cache.

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
    """

    capacity: str = option(
        AUTO,
        "size of each instance's cache, such as 640GiB or 5000blocks, which is then judged and not fitted; "
        "none: no limit (default: {default}, what fits best)",
        metavar="SIZE",
    )
    ttl: str = option(
        AUTO,
        "seconds since the last use after which blocks are gone, likewise (default: {default})",
        metavar="S",
    )
    restarts: tuple[GivenRestart, ...] = option(
        (),
        "a restart that is known, in ISO 8601 (UTC) or seconds since 1970; may be given several times "
        "(default: those that the hits show)",
        "--restart",
        metavar="TIME[@INSTANCE]",
        parse=_restart,
        form="repeated",
    )
    step_tokens: int | None = option(
        None,
        "tokens that cached counts are cut down to multiples of (default: auto, their greatest common "
        "divisor if that is more than a block)",
        "--step",
        metavar="N",
        parse=_step,
    )
    least_tokens: int = option(
        0,
        "tokens below which the provider grants no hit (default: {default})",
        "--least",
        metavar="N",
        parse=whole_number(0),
    )


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

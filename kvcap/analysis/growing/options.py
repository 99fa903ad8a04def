"""What grows, and where hit rates are asked."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kvcap.errors import UsageError
from kvcap.option_fields import Parser, option, whole_number
from kvcap.units import parse_number

MOST_TIMES: Final = 1024
MOST_SEED: Final = 2**63 - 1


def _factors_from(least: Fraction) -> Parser:
    """Return a parser of factors with commas between them, each from ``least`` to :data:`MOST_TIMES`."""

    def parse(text: str, name: str) -> tuple[Fraction, ...]:
        found = tuple(dict.fromkeys(parse_number(part, name) for part in text.split(",")))
        for factor in found:
            if not least <= factor <= MOST_TIMES or (factor * 10**6).denominator != 1:
                raise UsageError(
                    f"{name} is {text!r}, expected numbers from {float(least):g} to {MOST_TIMES} of at most "
                    "six decimals, such as 1.5,2,4"
                )
        return found

    return parse


_upwards: Final = _factors_from(Fraction(1))
_any_way: Final = _factors_from(Fraction(1, 1000))


def _seed(text: str, name: str) -> int:
    seed: int = whole_number(0)(text, name)
    if seed > MOST_SEED:
        raise UsageError(f"{name} is {text!r}, expected at most {MOST_SEED}")
    return seed


@dataclass(frozen=True)
class GrowOptions:
    """What grows; each factor is a row of its own, beside today's.

    Parameters
    ----------
    users
        Times as many sessions, 1 or more.
    context
        Times as long: what sessions have of their own; below 1 shorter.
    faster
        Times as fast: the pauses within sessions divided.
    turns
        Times as many turns in a session, 1 or more.
    add
        Logs of a second workload in the same cache.
    capacities
        Where hit rates are taken, as ``kvcap replay`` takes them.
    sample_sessions
        Preview the log from so many of its sessions; None takes all.
    seed
        Of all draws.
    interval
        Whether the sampling error of more users is measured, which takes eight times as long as the rest.

    Raises
    ------
    UsageError
        If nothing grows.
    """

    users: tuple[Fraction, ...] = option(
        (),
        "times as many sessions, such as 1.5,2,4,8; 1 is today",
        metavar="F,...",
        parse=_upwards,
    )
    context: tuple[Fraction, ...] = option(
        (), "times as long contexts: what sessions share stays as it is", metavar="F,...", parse=_any_way
    )
    faster: tuple[Fraction, ...] = option(
        (),
        "times as fast turns: the pauses within sessions are divided by it",
        metavar="F,...",
        parse=_any_way,
    )
    turns: tuple[Fraction, ...] = option(
        (), "times as many turns in a session, for chats", metavar="F,...", parse=_upwards
    )
    add: tuple[str, ...] = option(
        (),
        "a log of a second workload in the same cache, with blocks of the same size; several are read as one",
        metavar="OTHER_TRACE",
        form="repeated",
    )
    capacities: str | None = option(
        None,
        "where hit rates are taken, such as 640GiB,2TiB or 5000blocks (default: as kvcap replay has them)",
        metavar="SIZES",
    )
    sample_sessions: int | None = option(
        None,
        "preview a huge log from so many of its sessions, grown back to all of them: keys and keeps these "
        "alone, and takes --users besides (default: all)",
        metavar="N",
        parse=whole_number(26),
    )
    seed: int = option(
        0,
        "of all draws; the same seed gives the same answer (default: {default})",
        metavar="N",
        parse=_seed,
    )
    interval: bool = option(
        True, "measure the sampling error of --users on eight halves of the sessions", form="negatable"
    )

    def __post_init__(self) -> None:
        others = self.context or self.faster or self.turns or self.add
        if self.sample_sessions is not None and others:
            raise UsageError("--sample-sessions previews a log and --users of it: expected no other growth")
        if not (self.users or others or self.sample_sessions is not None):
            raise UsageError("nothing grows: expected --users, --context, --faster, --turns or --add")

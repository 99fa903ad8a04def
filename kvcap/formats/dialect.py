"""What a dialect is: how to recognize a record of it, and how to read one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from kvcap.errors import UsageError
from kvcap.formats.base import ReadReport
from kvcap.formats.options import ConversationReading, ReadOptions, TimestampUnit
from kvcap.formats.rows import Row, Skip, Values
from kvcap.schema import TraceKind

Read = Callable[[Any, Values], Iterable[Row | Skip]]
"""Turn one record into requests; raises FieldError."""

RowStep = Callable[[Row], "Row | Skip"]
"""Turn rows in file order into what is replayed, with a memory of the rows before; raises FieldError."""


@dataclass(frozen=True)
class Dialect:
    """One way of writing requests down.

    Parameters
    ----------
    name
        As ``--input-format`` takes it.
    summary
        One line for ``kvcap formats``.
    kind
        What its requests are.
    matches
        Whether a decoded record (or, with ``decode``, a line) looks like this dialect's.
    read
        Turns one record into requests.
    sequencer
        Makes the stage that sees all rows in order, for dialects whose rows depend on earlier ones.
    decode
        Turns a line into a record, for logs that are not JSON; None for JSON.
    timestamp_unit
        Unit of numbers that are not since 1970.
    usual_block_size
        Tokens per block of the dialect's published traces, to be named where a log gives none.
    has_no_year
        Whether its dates lack the year.
    by_time
        Whether its lines are written in another order than requests came.
    pool
        Column that names the pools where the user names none.
    refines
        Dialects whose first records may look like this one's, too.
    refusal
        Why it cannot drive a replay; None if it can.
    read_turns, read_whole
        How a record is read as a stored conversation, a request per assistant turn, and as one request; None
        where it is none.
    """

    name: str
    summary: str
    kind: TraceKind
    matches: Callable[[Any], bool]
    read: Read
    sequencer: Callable[[ReadOptions, ReadReport], RowStep] | None = None
    decode: Callable[[bytes], Any] | None = None
    timestamp_unit: TimestampUnit = "ms"
    usual_block_size: int | None = None
    has_no_year: bool = False
    by_time: bool = False
    pool: str | None = None
    refines: tuple[str, ...] = ()
    refusal: str | None = None
    read_turns: Read | None = None
    read_whole: Read | None = None

    def of_conversations(self, reading: ConversationReading | None) -> Dialect:
        """Return the dialect that reads conversations as the user says.

        Raises
        ------
        UsageError
            If its logs hold no conversations that could be read so.
        """
        if reading is None:
            return self
        read = self.read_turns if reading == "turns" else self.read_whole
        if read is None:
            raise UsageError(
                f"--conversations {reading} is no reading of {self.name} logs, expected conversations"
            )
        return replace(self, read=read)


def has(record: Any, *keys: str) -> bool:
    """Return whether a record is an object with all of ``keys``."""
    return isinstance(record, dict) and all(key in record for key in keys)

"""What every reader of request logs shares: options in, batches and an account of them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import pyarrow as pa

from kvcap.formats.fields import FieldOptions, TimestampUnit
from kvcap.schema import TraceKind

SessionMode = Literal["cumulative", "delta"]

MAX_EXAMPLES: Final = 5
"""Examples of bad records that are kept in an answer."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read logs.

    Parameters
    ----------
    input_format
        A name that ``kvcap formats`` lists; None detects it from the content.
    block_size
        Tokens per block for hash ids whose record declares none. A declared size wins, with a notice.
    pool
        Column whose values name the pools; None puts all requests in one.
    keep
        Scalar columns of the source to carry along.
    skip_bad
        How many bad records are left out and counted before one stops the run.
    max_requests
        Stop after so many requests.
    session_mode
        How to read Mooncake sessions that could mean two things.
    timestamp_unit
        Unit of numeric timestamps; None detects it.
    sort_by_time
        Order requests by timestamp, stably, in place of file order.
    fields
        Where the log says what; a field that is named here wins over what its kind has.
    threads
        Threads that read and replay; None takes one per core.
    """

    input_format: str | None = None
    block_size: int | None = None
    pool: str | None = None
    keep: tuple[str, ...] = ()
    skip_bad: int = 0
    max_requests: int | None = None
    session_mode: SessionMode | None = None
    timestamp_unit: TimestampUnit | None = None
    sort_by_time: bool = False
    fields: FieldOptions = field(default_factory=FieldOptions)
    threads: int | None = None


@dataclass
class ReadReport:
    """The account of one reading, complete once its batches are exhausted.

    ``records == requests + sum(skipped.values()) + bad_records`` holds for formats with one request a
    record; formats that pack several into one record count each of them.

    Attributes
    ----------
    format_name
        The reader's name, as ``kvcap formats`` lists it.
    sources
        The files, as the user named them.
    records, requests
        Records read, requests handed on.
    skipped
        Records left out on purpose, by reason (a tool row, a failed call).
    bad_records, bad_examples
        Records left out under ``skip_bad``, and the first few messages.
    overfull_requests, underfull_requests
        Requests with more block ids than ``input_length`` can fill, and with fewer (``floor`` logs).
    backward_timestamps
        Requests earlier than the one before them.
    clipped_cached_tokens
        Requests said to have had more tokens from a cache than they have; the prompt's length is taken.
    notices
        Whatever else the user should know, one sentence each.
    """

    format_name: str
    sources: tuple[str, ...]
    records: int = 0
    requests: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    bad_records: int = 0
    bad_examples: list[str] = field(default_factory=list)
    overfull_requests: int = 0
    underfull_requests: int = 0
    backward_timestamps: int = 0
    clipped_cached_tokens: int = 0
    notices: list[str] = field(default_factory=list)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count records that were left out on purpose."""
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def notice(self, text: str) -> None:
        """Say something to the user, once."""
        if text not in self.notices:
            self.notices.append(text)


class Trace(Protocol):
    """Requests on their way in, as record batches of ``schema.trace_schema(kind, kept)``.

    Batches are bounded (a few million ids), ``request_id`` is dense from 0 in replay order, and
    ``report`` is complete when they are exhausted.
    """

    @property
    def kind(self) -> TraceKind:
        """What the payload is."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch."""
        ...

    @property
    def report(self) -> ReadReport:
        """The account of this reading."""
        ...

    @property
    def chained(self) -> bool:
        """Whether hash ids are known to be keys of whole prefixes (noted in a Parquet trace)."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in replay order; may be called once."""
        ...

    def close(self) -> None:
        """Release files and workers."""
        ...

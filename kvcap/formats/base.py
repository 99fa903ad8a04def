"""What every reader of request logs hands on: batches, and an account of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from kvcap.schema import TraceKind

MAX_EXAMPLES: Final = 5
"""Examples of bad records that are kept in an answer."""


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
    largest_step_back_us
        How much earlier at most.
    clipped_cached_tokens
        Requests said to have had more tokens from a cache than they have; the prompt's length is taken.
    notices
        Whatever else the user should know, one sentence each.
    kv_bytes_per_token
        Bytes of one token's keys and values as the log's own records say them, exact as a fraction's text.
    start_up_lines
        Lines of an engine's start that stand inside the log, which tell the same.
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
    largest_step_back_us: int = 0
    clipped_cached_tokens: int = 0
    notices: list[str] = field(default_factory=list)
    kv_bytes_per_token: str | None = None
    start_up_lines: list[str] = field(default_factory=list)

    def step_back(self, steps_us: Sequence[int]) -> None:
        """Count requests that are so much earlier than the one before them."""
        self.backward_timestamps += len(steps_us)
        self.largest_step_back_us = max(self.largest_step_back_us, *steps_us, 0)

    def in_order(self) -> None:
        """Forget steps back in time: what was put in order is no longer out of it."""
        self.backward_timestamps = self.largest_step_back_us = 0

    def skip(self, reason: str, count: int = 1) -> None:
        """Count records that were left out on purpose."""
        left = self.skipped.pop(reason, 0) + count
        if left:
            self.skipped[reason] = left

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

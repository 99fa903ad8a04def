"""Mooncake traces (Qin et al., FAST 2025) and what grew out of them.

::

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

Times are milliseconds from the start; blocks of the published traces hold 512 tokens and the records do not
say so. The last id covers the incomplete block (``ceil``). Rows without ``hash_ids`` exist and cannot be
placed in a cache: they are bad records.

**Sessions** add ``session_id`` and, after a session's first row, a ``delay`` in milliseconds in place of a
timestamp. Two dialects look alike and mean different things:

* *cumulative* (as a rule ``delay_ms``): a row is a whole prompt, which repeats the earlier ones;
* *delta* (as a rule ``delay`` and ``group_id``): a row only adds to all earlier inputs and outputs of its
  session. The blocks of outputs have no ids in the log, so each counts as new when it first appears.

A row is read by its spelling where its ids agree with that: a cumulative row begins with the full blocks of
the row before it, a delta row does not. Where spelling and ids leave both readings open, the user must say.

**Agentic** rows name in ``wait_for`` the requests that they wait for; they are whole prompts, and start
``delay`` + ``tool_wait_ms`` milliseconds after the last of those. How long a request took is not in these
logs, so derived times are those at which it could have started at the earliest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvcap.errors import UsageError
from kvcap.formats.base import ReadReport
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.hash_ids import read_hash_ids, read_hash_row
from kvcap.formats.options import ReadOptions, SessionMode
from kvcap.formats.rows import (
    FieldError,
    Ids,
    Row,
    Skip,
    Values,
    is_list,
    number_of_name,
    optional_number,
    optional_text,
    show,
    usual_weights,
)
from kvcap.formats.timestamps import number_of
from kvcap.kernels.json_flags import ABOVE_INT64, NEGATIVE

_PLAIN_KEYS: Final = {"timestamp", "input_length", "output_length", "hash_ids"}
_DERIVED_TIMES: Final = (
    "times given as a delay are counted from the start of the request before, whose own time is unknown"
)


@dataclass(slots=True)
class _Times:
    """What a row says about when it comes, and how it is spelled."""

    delay: float | None
    spelling: SessionMode | None
    request_id: str | None
    wait_for: list[str] | None


@dataclass(slots=True)
class _Session:
    """What is known of a session after one of its rows."""

    row: Row
    time: float | None
    is_delta: bool


def _read_with_times(record: Any, values: Values) -> Iterator[Row | Skip]:
    row = read_hash_row(record, values)
    delay_ms, delay = optional_number(record, "delay_ms"), optional_number(record, "delay")
    if delay_ms is not None and delay is not None:
        raise FieldError("delay", "is given beside delay_ms, expected one of them")
    spelling: SessionMode | None = None
    if delay_ms is not None:
        spelling = "cumulative"
    elif delay is not None or record.get("group_id") is not None:
        spelling = "delta"
    row.extra = _Times(
        delay_ms if delay_ms is not None else delay,
        spelling,
        optional_text(record, "request_id"),
        _names(record.get("wait_for")),
    )
    if row.extra.wait_for is not None:
        tool_wait = optional_number(record, "tool_wait_ms")
        row.extra.delay = (row.extra.delay or 0) + (tool_wait or 0)
    yield row


def _names(value: Any) -> list[str] | None:
    if value is None or type(value) is str:
        return value if value is None else [value]
    if type(value) is not list or not all(type(item) is str for item in value):
        raise FieldError("wait_for", f"is {show(value)}, expected a list of request ids")
    return value


class _Agentic:
    """Give rows the time at which what they wait for could have started them."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._times: dict[str, float | None] = {}
        self._report = report

    def __call__(self, row: Row) -> Row:
        extra: _Times = row.extra
        if row.timestamp is None and extra.wait_for:
            earlier = []
            for index, name in enumerate(extra.wait_for):
                if name not in self._times:
                    raise FieldError(f"wait_for[{index}]", f"is {show(name)}, expected an earlier request_id")
                earlier.append(self._times[name])
            known = [time for time in earlier if time is not None]
            if known:
                row.timestamp = max(known) + (extra.delay or 0)
                self._report.notice(_DERIVED_TIMES)
        if extra.request_id is not None:
            number = number_of(row.timestamp)
            self._times[extra.request_id] = None if number is None else float(number)
        return row


class _Sessions:
    """Make whole prompts with times of the rows of sessions."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._mode = options.session_mode
        self._block_size = options.block_size
        self._report = report
        self._sessions: dict[str, _Session] = {}
        self._flags = 0
        self._n_outputs = 0

    def __call__(self, row: Row) -> Row:
        if isinstance(row.ids, Ids):
            # A slice would keep all ids of its chunk in memory for as long as the session is known.
            row.ids = Ids(row.ids.values.copy(), row.ids.flags)
            self._flags |= row.ids.flags
        if row.session is None:
            return row
        session, extra = row.session, row.extra
        before = self._sessions.get(session)
        time = number_of(row.timestamp)
        if row.timestamp is None and before is not None and extra.delay is not None:
            row.timestamp = time = None if before.time is None else before.time + extra.delay
            self._report.notice(_DERIVED_TIMES)
        is_delta = extra.spelling == "delta" or (before is not None and before.is_delta)
        if before is not None and self._mode_of(row, before, is_delta=is_delta) == "delta":
            row = self._joined(before.row, row)
        self._check_free_ids()
        self._sessions[session] = _Session(row, None if time is None else float(time), is_delta)
        return row

    def _mode_of(self, row: Row, before: _Session, *, is_delta: bool) -> SessionMode:
        if self._mode is not None:
            return self._mode
        repeats = _repeats(before.row, row)
        if repeats and row.extra.spelling == "cumulative" and not before.is_delta:
            return "cumulative"
        if not repeats and is_delta and row.extra.spelling != "cumulative":
            return "delta"
        raise UsageError(
            f"line {row.line}: this later row of session {show(row.session)} can be a whole prompt or only "
            "what is new in it; say which with --session-mode cumulative or --session-mode delta"
        )

    def _joined(self, before: Row, row: Row) -> Row:
        """Return ``row`` after the earlier prompt and its output."""
        size = row.block_size or before.block_size or self._block_size
        if size is None or before.input_length is None or row.input_length is None:
            return row
        output = before.output_length or 0
        lengths = [size] * (output // size) + ([output % size] if output % size else [])
        pieces = [_weights(before, size), np.array(lengths, dtype=np.uint64), _weights(row, size)]
        row.ids = self._joined_ids(row.session, before.ids, len(lengths), row.ids)
        row.block_tokens = Ids(np.concatenate(pieces))
        row.input_length += before.input_length + output
        self._report.notice(
            "rows of a session only add to it (delta): each prompt is all earlier inputs and outputs and "
            "the row itself; blocks of outputs count as new"
        )
        return row

    def _check_free_ids(self) -> None:
        """Refuse ids that the blocks of outputs use: the numbers from 2**63 on."""
        if self._n_outputs and self._flags & (NEGATIVE | ABOVE_INT64):
            raise FieldError(
                "hash_ids", "holds an id below 0 or from 2**63 on, expected 0 to 2**63 - 1 in a delta session"
            )

    def _joined_ids(
        self, session: str | None, before: Ids | list[str] | None, n_outputs: int, own: Ids | list[str] | None
    ) -> Ids | list[str]:
        first = self._n_outputs
        self._n_outputs += n_outputs
        # Named by their session, so that logs which are converted apart have none in common.
        names = [f"\0output {session} {n}" for n in range(first, self._n_outputs)]
        if isinstance(before, Ids) and isinstance(own, Ids):
            outputs = np.array([2**63 | number_of_name(name) for name in names], dtype=np.uint64)
            return Ids(np.concatenate([before.values, outputs, own.values]))
        if isinstance(before, Ids) or isinstance(own, Ids):
            raise FieldError("hash_ids", "changes between integers and strings, expected one of them")
        return [*(before or []), *names, *(own or [])]


def _repeats(before: Row, row: Row) -> bool:
    """Return whether a row begins with what is full of the one before it."""
    if isinstance(before.ids, Ids) and isinstance(row.ids, Ids):
        n = max(before.ids.values.size - 1, min(before.ids.values.size, 1))
        return row.ids.values.size >= n and bool(np.array_equal(before.ids.values[:n], row.ids.values[:n]))
    if isinstance(before.ids, list) and isinstance(row.ids, list):
        n = max(len(before.ids) - 1, min(len(before.ids), 1))
        return row.ids[:n] == before.ids[:n]
    return False


def _weights(row: Row, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the tokens of each block of a row: the last one holds what is left, at least 1."""
    if row.block_tokens is not None:
        return row.block_tokens.values
    count = row.ids.values.size if isinstance(row.ids, Ids) else len(row.ids or ())
    return usual_weights(count, row.input_length or 0, size).values


def _is_session_row(record: Any) -> bool:
    return has(record, "session_id", "hash_ids") and any(
        record.get(key) is not None for key in ("delay", "delay_ms", "group_id")
    )


MOONCAKE: Final = Dialect(
    name="mooncake",
    summary="Mooncake traces: timestamp in ms, input_length, output_length, hash_ids",
    kind="hash_ids",
    matches=lambda record: (
        has(record, "hash_ids", "timestamp")
        and is_list(record["hash_ids"])
        and _PLAIN_KEYS.issuperset(record)
    ),
    read=read_hash_ids,
    usual_block_size=512,
)

MOONCAKE_SESSIONS: Final = Dialect(
    name="mooncake-sessions",
    summary="Mooncake sessions: session_id with delay or delay_ms; cumulative or delta (--session-mode)",
    kind="hash_ids",
    matches=_is_session_row,
    read=_read_with_times,
    sequencer=_Sessions,
    usual_block_size=512,
    refines=("mooncake", "hash-ids"),
)

MOONCAKE_AGENTIC: Final = Dialect(
    name="mooncake-agentic",
    summary="agentic Mooncake: rows that wait for others (wait_for, delay, tool_wait_ms)",
    kind="hash_ids",
    matches=lambda record: has(record, "wait_for", "hash_ids"),
    read=_read_with_times,
    sequencer=_Agentic,
    usual_block_size=512,
    refines=("mooncake", "hash-ids", "mooncake-sessions"),
)

"""Transcripts of agents, by what each call says it used: no text and no tokenizer.

A session only appends, so the numbers of tokens of its calls rebuild its prompts: call k begins with
``min(N(k-1) + output(k-1), N(k))`` tokens of what was there after call k - 1. Tokens are numbered as they
first appear. Where a transcript says which line follows which, a fork begins where it leaves; after a
compaction, or where a prompt is shorter than the one before it, a call shares what it says was read from a
cache. So does the first call of a session or of a subagent, with the latest session of the same model that is
that long: what sessions share beyond that is not in a transcript.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kvcap.formats.base import ReadReport
from kvcap.formats.bodies.usage import Usage
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import FieldError, Ids, Row, Skip

FURTHER: Final = "lines that are no call of a model, or a further one of it"
_ACROSS: Final = (
    "prompts are rebuilt from what each call used, since a session only appends; what sessions share is "
    "known only as far as a first call says what it read from a cache"
)
_MOST_TOKENS: Final = 2**32
_MOST_PROMPT: Final = 2**24
_MOST_STREAMS: Final = 4096

Runs = tuple[tuple[int, int], ...]
"""Tokens of a context: stretches of consecutive numbers, as first number and length."""


@dataclass(slots=True)
class Event:
    """What one line of a transcript says.

    Parameters
    ----------
    session, model
        Of this line and, where they stand in lines of their own, of those after it; None leaves them.
    usage
        Tokens of a call of the model; None for other lines.
    time
        When the call was made.
    call
        What identifies a call that several lines tell of; it counts once, as its last line before the next
        call says.
    line, parent
        What identifies this line and the one that it follows, where the transcript says so.
    has_parent
        Whether it says so.
    cuts
        Whether the context is made anew here (a compaction).
    starts
        Whether a session begins here, and what was there before is another one's.
    """

    session: str | None = None
    model: str | None = None
    usage: Usage | None = None
    time: Any = None
    call: str | None = None
    line: str | None = None
    parent: str | None = None
    has_parent: bool = False
    cuts: bool = False
    starts: bool = False


def row_of(event: Event, record: Any = None) -> Row:
    """Return a row that carries an event to the stage that knows the session."""
    return Row(extra=event, record=record)


@dataclass(slots=True)
class _Held:
    """A call of which further lines may follow."""

    event: Event
    row: Row
    name: str | None
    session: str
    model: str
    lines: list[str] = field(default_factory=list)


class Streams:
    """Rebuild the prompts of calls from what they used."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        report.notice(_ACROSS)
        self._report = report
        self._session = self._model = ""
        self._contexts: dict[tuple[str, str], Runs] = {}
        self._lengths: dict[tuple[str, str], int] = {}
        self._after_line: dict[str, tuple[Runs, int, str] | None] = {}
        self._is_cut: set[str] = set()
        self._held: _Held | None = None
        self._waiting: list[tuple[Event, str]] = []
        self._counted: set[str | None] = set()
        self._next = 0

    def __call__(self, row: Row) -> Row | Skip:
        """Return the call before this line, once it is known that no further line tells of it."""
        event: Event = row.extra
        self._check(event.usage)
        self._session = event.session or ("" if event.starts else self._session)
        self._model = event.model or ("" if event.starts else self._model)
        held, name = self._held, self._name_of(event)
        if held is not None and name is not None and name == held.name:
            held.event.usage = _later(event.usage, held.event.usage)
            if event.line is not None:
                held.lines.append(event.line)
            return Skip(FURTHER)
        is_call = event.usage is not None and name not in self._counted
        if not is_call and not event.starts and held is not None:
            # What answers a call may stand between its lines.
            self._waiting.append((event, self._session))
            return Skip(FURTHER)
        done = self._finish()
        if not is_call:
            self._pass(event, self._session)
            return done or Skip(FURTHER)
        self._held = _Held(event, row, name, self._session, self._model)
        if event.line is not None:
            self._held.lines.append(event.line)
        return done or Skip(FURTHER)

    def _name_of(self, event: Event) -> str | None:
        """Return what identifies a call: everywhere, where lines have names, else in its session."""
        if event.call is None or event.line is not None:
            return event.call
        return f"{self._session} {event.call}"

    def _finish(self) -> Row | None:
        """Return the row of the call that is held, and take what waited for it."""
        row = None if self._held is None else self._finished(self._held)
        self._held = None
        for event, session in self._waiting:
            self._pass(event, session)
        self._waiting.clear()
        return row

    def rest(self) -> list[Row]:
        """Return the last call, which nothing follows."""
        row = self._finish()
        if row is None:
            return []
        self._report.skip(FURTHER, -1)
        return [row]

    def _check(self, usage: Usage | None) -> None:
        if usage is None:
            return
        tokens = (usage.prompt or 0) + (usage.output or 0)
        if tokens > _MOST_PROMPT:
            raise FieldError("usage", f"is of {tokens:,} tokens, expected at most {_MOST_PROMPT:,} in a call")
        if self._next + 2 * _MOST_PROMPT > _MOST_TOKENS:
            raise FieldError("usage", f"makes more than {_MOST_TOKENS:,} tokens that differ, expected fewer")

    def _pass(self, event: Event, session: str) -> None:
        if event.cuts:
            self._is_cut.add(session)
        if event.line is not None:
            follows = self._after_line.get(event.parent or "") if not event.cuts else None
            self._after_line[event.line] = follows

    def _finished(self, held: _Held) -> Row:
        """Return the row of a call, and remember what is there after it."""
        event, row = held.event, held.row
        usage = event.usage or Usage()
        prompt, output = usage.prompt or 0, usage.output or 0
        key = (held.session, held.model)
        before = self._before(held, key)
        shared: Runs = ()
        if before is not None and key[0] not in self._is_cut and prompt >= before[1]:
            shared = _prefix(before[0], min(_length(before[0]), prompt))
        elif usage.cached:
            own = None if before is None else before[0]
            shared = self._read(min(usage.cached, prompt), key, own)
        self._is_cut.discard(key[0])
        context = (*shared, *self._new(prompt - _length(shared)))
        row.ids = Ids(_numbers(context))
        generated = self._new(output)
        row.output_ids = Ids(_numbers(generated)) if usage.output is not None else None
        row.input_length, row.output_length = prompt, usage.output
        row.observed_cached_tokens = usage.cached
        row.timestamp, row.session, row.model = event.time, held.session or None, held.model or None
        self._remember(key, _merged((*context, *generated)), prompt, held.lines)
        row.extra = None
        if held.name is not None:
            self._counted.add(held.name)
        return row

    def _before(self, held: _Held, key: tuple[str, str]) -> tuple[Runs, int] | None:
        """Return the context after the call that this one follows, and how long that one's prompt was."""
        if held.event.has_parent:
            found = self._after_line.get(held.event.parent or "")
            return found[:2] if found is not None and found[2] == held.model else None
        if key not in self._contexts:
            return None
        return self._contexts[key], self._lengths[key]

    def _read(self, cached: int, key: tuple[str, str], own: Runs | None) -> Runs:
        """Return tokens that a call says were read: of its session, else of the latest that is as long."""
        if own is not None and _length(own) >= cached:
            return _prefix(own, cached)
        mine = self._contexts.get(key, ())
        if _length(mine) >= cached:
            return _prefix(mine, cached)
        for other, context in reversed(self._contexts.items()):
            if other[1] == key[1] and _length(context) >= cached:
                return _prefix(context, cached)
        return ()

    def _new(self, count: int) -> Runs:
        begin = self._next
        self._next += count
        return ((begin, count),) if count else ()

    def _remember(self, key: tuple[str, str], context: Runs, prompt: int, lines: list[str]) -> None:
        self._contexts.pop(key, None)
        self._contexts[key] = context
        self._lengths[key] = prompt
        for line in lines:
            self._after_line[line] = (context, prompt, key[1])
        if len(self._contexts) > _MOST_STREAMS:
            oldest = next(iter(self._contexts))
            del self._contexts[oldest], self._lengths[oldest]


def _later(usage: Usage | None, earlier: Usage | None) -> Usage | None:
    """Return what the last line of a call says: generated tokens only grow."""
    if usage is None or earlier is None:
        return usage or earlier
    outputs = [count for count in (usage.output, earlier.output) if count is not None]
    return Usage(usage.prompt, usage.cached, max(outputs, default=None))


def _length(runs: Runs) -> int:
    return sum(count for _, count in runs)


def _prefix(runs: Runs, length: int) -> Runs:
    taken = []
    for begin, count in runs:
        if length <= 0:
            break
        taken.append((begin, min(count, length)))
        length -= count
    return tuple(taken)


def _merged(runs: Runs) -> Runs:
    merged: list[tuple[int, int]] = []
    for begin, count in runs:
        if merged and sum(merged[-1]) == begin:
            merged[-1] = (merged[-1][0], merged[-1][1] + count)
        else:
            merged.append((begin, count))
    return tuple(merged)


def _numbers(runs: Runs) -> Any:
    parts = [np.arange(begin, begin + count, dtype=np.uint64) for begin, count in runs]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)

"""Logs that hold a request body at some path: one reader, and a description for each kind of log.

A description says where the body stands and where the rest of a request does; ``--body-field`` is the
description that the user gives. Bodies may be of any API that :mod:`kvcap.formats.bodies` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kvcap.formats.bodies import is_body
from kvcap.formats.bodies.shapes import as_body, plain_body
from kvcap.formats.bodies.usage import Usage, answer_usage, usage_of
from kvcap.formats.dialect import Dialect
from kvcap.formats.options import TimestampUnit
from kvcap.formats.paths import EACH, each, find, first, unpacked
from kvcap.formats.rows import FieldError, Row, Skip, Values, an_object, inside, show
from kvcap.formats.text_rows import FAILED, has_failed, microseconds_between, text_row

Paths = tuple[str, ...]

_GENERATING: Final = (
    "completions",
    "responses",
    "messages",
    "converse",
    "converse-stream",
    "invoke",
    "invoke-with-response-stream",
    "generate",
    "generatecontent",
    "streamgeneratecontent",
)


@dataclass(frozen=True)
class Preset:
    """Where a kind of log holds what; of several paths the first counts that has a value.

    Parameters
    ----------
    name, summary
        As ``kvcap formats`` lists it.
    marks
        Paths that a record of this kind has; ``a|b`` is one of both.
    body
        Where the body stands, in an item.
    items
        Path of the items (``spans[]``) where a record holds several requests; the paths below are looked
        for in an item, then in what is around it.
    only
        Values that a path must have in an item, which is left out otherwise.
    takes_text
        Whether text at ``body`` is a prompt as it stands.
    may_lack_prompt
        Whether items without a prompt are something else than requests, to be left out.
    parameters
        Objects that hold tools beside the body.
    time, end, first_token, session, model, instance
        Times and names.
    queue, ttft, duration
        Paths of durations and microseconds per unit.
    prompt, cached, output
        Counts of tokens.
    usage
        Objects of such counts, in the names of any API.
    answer
        Answers, in which the counts are looked for.
    counts
        Reads the counts of logs that have names of their own for them.
    url
        Endpoint of the request; those that generate nothing are left out.
    status, error
        A status that may be a failure; what is there only after one.
    timestamp_unit
        Unit of numeric times that are not since 1970.
    hint
        What to do where the body is missing.
    """

    name: str
    summary: str
    marks: Paths
    body: Paths
    items: str = ""
    only: Mapping[str, Paths] = field(default_factory=dict)
    takes_text: bool = False
    may_lack_prompt: bool = False
    parameters: Paths = ()
    time: Paths = ()
    end: Paths = ()
    first_token: Paths = ()
    session: Paths = ()
    model: Paths = ()
    instance: Paths = ()
    queue: tuple[tuple[str, float], ...] = ()
    ttft: tuple[tuple[str, float], ...] = ()
    duration: tuple[tuple[str, float], ...] = ()
    prompt: Paths = ()
    cached: Paths = ()
    output: Paths = ()
    usage: Paths = ()
    answer: Paths = ()
    counts: Any = None
    url: Paths = ()
    status: Paths = ()
    error: Paths = ()
    timestamp_unit: TimestampUnit = "ms"
    hint: str = "is the log of requests whole?"


def dialect_of(preset: Preset) -> Dialect:
    """Return the dialect that reads logs as a preset describes them."""
    return Dialect(
        name=preset.name,
        summary=f"{preset.summary} (needs a tokenizer)",
        kind="request_json",
        matches=partial(_matches, preset),
        read=partial(read_preset, preset),
        timestamp_unit=preset.timestamp_unit,
    )


def named_body(path: str) -> Dialect:
    """Return the dialect of a log whose body stands where the user says."""
    items, each_item, body = path.rpartition(EACH)
    preset = Preset(
        name="body-field",
        summary=f"request bodies at {path}",
        marks=(f"{items.partition(EACH)[0]}" if each_item else path,),
        body=(body.removeprefix("."),) if each_item else (path,),
        items=items + each_item,
        takes_text=True,
        time=("timestamp",),
        session=("session_id",),
        model=("model",),
        answer=("response",),
        hint="is it there in every record?",
    )
    return dialect_of(preset)


def _matches(preset: Preset, record: Any) -> bool:
    return isinstance(record, dict) and all(
        any(find(record, path) is not None for path in mark.split("|")) for mark in preset.marks
    )


def read_preset(preset: Preset, record: Any, values: Values) -> Iterator[Row | Skip]:
    """Read the requests of one record."""
    record = an_object(record, preset.items or preset.body[0])
    if not preset.items:
        yield _item(preset, (record,))
        return
    count = 0
    for where, scopes in each(record, preset.items):
        count += 1
        with inside(where):
            an_object(scopes[0], preset.body[0] or "a request body")
            item = _item(preset, scopes)
        yield item
    if not count:
        yield Skip("records without a request")


def _item(preset: Preset, scopes: tuple[Any, ...]) -> Row | Skip:
    skip = _reason_to_skip(preset, scopes)
    if skip is not None:
        return Skip(skip)
    value = first(scopes[:1], preset.body)
    path = preset.body[0]
    if value is None:
        if preset.may_lack_prompt:
            return Skip("records without a prompt")
        raise FieldError(path, f"is missing, expected a request body: {preset.hint}")
    body = as_body(value, path, takes_text=preset.takes_text)
    if not is_body(body):
        if preset.may_lack_prompt:
            return Skip("records without a prompt")
        found = ", ".join(list(body)[:6]) or "nothing"
        raise FieldError(path, f"holds {found}, expected messages, prompt, input or contents: {preset.hint}")
    body = plain_body(body, first(scopes, preset.parameters))
    times = first(scopes, preset.time)
    with inside(path):
        row = text_row(body, _usage(preset, scopes))
    row.timestamp = times
    row.session = _name(first(scopes, preset.session), preset.session)
    row.model = _name(first(scopes, preset.model), preset.model) or row.model
    row.instance = _name(first(scopes, preset.instance), preset.instance)
    unit = preset.timestamp_unit
    ended = microseconds_between(times, first(scopes, preset.end), unit)
    begun = microseconds_between(times, first(scopes, preset.first_token), unit)
    row.queue_us = _duration(scopes, preset.queue)
    row.ttft_us = _duration(scopes, preset.ttft) if begun is None else begun
    row.duration_us = _duration(scopes, preset.duration) if ended is None else ended
    row.record = scopes[0]
    return row


def _reason_to_skip(preset: Preset, scopes: tuple[Any, ...]) -> str | None:
    for path, expected in preset.only.items():
        found = find(scopes[0], path)
        if found not in expected:
            return f"records of {path.rpartition('.')[2]} {show(found)}"
    if has_failed(first(scopes[:1], preset.status)) or first(scopes[:1], preset.error):
        return FAILED
    url = first(scopes[:1], preset.url)
    if type(url) is str and not generates(url):
        return f"requests to {url.partition('?')[0]}, which generate nothing"
    return None


def generates(url: str) -> bool:
    """Return whether an endpoint is one of generation: others fill no KV cache that anyone reuses."""
    path = url.partition("?")[0].rstrip("/").lower()
    return path.rpartition("/")[2].rpartition(":")[2] in _GENERATING


def _usage(preset: Preset, scopes: tuple[Any, ...]) -> Usage:
    usage = usage_of(
        {
            name: value
            for name, paths in (
                ("prompt_tokens", preset.prompt),
                ("cached_tokens", preset.cached),
                ("completion_tokens", preset.output),
            )
            if (value := first(scopes, paths)) is not None
        }
    )
    if preset.counts is not None:
        usage |= preset.counts(first(scopes, preset.usage))
    elif preset.usage:
        merged: dict[str, Any] = {}
        for path in preset.usage:
            found = unpacked(find(scopes[0], path))
            merged.update(found if isinstance(found, dict) else {})
        usage |= usage_of(merged)
    for path in preset.answer:
        usage |= answer_usage(find(scopes[0], path))
    return usage


def _duration(scopes: tuple[Any, ...], paths: tuple[tuple[str, float], ...]) -> int | None:
    for path, us_per_unit in paths:
        value = first(scopes, (path,))
        if isinstance(value, (int, float)) and 0 <= value * us_per_unit < 2**62:
            return round(value * us_per_unit)
    return None


def _name(value: Any, paths: Paths) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise FieldError(paths[0], f"is {show(value)}, expected a string")

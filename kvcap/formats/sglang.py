r"""Logs of SGLang servers: ``--log-requests`` as JSON and as text, and ``--export-metrics-to-file``.

::

    {"timestamp": "2026-08-01T10:00:00.123456", "event": "request.received", "rid": "r1",
     "obj": {"rid": "r1", "text": null, "input_ids": [1, 2, 3, 4], "sampling_params": {"max_new_tokens": 8}}}
    [2025-08-04 11:51:41] Receive: obj=GenerateReqInput(rid='r1', text=None, input_ids=[151644, 8948], ...)
    {"request_parameters": "{\"rid\": \"r1\", \"input_ids\": [1, 2]}", "id": "r1", "completion_tokens": 2}

A request is logged when it is received and again when it finishes, and an OpenAI request once more before it
is rendered (``request.received.openai``, which has no rid): each ``rid`` counts once. Levels below 3 cut
long lists and texts and leave ``"..."`` in the middle; such a request is refused, since its blocks are not
those of the log. ``request_parameters`` is JSON inside a JSON string. A log whose first request has
``input_ids`` is read as token ids, any other as text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import orjson

from kvcap.formats.base import ReadReport
from kvcap.formats.bodies.openai import has_prompt
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import (
    PLAIN_VALUES,
    FieldError,
    Ids,
    Row,
    Skip,
    Values,
    an_object,
    inner_object,
    inside,
    optional_count,
    optional_number,
    optional_text,
    show,
)
from kvcap.formats.start_up_lines import start_up_line
from kvcap.formats.text_rows import body_from_json, body_text, checked_body

_CUT: Final = "..."
_CUT_REASON: Final = 'was cut by the server ("..."), expected all of it: log with --log-requests-level 3'
_OTHER_LINE: Final = "other lines of the server's log"
_LINE: Final = re.compile(
    rb"^\[?(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)[^\]]*\]? ?.*?"
    rb"(?P<event>Receive|Finish): obj=(?P<kind>\w+)\("
)
_RID: Final = re.compile(r"\brid='((?:[^'\\]|\\.)*)'")
_IDENTITY: Final = re.compile(r"\b(lora_path|lora_id|extra_key|cache_salt)='((?:[^'\\]|\\.)*)'")
_META: Final = re.compile(r"'(cached_tokens|completion_tokens|e2e_latency)': (\d+(?:\.\d+)?)\b")
_IDS: Final = re.compile(r"\binput_ids=(None|\[[^\]]*\])")


def _read_tokens(record: Any, values: Values) -> Iterator[Row | Skip]:
    record, obj = _unwrapped(record)
    if obj is None:
        yield Skip(_OTHER_LINE, start_up=record.get("start_up"))
        return
    if obj.get("input_ids") is None:
        if record.get("event") == "request.received.openai":
            yield Skip("OpenAI forms of requests that are logged with their token ids")
            return
        raise FieldError("obj.input_ids", "is missing, expected token ids as in the first records")
    row = _row(record, obj)
    ids = obj["input_ids"]
    if type(ids) is list and _CUT in ids:
        row.extra = (row.extra[0], row.extra[1], FieldError("obj.input_ids", _CUT_REASON))
    else:
        # What stands in a JSON string was decoded here: nothing was cut out of it.
        lists = PLAIN_VALUES if "request_parameters" in record else values
        with inside("obj"):
            row.ids = lists.tokens(ids, "input_ids")
    yield row


def _read_text(record: Any, values: Values) -> Iterator[Row | Skip]:
    record, obj = _unwrapped(record)
    if obj is None:
        yield Skip(_OTHER_LINE)
        return
    row = _row(record, obj)
    body = obj
    if not has_prompt(obj) and type(obj.get("text")) is str:
        body = {"prompt": obj["text"]}
    elif not has_prompt(obj) and obj.get("input_ids") is not None:
        with inside("obj"):
            body = {"prompt": values.tokens(obj["input_ids"], "input_ids").values.tolist()}
    elif not has_prompt(obj):
        raise FieldError("obj", "has no text, input_ids or messages, expected one of them")
    row.text = body_text(body)
    try:
        if _CUT in row.text and _is_cut(obj):
            raise FieldError("obj", _CUT_REASON)
        with inside("obj"):
            row.text = checked_body(body)[1]
    except FieldError as error:
        # The line of a finished request may be cut where the one that counts is whole.
        row.extra = (row.extra[0], row.extra[1], error)
    yield row


def _unwrapped(record: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a record and the request in it, None if it is about something else."""
    record = an_object(record, "obj or request_parameters")
    if "request_parameters" in record:
        return record, body_from_json(record["request_parameters"], "request_parameters")
    event = record.get("event")
    if type(event) is not str or not event.startswith(("request.received", "request.finished")):
        return record, None
    return record, inner_object(record, "obj")


def _row(record: dict[str, Any], obj: dict[str, Any]) -> Row:
    out = record.get("out")
    answered = out.get("meta_info") if isinstance(out, dict) else None
    with inside("out.meta_info") if isinstance(answered, dict) else nullcontext():
        answered = answered if isinstance(answered, dict) else record
        output = optional_count(answered, "completion_tokens")
        cached = optional_count(answered, "cached_tokens")
        latency_s = optional_number(answered, "e2e_latency")
    rid = optional_text(record, "rid", "id") or optional_text(obj, "rid")
    finished = record.get("event") == "request.finished" or "request_parameters" in record
    return Row(
        ids=Ids.empty(),
        timestamp=record.get("timestamp"),
        session=optional_text(obj, "session_id"),
        model=optional_text(obj, "model"),
        output_length=output,
        observed_cached_tokens=cached,
        duration_us=None if latency_s is None else round(latency_s * 1_000_000),
        extra=(rid, finished, None),
        record=obj,
    )


def _is_cut(value: Any) -> bool:
    """Return whether a text or list was cut: "..." as a list's item or between the halves of a text."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            if _CUT in item:
                return True
            stack.extend(item)
        elif isinstance(item, str) and " ... " in item:
            return True
    return False


_FURTHER: Final = "further lines of a request that is already counted"
_MOST_WAITING: Final = 256
_ANSWERED: Final = ("output_length", "observed_cached_tokens", "duration_us")


class _OncePerRid:
    """Count a request once, in the order of arrival, with what its answer says.

    A request waits for the line of its end, and those behind it with it, as long as no more wait than that.
    """

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._waiting: deque[Row] = deque()
        self._open: dict[str, Row | None] = {}
        self._report = report

    def __call__(self, row: Row) -> Row | Skip:
        rid, finished, error = row.extra
        if rid is not None and rid in self._open:
            if finished:
                known = self._open.pop(rid)
                for name in _ANSWERED if known is not None else ():
                    setattr(known, name, getattr(row, name))
        elif error is not None:
            raise error
        else:
            self._waiting.append(row)
            if rid is not None and not finished:
                self._open[rid] = row
        return self._next() or Skip(_FURTHER)

    def rest(self) -> list[Row]:
        """Return what still waits at the end of the log."""
        if self._waiting:
            self._report.skip(_FURTHER, -len(self._waiting))
        return list(self._waiting)

    def _next(self) -> Row | None:
        if not self._waiting:
            return None
        rid, _, _ = self._waiting[0].extra
        if rid is not None and self._open.get(rid) is self._waiting[0]:
            if len(self._waiting) <= _MOST_WAITING:
                return None
            # Its end may still come, and is no request then.
            self._open[rid] = None
        return self._waiting.popleft()


def _decode_text_line(text: bytes) -> Any:
    """Return a line of the text form as a record of the JSON form."""
    match = _LINE.match(text)
    if match is None:
        return {"start_up": start_up_line(text)}
    try:
        line = text.decode()
    except UnicodeDecodeError as error:
        raise FieldError("", f"is not UTF-8 (byte 0x{text[error.start]:02x}), expected UTF-8 text") from None
    # What follows out= is the answer; the request's own text may hold anything, so ids are looked for last.
    request, _, answer = line[match.end() :].partition("), out={")
    ids = None
    for found in _IDS.finditer(request):
        ids = found[1]
    rids = _RID.findall(request)
    # Other fields than its text come behind the ids.
    identity = dict(_IDENTITY.findall(request, request.rfind("input_ids=")))
    obj: dict[str, Any] = {"rid": rids[0] if rids else None, "input_ids": _ids(ids), **identity}
    event = "request.received" if match["event"] == b"Receive" else "request.finished"
    # The text that was generated comes first, and may say anything.
    meta = answer[answer.rfind("'meta_info': {") :] if "'meta_info': {" in answer else ""
    counts = {name: orjson.loads(number) for name, number in _META.findall(meta)}
    return {
        "timestamp": match["time"].decode(),
        "event": event,
        "rid": obj["rid"],
        "obj": obj,
        "out": {"meta_info": counts},
    }


def _ids(text: str | None) -> Any:
    if text is None or text == "None":
        return None
    if _CUT in text:
        return [_CUT]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise FieldError("obj.input_ids", f"is {show(text)}, expected a list of integers") from None


def _matches_text_line(line: Any) -> bool:
    return isinstance(line, bytes) and _LINE.match(line) is not None


def _matches_json(record: Any, *, with_ids: bool) -> bool:
    if not isinstance(record, dict):
        return False
    if has(record, "event", "obj") and isinstance(record["obj"], dict):
        return (record["obj"].get("input_ids") is not None) == with_ids
    if isinstance(record.get("request_parameters"), str):
        return ("input_ids" in record["request_parameters"]) == with_ids
    return False


SGLANG: Final = Dialect(
    name="sglang",
    summary="SGLang --log-requests (JSON) and --export-metrics-to-file, with input_ids",
    kind="token_ids",
    matches=lambda record: _matches_json(record, with_ids=True),
    read=_read_tokens,
    sequencer=_OncePerRid,
    timestamp_unit="s",
    refines=("sglang-text-requests",),
)

SGLANG_LINES: Final = Dialect(
    name="sglang-lines",
    summary="SGLang --log-requests as text: Receive: obj=GenerateReqInput(... input_ids=[...])",
    kind="token_ids",
    matches=_matches_text_line,
    read=_read_tokens,
    sequencer=_OncePerRid,
    decode=_decode_text_line,
)

SGLANG_TEXT: Final = Dialect(
    name="sglang-text-requests",
    summary="SGLang --log-requests (JSON) with text or messages (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: _matches_json(record, with_ids=False),
    read=_read_text,
    sequencer=_OncePerRid,
    timestamp_unit="s",
)

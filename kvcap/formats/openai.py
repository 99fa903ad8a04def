"""Request bodies: one a line, whichever API they are of, and input files of the Batch API.

::

    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "timestamp": 0, "session_id": "s"}
    {"system": "Be kind.", "messages": [...], "tools": [{"name": "f", "input_schema": {}}]}
    {"contents": [{"parts": [{"text": "hi"}]}]}
    {"text_input": "Hello world", "output_length": 4}
    {"session_id": "s", "message_mode": "delta", "messages": [...], "delay": 9}
    {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions",
     "body": {"model": "m", "messages": [...]}}

A body is whatever ``/v1/chat/completions``, ``/v1/responses``, ``/v1/completions``, ``/v1/messages``,
``generateContent`` or Converse takes; ``timestamp``, ``session_id`` and ``output_length`` may stand beside
its fields, and ``usage`` as the answer had it. ``text_input`` is AIPerf's name for ``prompt``. In a session
of ``message_mode`` delta a row adds to the rows before it; the answers between them are not in the log.
Requests of a batch for embeddings or moderation fill no KV cache that anyone reuses, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.errors import UsageError
from kvcap.formats.base import ReadReport
from kvcap.formats.bodies import is_body
from kvcap.formats.bodies.shapes import as_body, plain_body
from kvcap.formats.bodies.usage import answer_usage
from kvcap.formats.conversations import ENDS, read_body_turns
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.options import ReadOptions
from kvcap.formats.presets import generates
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_object,
    inside,
    is_list,
    optional_number,
    optional_text,
    show,
    whole_number,
)
from kvcap.formats.text_rows import body_text, text_row
from kvcap.formats.timestamps import number_of

WITHOUT_ANSWERS: Final = (
    "requests hold earlier turns of their session without the answers between them, which are not in the log"
)
_OUTPUT_NAMES: Final = ("output_length", "output_tokens")
_OF_REQUESTS: Final = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stream",
    "stop",
    "tool_choice",
    "continue_final_message",
    "message_mode",
    "usage",
    "response",
)
"""Fields that requests have and stored conversations do not."""

_SESSION_IN_USER: Final = "_session_"


def _read_body(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "messages, prompt or input")
    body = as_body(record, "")
    if is_list(body.get("messages")) and type(body["messages"]) is str:
        body = {**body, **as_body(body["messages"], "messages")}
    if not is_body(body):
        raise FieldError("", "has no prompt, expected messages, prompt, input, contents or text_input")
    row = text_row(body, answer_usage(record))
    row.timestamp = record.get("timestamp")
    row.session = optional_text(record, "session_id") or _session_of_user(record)
    for name in _OUTPUT_NAMES:
        count = whole_number(record.get(name))
        if count is not None and count >= 0:
            row.output_length = count
            break
    mode = record.get("message_mode")
    if mode not in (None, "history", "delta"):
        raise FieldError("message_mode", f"is {show(mode)}, expected history or delta")
    delay = optional_number(record, "delay") if mode is not None else None
    row.extra = (mode, delay, _may_be_conversation(record, body))
    yield row


def _may_be_conversation(record: dict[str, Any], body: dict[str, Any]) -> bool:
    """Return whether messages that end with an assistant turn may be a stored conversation."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    ends = isinstance(last, dict) and last.get("role") in ("assistant", "model", "ai")
    return ends and not any(record.get(key) is not None for key in _OF_REQUESTS)


def _session_of_user(record: dict[str, Any]) -> str | None:
    """Return the session that agents put into ``metadata.user_id`` of Anthropic bodies."""
    metadata = record.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if type(user) is not str:
        return None
    _, mark, session = user.rpartition(_SESSION_IN_USER)
    return session if mark and session else None


class _Deltas:
    """Make whole prompts of rows that only add to their session."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._all_are_deltas = options.session_mode == "delta"
        self._sessions: dict[str, tuple[dict[str, Any], Any]] = {}
        self._reading = options.conversations

    def __call__(self, row: Row) -> Row:
        if self._reading == "turns":
            return row
        mode, delay, may_be_conversation = row.extra
        if may_be_conversation and self._reading is None:
            raise UsageError(
                f"line {row.line}: the messages end with an assistant turn: it is a stored conversation, or "
                "a request that goes on with that turn; say which with --conversations turns (each assistant "
                "turn is a request) or --conversations whole (each record is one)"
            )
        if may_be_conversation:
            row.remarks = (*row.remarks, ENDS)
        is_delta = mode == "delta" or (mode is None and self._all_are_deltas)
        if row.session is None or not is_delta:
            return row
        body = orjson.loads(row.text or "{}")
        if "messages" not in body:
            raise FieldError(
                "messages", "is missing, expected the messages that this row adds to its session"
            )
        earlier, time = self._sessions.get(row.session, ({}, None))
        if earlier:
            body = {**earlier, **body, "messages": [*earlier["messages"], *body["messages"]]}
            row.text = body_text(body)
            row.remarks = (*row.remarks, WITHOUT_ANSWERS)
        if row.timestamp is None and time is not None and delay is not None:
            row.timestamp = time + delay
        number = number_of(row.timestamp)
        self._sessions[row.session] = (body, None if number is None else float(number))
        return row


def _read_batch(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "url and body")
    url = record.get("url")
    if type(url) is not str:
        raise FieldError("url", f"is {show(url)}, expected the path of an endpoint")
    if not generates(url):
        yield Skip(f"requests to {url}, which generate nothing")
        return
    body = inner_object(record, "body")
    with inside("body"):
        row = text_row(plain_body(body))
    row.record = body
    yield row


def _matches_body(record: Any) -> bool:
    return isinstance(record, dict) and (
        has(record, "messages")
        or has(record, "text_input")
        or has(record, "prompt")
        or isinstance(record.get("inputs"), str)
        or has(record, "model", "input")
        or (isinstance(record.get("input"), list) and is_list(record["input"]))
        or (has(record, "contents") and isinstance(record["contents"], list))
    )


OPENAI_REQUESTS: Final = Dialect(
    name="openai-requests",
    summary="request bodies of any API, one a line: messages, prompt, input or contents (needs a tokenizer)",
    kind="request_json",
    matches=_matches_body,
    read=_read_body,
    sequencer=_Deltas,
    refines=("token-ids",),
    read_turns=read_body_turns,
    read_whole=_read_body,
)

OPENAI_BATCH: Final = Dialect(
    name="openai-batch",
    summary="input files of the OpenAI Batch API (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "custom_id", "url", "body"),
    read=_read_batch,
)

"""Requests of text, as the OpenAI-compatible body that a tokenizer renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kvcap.formats.bodies import openai_body
from kvcap.formats.bodies.usage import Usage
from kvcap.formats.bodies.whole import check_whole
from kvcap.formats.identity import identity_of
from kvcap.formats.rows import FieldError, Row, optional_text, show
from kvcap.formats.timestamps import detect_unit, to_microseconds

_RENDERED: Final = (
    "model",
    "messages",
    "prompt",
    "input",
    "instructions",
    "tools",
    "documents",
    "reasoning",
    "reasoning_effort",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
"""Fields of a body that its prompt depends on."""

FAILED: Final = "calls that failed"
_FAILURES: Final = {"failure", "failed", "error", "timeout", "cancelled", "canceled"}


def text_row(body: Mapping[str, Any], usage: Usage | None = None, **columns: Any) -> Row:
    """Return the row of a request that a body of any API says, checked as a replay checks it.

    Parameters
    ----------
    body
        As it was sent.
    usage
        What the answer says of tokens. The prompt's count is compared with what is tokenized.
    columns
        Further columns of the row; ``model`` is the body's where there is none.

    Raises
    ------
    FieldError
        If the body is none that can be rendered, or one whose text was cut.
    """
    request, text, remarks = checked_body(dict(body))
    row = Row(text=text, remarks=tuple(remarks), **columns)
    row.identity = row.identity or identity_of(body)
    if row.model is None:
        row.model = optional_text(request, "model")
    if usage is not None:
        row.input_length = usage.prompt if row.input_length is None else row.input_length
        row.output_length = usage.output if row.output_length is None else row.output_length
        row.observed_cached_tokens = usage.cached
    return row


def checked_body(body: dict[str, Any]) -> tuple[dict[str, Any], str, list[str]]:
    """Return a body of any API as an OpenAI-compatible one, its JSON, and remarks on it.

    Raises
    ------
    FieldError
        If the body is none that can be rendered, or one whose text was cut.
    """
    request, remarks = openai_body(body)
    text = body_text(request)
    check_whole(request, text)
    return request, text, remarks


def body_text(body: Mapping[str, Any]) -> str:
    """Return a request body as JSON text.

    Raises
    ------
    FieldError
        If it cannot be written, such as for half a surrogate pair.
    """
    try:
        return orjson.dumps(body).decode()
    except TypeError:
        # What no prompt is made of may hold anything: half a character, an integer beyond 64 bits.
        kept = {key: body[key] for key in _RENDERED if key in body}
    try:
        return orjson.dumps(kept).decode()
    except TypeError as error:
        raise FieldError("", f"cannot be written as JSON ({error}), expected a request body") from None


def body_from_json(text: Any, field: str) -> dict[str, Any]:
    """Return a body that a log holds as an object, or as JSON inside a string.

    Raises
    ------
    FieldError
        If it is neither.
    """
    if type(text) is dict:
        return text
    if type(text) is not str:
        raise FieldError(field, f"is {show(text)}, expected a JSON object in a string")
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FieldError(field, f"is {show(text)}, expected a JSON object ({error.msg})") from None
    if type(body) is not dict:
        raise FieldError(field, f"is {show(body)}, expected a JSON object")
    return body


def has_failed(status: Any) -> bool:
    """Return whether a status is an HTTP error, or says so in words."""
    if type(status) is str:
        word = status.strip().lower()
        return int(word) >= 400 if word.isdecimal() and len(word) < 9 else word in _FAILURES
    return type(status) in (int, float) and status >= 400


def microseconds_between(begin: Any, end: Any, unit: Any) -> int | None:
    """Return the time from one timestamp to a later one, or None where either is missing or no time."""
    if begin in (None, "") or end in (None, ""):
        return None
    try:
        unit = detect_unit([begin, end]) or unit
        duration = to_microseconds(end, unit) - to_microseconds(begin, unit)
    except FieldError:
        return None
    return duration if duration >= 0 else None

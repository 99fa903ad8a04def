"""Requests of text, as the OpenAI-compatible body that a tokenizer renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kvcap.formats.rows import FieldError, show


def body_text(body: Mapping[str, Any]) -> str:
    """Return a request body as JSON text."""
    return orjson.dumps(body).decode()


def body_from_json(text: Any, field: str) -> dict[str, Any]:
    """Return a body that a log holds as JSON inside a string.

    Raises
    ------
    FieldError
        If it is no string with a JSON object in it.
    """
    if type(text) is not str:
        raise FieldError(field, f"is {show(text)}, expected a JSON object in a string")
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FieldError(field, f"is {show(text)}, expected a JSON object ({error.msg})") from None
    if type(body) is not dict:
        raise FieldError(field, f"is {show(body)}, expected a JSON object")
    return body


def has_prompt(body: Any) -> bool:
    """Return whether a body holds something to prefill."""
    return isinstance(body, dict) and any(
        body.get(key) is not None for key in ("messages", "prompt", "input")
    )

"""OpenAI-compatible requests: one body a line, and input files of the Batch API.

::

    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "timestamp": 0, "session_id": "s"}
    {"text_input": "Hello world", "output_length": 4}
    {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions",
     "body": {"model": "m", "messages": [...]}}

A body is whatever ``/v1/chat/completions``, ``/v1/responses`` or ``/v1/completions`` takes; ``timestamp``,
``session_id`` and ``output_length`` may stand beside its fields. ``text_input`` is AIPerf's name for
``prompt``. Requests of a batch for embeddings or moderation fill no KV cache that anyone reuses, and are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_object,
    inside,
    optional_count,
    optional_text,
    show,
)
from kvcap.formats.text_rows import body_text, has_prompt

_GENERATING: Final = ("/chat/completions", "/completions", "/responses")


def _read_body(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "messages, prompt or input")
    body = record
    if "text_input" in record and not has_prompt(record):
        body = {("prompt" if key == "text_input" else key): value for key, value in record.items()}
    if not has_prompt(body):
        raise FieldError("", "has no prompt, expected messages, prompt, input or text_input")
    yield Row(
        text=body_text(body),
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model"),
        output_length=optional_count(record, "output_length"),
    )


def _read_batch(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "url and body")
    url = record.get("url")
    if type(url) is not str:
        raise FieldError("url", f"is {show(url)}, expected the path of an endpoint")
    if not url.rstrip("/").endswith(_GENERATING):
        yield Skip(f"requests to {url}, which generate nothing")
        return
    body = inner_object(record, "body")
    if not has_prompt(body):
        raise FieldError("body", "has no prompt, expected messages, prompt or input")
    with inside("body"):
        yield Row(text=body_text(body), model=optional_text(body, "model"), record=body)


OPENAI_REQUESTS: Final = Dialect(
    name="openai-requests",
    summary="OpenAI request bodies, one a line: messages, prompt, input or text_input (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: (
        has(record, "messages")
        or has(record, "text_input")
        or has(record, "prompt")
        or has(record, "model", "input")
    ),
    read=_read_body,
)

OPENAI_BATCH: Final = Dialect(
    name="openai-batch",
    summary="input files of the OpenAI Batch API (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "custom_id", "url", "body"),
    read=_read_batch,
)

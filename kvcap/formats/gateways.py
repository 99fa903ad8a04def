r"""What gateways and serving platforms record: LiteLLM, SageMaker data capture, AIBrix, and plain exports.

::

    {"id": "chatcmpl-1", "call_type": "acompletion", "status": "success", "startTime": 1730000000.1,
     "model": "m", "messages": [...], "model_parameters": {"tools": []}}
    {"captureData": {"endpointInput": {"data": "{\"messages\": [...]}", "encoding": "JSON"}},
     "eventMetadata": {"inferenceTime": "2026-04-29T00:03:18Z"}}
    {"timestamp": 6011, "requests": [{"Prompt Length": 3, "Output Length": 22, "prompt": "Where is Beijing"}]}
    timestamp,status,model,request_json                     (a CSV or Parquet export)

LiteLLM's times are seconds, tools stand in ``model_parameters``, and calls that are no completion or that
failed are left out. SageMaker holds the body as a string, in base64 where ``encoding`` says so. AIBrix puts
several requests of one time (milliseconds) on a line. An export has the body in ``request_json``; rows whose
``status`` is an HTTP error, or says so in words, are left out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inner_object,
    inside,
    optional_count,
    optional_text,
    show,
)
from kvcap.formats.text_rows import body_from_json, body_text

_FAILED: Final = "calls that failed"
_FAILURES: Final = {"failure", "failed", "error", "timeout", "cancelled", "canceled"}
_BODY_PARAMETERS: Final = ("tools", "functions", "chat_template_kwargs", "documents")


def _read_litellm(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "messages")
    if record.get("status") == "failure":
        yield Skip(_FAILED)
        return
    call = record.get("call_type")
    if type(call) is str and "completion" not in call and "responses" not in call:
        yield Skip(f"calls of type {call}, which generate nothing")
        return
    messages = record.get("messages")
    body: dict[str, Any] = {"model": record.get("model")}
    if type(messages) is list:
        body["messages"] = messages
    elif type(messages) is str:
        body["prompt"] = messages
    else:
        raise FieldError(
            "messages", f"is {show(messages)}, expected a list: is message logging turned off in LiteLLM?"
        )
    parameters = record.get("model_parameters")
    if isinstance(parameters, dict):
        body.update((key, parameters[key]) for key in _BODY_PARAMETERS if parameters.get(key))
    yield Row(
        text=body_text(body),
        timestamp=record.get("startTime"),
        session=optional_text(record, "trace_id"),
        model=optional_text(record, "model"),
        output_length=optional_count(record, "completion_tokens"),
    )


def _read_sagemaker(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "captureData")
    with inside("captureData"):
        capture = inner_object(inner_object(record, "captureData"), "endpointInput")
    field = "captureData.endpointInput.data"
    data = capture.get("data")
    if capture.get("encoding") == "BASE64":
        try:
            data = base64.b64decode(data or "", validate=True).decode()
        except (TypeError, ValueError, binascii.Error):
            raise FieldError(field, "is not base64 of UTF-8 text, expected a body") from None
    body = body_from_json(data, field)
    if "inputs" in body and "prompt" not in body:
        body["prompt"] = body.pop("inputs")
    metadata = record.get("eventMetadata")
    yield Row(
        text=body_text(body),
        timestamp=metadata.get("inferenceTime") if isinstance(metadata, dict) else None,
        model=optional_text(body, "model"),
        record=body,
    )


def _read_aibrix(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "requests")
    requests = inner_list(record, "requests")
    if not requests:
        yield Skip("lines without a request")
    for index, item in enumerate(requests):
        with inside(f"requests[{index}]"):
            entry = an_object(item, "prompt")
            prompt = entry.get("prompt")
            if type(prompt) is not str:
                raise FieldError("prompt", f"is {show(prompt)}, expected text")
            output = "output_length" if "output_length" in entry else "Output Length"
            row = Row(
                text=body_text({"prompt": prompt}),
                timestamp=record.get("timestamp"),
                session=optional_text(entry, "session_id"),
                model=optional_text(entry, "model"),
                output_length=optional_count(entry, output),
                record=entry,
            )
        yield row


def _read_export(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "request_json")
    if _has_failed(record.get("status")):
        yield Skip(_FAILED)
        return
    body = record.get("request_json")
    if type(body) is not dict:
        body = body_from_json(body, "request_json")
    yield Row(
        text=body_text(body),
        timestamp=record.get("timestamp") if record.get("timestamp") != "" else None,
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model") or optional_text(body, "model"),
    )


def _has_failed(status: Any) -> bool:
    if type(status) is str:
        word = status.strip().lower()
        return int(word) >= 400 if word.isdecimal() else word in _FAILURES
    return type(status) in (int, float) and status >= 400


def _is_aibrix(record: Any) -> bool:
    if not has(record, "requests") or not isinstance(record["requests"], list) or not record["requests"]:
        return False
    return has(record["requests"][0], "prompt")


LITELLM: Final = Dialect(
    name="litellm",
    summary="LiteLLM standard logging payloads (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "messages") and (has(record, "call_type") or has(record, "startTime")),
    read=_read_litellm,
    timestamp_unit="s",
)

SAGEMAKER: Final = Dialect(
    name="sagemaker",
    summary="Amazon SageMaker data capture (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "captureData"),
    read=_read_sagemaker,
)

AIBRIX: Final = Dialect(
    name="aibrix",
    summary="AIBrix workloads: several requests of text a line (needs a tokenizer)",
    kind="request_json",
    matches=_is_aibrix,
    read=_read_aibrix,
)

EXPORT: Final = Dialect(
    name="request-json",
    summary="gateway exports with a request_json column, as CSV, Parquet or JSON Lines (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "request_json"),
    read=_read_export,
)

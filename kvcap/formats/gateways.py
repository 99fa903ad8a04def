r"""What needs more than a path to its body: LiteLLM's logs and SageMaker data capture.

::

    {"id": "chatcmpl-1", "call_type": "acompletion", "status": "success", "startTime": 1730000000.1,
     "model": "m", "messages": [...], "model_parameters": {"tools": []}}
    {"request_id": "r", "call_type": "anthropic_messages", "messages": "{}", "session_id": "s",
     "proxy_server_request": {"system": "Be kind.", "messages": [...]}, "cache_hit": "False"}
    {"captureData": {"endpointInput": {"data": "{\"messages\": [...]}", "encoding": "JSON"}},
     "eventMetadata": {"inferenceTime": "2026-04-29T00:03:18Z"}}

LiteLLM's times are seconds; tools and an Anthropic ``system`` stand in ``model_parameters``. Spend logs have
an empty object for messages and the body, if at all, in ``proxy_server_request``. Calls that generate
nothing, that failed, or that LiteLLM answered from its own cache never reached an engine and are left out.
SageMaker holds the body as a string, in base64 where ``encoding`` says so.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.bodies import is_body
from kvcap.formats.bodies.shapes import as_body, plain_body
from kvcap.formats.bodies.usage import Usage, answer_usage, usage_of
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.paths import find
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_object,
    inside,
    optional_text,
    show,
)
from kvcap.formats.text_rows import FAILED, microseconds_between, text_row

_GENERATING: Final = ("completion", "responses", "messages", "generate_content")
_PASSED_THROUGH: Final = ("pass_through", "passthrough")
_NOTHING: Final = (None, "", "{}", "[]", "null")
_BODY_PARAMETERS: Final = (
    "system",
    "tools",
    "functions",
    "chat_template_kwargs",
    "documents",
    "instructions",
)
_LOGGING_IS_OFF: Final = (
    "has no prompt (messages is {}): is message logging turned off in LiteLLM? Set "
    "store_prompts_in_spend_logs, or unset turn_off_message_logging"
)


def _read_litellm(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "messages")
    skip = _litellm_skip(record)
    if skip is not None:
        yield Skip(skip)
        return
    body = _litellm_body(record)
    call = record.get("call_type")
    if body is None and type(call) is str and any(word in call for word in _PASSED_THROUGH):
        yield Skip(f"calls of type {call} without a prompt")
        return
    if body is None:
        raise FieldError("messages", f"is {show(record.get('messages'))}: the record {_LOGGING_IS_OFF}")
    begin = record.get("startTime")
    yield text_row(
        body,
        _litellm_usage(record),
        timestamp=begin if begin != "" else None,
        session=optional_text(record, "trace_id", "session_id") or None,
        model=optional_text(record, "model") or None,
        instance=optional_text(record, "model_id") or None,
        ttft_us=microseconds_between(begin, record.get("completionStartTime"), "s"),
        duration_us=microseconds_between(begin, record.get("endTime"), "s"),
    )


def _litellm_skip(record: dict[str, Any]) -> str | None:
    """Return why a call never reached an engine as a request, if it did not."""
    if record.get("status") == "failure":
        return FAILED
    call = record.get("call_type")
    if type(call) is str and call and not any(word in call for word in (*_GENERATING, *_PASSED_THROUGH)):
        return f"calls of type {call}, which generate nothing"
    if str(record.get("cache_hit")).lower() == "true":
        return "calls that LiteLLM answered from its own cache, which never reached an engine"
    return None


def _litellm_body(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the body of a call: its messages and parameters, else what the proxy received."""
    messages = record.get("messages")
    if isinstance(messages, dict | list | str) and messages and messages not in _NOTHING:
        body = as_body(messages, "messages", takes_text=True)
        parameters = record.get("model_parameters")
        if isinstance(parameters, dict):
            more = {key: parameters[key] for key in _BODY_PARAMETERS if parameters.get(key)}
            body = {**more, **body}
        return plain_body({"model": record.get("model"), **body})
    received = record.get("proxy_server_request")
    if received in _NOTHING or not received:
        return None
    received = as_body(received, "proxy_server_request")
    for path in ("body", ""):
        body = find(received, path)
        if is_body(body):
            return plain_body(body)
    return None


def _litellm_usage(record: dict[str, Any]) -> Usage:
    usage = usage_of(
        {
            name: record[name]
            for name in ("prompt_tokens", "completion_tokens")
            if record.get(name) is not None
        }
    )
    for path in ("metadata.usage_object", "metadata.additional_usage_values", "response.usage"):
        usage |= usage_of(find(record, path))
    return usage | answer_usage(record.get("response"))


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
    body = as_body(data, field)
    output = find(record, "captureData.endpointOutput.data")
    with inside(field):
        row = text_row(plain_body(body), answer_usage(output))
    row.timestamp = find(record, "eventMetadata.inferenceTime")
    row.record = body
    yield row


def _is_litellm(record: Any) -> bool:
    if not has(record, "messages"):
        return False
    if has(record, "call_type"):
        return True
    messages = record["messages"]
    holds_roles = isinstance(messages, list) and messages and has(messages[0], "role")
    return has(record, "startTime") and (holds_roles or not isinstance(messages, list))


LITELLM: Final = Dialect(
    name="litellm",
    summary="LiteLLM standard logging payloads and spend logs (needs a tokenizer)",
    kind="request_json",
    matches=_is_litellm,
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

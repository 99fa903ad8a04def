r"""OpenTelemetry spans with generative AI attributes, as the collector's file exporter has them (OTLP JSON).

::

    {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "1730000000000000000", "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.input.messages", "value": {"stringValue": "[{\"role\": \"user\", ...}]"}}]}]}]}]}

A line holds many spans, written when they end, so requests are put in the order of their start. Messages are
JSON in a string, made of parts (``text``, ``tool_call``, ``tool_call_response``);
``gen_ai.system_instructions`` goes first and ``gen_ai.tool.definitions`` are the tools. They are recorded
only where content capture is on (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT). Spans of other things
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inside,
    optional_text,
    show,
)
from kvcap.formats.text_rows import body_text

_MESSAGES: Final = "gen_ai.input.messages"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
_OPERATIONS: Final = {"chat", "text_completion", "generate_content"}


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "resourceSpans")
    n_spans = 0
    for i, resource in enumerate(inner_list(record, "resourceSpans")):
        with inside(f"resourceSpans[{i}]"):
            scopes = inner_list(an_object(resource, "scopeSpans"), "scopeSpans")
        for j, scope in enumerate(scopes):
            path = f"resourceSpans[{i}].scopeSpans[{j}]"
            with inside(path):
                spans = inner_list(an_object(scope, "spans"), "spans")
            for k, span in enumerate(spans):
                n_spans += 1
                with inside(f"{path}.spans[{k}]"):
                    item = _span(an_object(span, "attributes"))
                yield item
    if n_spans == 0:
        yield Skip("lines without a span")


def _span(span: dict[str, Any]) -> Row | Skip:
    attributes = _attributes(span.get("attributes") or [])
    operation = attributes.get("gen_ai.operation.name")
    if operation is None and _MESSAGES not in attributes:
        return Skip("spans of other things")
    if operation is not None and (type(operation) is not str or operation not in _OPERATIONS):
        return Skip(f"spans of operation {show(operation)}")
    if _MESSAGES not in attributes:
        raise FieldError(_MESSAGES, "is missing, expected messages: is content capture turned on?")
    messages = [_message(message) for message in _json_list(attributes, _MESSAGES)]
    if _INSTRUCTIONS in attributes:
        text = "\n".join(_text_of(part) for part in _json_list(attributes, _INSTRUCTIONS))
        messages.insert(0, {"role": "system", "content": text})
    body: dict[str, Any] = {"model": attributes.get("gen_ai.request.model"), "messages": messages}
    if _TOOLS in attributes:
        body["tools"] = [_tool(tool) for tool in _json_list(attributes, _TOOLS)]
    output = attributes.get("gen_ai.usage.output_tokens")
    return Row(
        text=body_text(body),
        timestamp=_nanoseconds(span),
        session=optional_text(attributes, "gen_ai.conversation.id"),
        model=optional_text(attributes, "gen_ai.request.model", "gen_ai.response.model"),
        output_length=output if type(output) is int and output >= 0 else None,
        record=attributes,
    )


def _attributes(entries: Any) -> dict[str, Any]:
    if type(entries) is not list:
        raise FieldError("attributes", f"is {show(entries)}, expected a list")
    return {
        entry["key"]: _value(entry.get("value"))
        for entry in entries
        if has(entry, "key") and type(entry["key"]) is str
    }


def _value(value: Any, depth: int = 0) -> Any:
    """Return an OTLP value (``stringValue``, ``intValue``, ``arrayValue`` ...) as a plain one."""
    if type(value) is not dict or len(value) != 1 or depth > 50:
        return None
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return (
            int(inner)
            if type(inner) is int or (type(inner) is str and inner.lstrip("-").isdecimal())
            else None
        )
    if kind == "arrayValue" and isinstance(inner, dict):
        return [_value(item, depth + 1) for item in _entries(inner)]
    if kind == "kvlistValue" and isinstance(inner, dict):
        return {
            item["key"]: _value(item.get("value"), depth + 1)
            for item in _entries(inner)
            if has(item, "key") and type(item["key"]) is str
        }
    return inner


def _entries(inner: dict[str, Any]) -> list[Any]:
    values = inner.get("values")
    return values if type(values) is list else []


def _json_list(attributes: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = attributes[name]
    if type(value) is str:
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise FieldError(name, f"is {show(value)}, expected a JSON list ({error.msg})") from None
    if type(value) is not list or not all(type(item) is dict for item in value):
        raise FieldError(name, f"is {show(value)}, expected a list of objects")
    return value


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the shape of the chat API."""
    parts = message.get("parts")
    result: dict[str, Any] = {"role": message.get("role", "user")}
    if type(parts) is not list:
        result["content"] = message.get("content")
        return result
    parts = [part for part in parts if type(part) is dict]
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    if answers:
        response = answers[0].get("response", answers[0].get("result"))
        content = response if type(response) is str else orjson.dumps(response).decode()
        return {"role": "tool", "tool_call_id": answers[0].get("id"), "content": content}
    texts = [_text_of(part) for part in parts if part.get("type", "text") == "text"]
    result["content"] = "".join(texts) if texts else None
    calls = [part for part in parts if part.get("type") == "tool_call"]
    if calls:
        result["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("name"), "arguments": _arguments(call.get("arguments"))},
            }
            for call in calls
        ]
    return result


def _text_of(part: dict[str, Any]) -> str:
    content = part.get("content", "")
    return content if type(content) is str else orjson.dumps(content).decode()


def _arguments(arguments: Any) -> str:
    return arguments if type(arguments) is str else orjson.dumps(arguments or {}).decode()


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" in tool:
        return tool
    function = {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
    return {"type": "function", "function": function}


def _nanoseconds(span: dict[str, Any]) -> Any:
    """Return the start in microseconds as an exact decimal, whatever unit other numbers have."""
    value = span.get("startTimeUnixNano")
    if type(value) not in (int, str):
        raise FieldError("startTimeUnixNano", f"is {show(value)}, expected nanoseconds")
    return value


OTEL: Final = Dialect(
    name="otel",
    summary="OpenTelemetry gen_ai spans with captured content, OTLP JSON lines (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "resourceSpans"),
    read=_read,
    timestamp_unit="ns",
    by_time=True,
)

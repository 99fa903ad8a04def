"""Requests in attributes of spans: OpenTelemetry's own, OpenInference's and older OpenLLMetry's.

::

    gen_ai.input.messages             [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    llm.input_messages.0.message.role      user                    (OpenInference, Phoenix)
    llm.input_messages.0.message.content   hi
    gen_ai.prompt.0.role                   user                    (OpenLLMetry before 2026)
    gen_ai.prompt.0.content                hi

Every part of a message counts: several answers of tools, text beside them, reasoning; what is no text is an
image or the like.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from kvcap.formats.bodies.shapes import as_body, plain_body
from kvcap.formats.bodies.turns import Json, Turn, json_text
from kvcap.formats.bodies.usage import Usage, usage_of
from kvcap.formats.paths import find
from kvcap.formats.rows import FieldError, inside, optional_text, show

MESSAGES: Final = "gen_ai.input.messages"
OPERATION: Final = "gen_ai.operation.name"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
_GENERATING: Final = {"chat", "text_completion", "generate_content"}
_KIND: Final = "openinference.span.kind"
_INFERENCE_MESSAGES: Final = "llm.input_messages"
_LLMETRY_MESSAGES: Final = "gen_ai.prompt"
_MEDIA: Final = ("image", "audio", "video")
_MODELS: Final = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
_SESSIONS: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
_COUNTS: Final = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
}


def reason_to_skip(attributes: Json) -> str | None:
    """Return what a span is, if it is no request."""
    operation = attributes.get(OPERATION)
    kind = attributes.get(_KIND)
    if operation is not None:
        if type(operation) is not str or operation not in _GENERATING:
            return f"spans of operation {show(operation)}"
        return None
    if kind is not None:
        return None if kind == "LLM" else f"spans of kind {show(kind)}"
    holds_prompt = MESSAGES in attributes or any(
        _items(attributes, name) for name in (_INFERENCE_MESSAGES, _LLMETRY_MESSAGES)
    )
    return None if holds_prompt else "spans of other things"


def body_of(attributes: Json) -> Json:
    """Return the request body that the attributes of a span hold.

    Raises
    ------
    FieldError
        If they hold none, or a part of one that is not known.
    """
    if MESSAGES in attributes:
        body = _semantic_body(attributes)
    elif found := _items(attributes, _INFERENCE_MESSAGES):
        body = _inference_body(attributes, found)
    elif found := _items(attributes, _LLMETRY_MESSAGES):
        body = _llmetry_body(attributes, found)
    elif isinstance(attributes.get("input.value"), str):
        body = plain_body(as_body(attributes["input.value"], "input.value", takes_text=True))
    else:
        raise FieldError(MESSAGES, "is missing, expected messages: is content capture turned on?")
    return {"model": model_of(attributes), **body}


def model_of(attributes: Json) -> str | None:
    """Return the model that a span names."""
    return optional_text(attributes, *_MODELS)


def session_of(attributes: Json) -> str | None:
    """Return the session that a span names."""
    return optional_text(attributes, *_SESSIONS)


def counts_of(attributes: Json) -> Usage:
    """Return what a span says of tokens."""
    return usage_of(
        {
            name: attributes[path]
            for name, paths in _COUNTS.items()
            for path in reversed(paths)
            if attributes.get(path) is not None
        }
    )


def _semantic_body(attributes: Json) -> Json:
    messages: list[Json] = []
    if _INSTRUCTIONS in attributes:
        texts = [_text_of(part) for part in _json_list(attributes, _INSTRUCTIONS)]
        messages.append({"role": "system", "content": "\n".join(texts)})
    for index, message in enumerate(_json_list(attributes, MESSAGES)):
        with inside(f"{MESSAGES}[{index}]"):
            messages.extend(_messages(message))
    body: Json = {"messages": messages}
    if _TOOLS in attributes:
        body["tools"] = [_tool(tool) for tool in _json_list(attributes, _TOOLS)]
    return body


def _messages(message: Json) -> list[Json]:
    """Return a message of parts in the shape of the chat API."""
    parts, role = message.get("parts"), message.get("role", "user")
    if type(role) is not str:
        raise FieldError("role", f"is {show(role)}, expected a string")
    if type(parts) is not list:
        return [{"role": role, "content": message.get("content")}]
    turn = Turn(role)
    for index, part in enumerate(parts):
        with inside(f"parts[{index}]"):
            if type(part) is not dict:
                raise FieldError("", f"is {show(part)}, expected a part")
            _add_part(turn, part)
    return turn.messages()


def _add_part(turn: Turn, part: Json) -> None:
    kind = part.get("type", "text")
    if kind == "text":
        turn.text(_text_of(part))
    elif kind in ("reasoning", "thinking"):
        turn.reasoning(_text_of(part))
    elif kind == "tool_call":
        turn.call(part.get("name"), part.get("arguments"), part.get("id"))
    elif kind == "tool_call_response":
        turn.answer(json_text(part.get("response", part.get("result"))), part.get("id"))
    elif kind in ("blob", "uri", "file", *_MEDIA):
        medium = part.get("modality") if kind not in _MEDIA else kind
        content = {key: value for key, value in part.items() if key not in ("type", "modality")}
        turn.medium(medium if medium in _MEDIA else "file", content)
    else:
        raise FieldError(
            "type", f"is {show(kind)}, expected text, reasoning, a tool call, its response or a medium"
        )


def _inference_body(attributes: Json, items: list[Json]) -> Json:
    messages = []
    for item in items:
        message: Json = {
            "role": find(item, "message.role"),
            "content": find(item, "message.content"),
            "tool_call_id": find(item, "message.tool_call_id"),
        }
        contents = _items(item, "message.contents")
        if message["content"] is None and contents:
            message["content"] = [_inference_part(part) for part in contents]
        calls = _items(item, "message.tool_calls")
        message["tool_calls"] = [
            _call(
                find(call, "tool_call.function.name"),
                find(call, "tool_call.function.arguments"),
                find(call, "tool_call.id"),
            )
            for call in calls
        ] or None
        messages.append(
            {key: value for key, value in message.items() if value is not None or key == "content"}
        )
    tools = [find(item, "tool.json_schema") for item in _items(attributes, "llm.tools")]
    parsed = [_parsed(tool, "llm.tools") for tool in tools if tool is not None]
    return {"messages": messages, **({"tools": [_tool(tool) for tool in parsed]} if parsed else {})}


def _inference_part(item: Json) -> Json:
    kind = find(item, "message_content.type") or "text"
    if kind in _MEDIA:
        return {"type": kind, kind: find(item, f"message_content.{kind}.{kind}.url")}
    return {"type": kind, "text": find(item, "message_content.text")}


def _llmetry_body(attributes: Json, items: list[Json]) -> Json:
    if attributes.get("llm.request.type") == "completion":
        return {"prompt": find(items[-1], "content")}
    messages = []
    for item in items:
        content = find(item, "content")
        if type(content) is str and content[:2] in ("[{", '{"'):
            # Parts of a message stand there as JSON.
            parsed = _json_or_none(content)
            content = parsed if isinstance(parsed, list) else content
        message = {"role": find(item, "role"), "content": content, "tool_call_id": find(item, "tool_call_id")}
        calls = _items(item, "tool_calls")
        message["tool_calls"] = [
            _call(find(call, "name"), find(call, "arguments"), find(call, "id")) for call in calls
        ] or None
        messages.append(
            {key: value for key, value in message.items() if value is not None or key == "content"}
        )
    tools = []
    for item in _items(attributes, "llm.request.functions"):
        parameters = find(item, "parameters")
        function = {
            "name": find(item, "name"),
            "description": find(item, "description"),
            "parameters": _parsed(parameters, "llm.request.functions") if parameters is not None else None,
        }
        tools.append(_tool({key: value for key, value in function.items() if value is not None}))
    return {"messages": messages, **({"tools": tools} if tools else {})}


def _items(attributes: Json, prefix: str) -> list[Json]:
    """Return the items of a list that is spread over keys (``PREFIX.0.role``), or stands there as one."""
    listed = attributes.get(prefix)
    if isinstance(listed, list):
        return [item for item in listed if isinstance(item, dict)]
    spread: dict[int, Json] = {}
    for key, value in attributes.items():
        if key.startswith(prefix + "."):
            index, _, rest = key[len(prefix) + 1 :].partition(".")
            if index.isdecimal() and len(index) < 9 and rest:
                spread.setdefault(int(index), {})[rest] = value
    return [spread[index] for index in sorted(spread)]


def _json_list(attributes: Json, name: str) -> list[Json]:
    value = _parsed(attributes[name], name)
    if type(value) is not list or not all(type(item) is dict for item in value):
        raise FieldError(name, f"is {show(value)}, expected a list of objects")
    return value


def _parsed(value: Any, name: str) -> Any:
    if type(value) is not str:
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise FieldError(name, f"is {show(value)}, expected a JSON list ({error.msg})") from None


def _json_or_none(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _call(name: Any, arguments: Any, call_id: Any) -> Json:
    function = {"name": name, "arguments": json_text(arguments if arguments is not None else {})}
    return {"id": call_id, "type": "function", "function": function}


def _text_of(part: Json) -> str:
    return json_text(part.get("content", part.get("text", "")))


def _tool(tool: Any) -> Json:
    if not isinstance(tool, dict):
        raise FieldError("tools", f"hold {show(tool)}, expected an object")
    if "function" in tool:
        return tool
    function = {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
    if "input_schema" in tool:
        function["parameters"] = tool["input_schema"]
    return {"type": "function", "function": function}

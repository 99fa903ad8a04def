"""Bodies as loggers leave them: an object, its JSON in a string, the messages alone, or plain text."""

from __future__ import annotations

from typing import Any, Final

import orjson

from kvcap.formats.bodies.turns import Json, function_tool, json_text
from kvcap.formats.rows import FieldError, inside, show

PROMPT_NAMES: Final = ("inputs", "inputText", "text_input")
"""Other names of ``prompt``: TGI and SageMaker, Titan, Triton."""

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "prompter": "user",
    "agent": "assistant",
    "AIMessage": "assistant",
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "AIMessageChunk": "assistant",
    "observation": "tool",
    "function_response": "tool",
}


def as_body(value: Any, field: str, *, takes_text: bool = False) -> Json:
    """Return a body from what stands where a log holds one.

    Parameters
    ----------
    value
        What was found.
    field
        Where.
    takes_text
        Whether text that is not JSON is a prompt.

    Raises
    ------
    FieldError
        If no body can be made of it.
    """
    if type(value) is str:
        if takes_text and not _looks_like_json(value):
            return {"prompt": value}
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            reason = f"is {show(value)}, expected a JSON object ({error.msg}): was it cut?"
            raise FieldError(field, reason) from None
        if type(value) is str:
            return as_body(value, field, takes_text=takes_text)
    if type(value) is list:
        if _are_messages(value):
            return {"messages": value}
        if takes_text:
            return {"prompt": value}
    if type(value) is not dict:
        raise FieldError(field, f"is {show(value)}, expected a JSON object")
    for name in PROMPT_NAMES:
        if name in value and not {"prompt", "messages", "input"} & value.keys():
            return {("prompt" if key == name else key): inner for key, inner in value.items()}
    return value


def plain_body(body: Json, parameters: Any = None) -> Json:
    """Return a body whose messages have the chat API's shape, with the tools that stand beside it.

    LangChain writes messages as ``{"type": "human", "content": ...}``, alone, in a list of lists, or in
    ``kwargs`` of a serialized object; its tracers put the tools among the messages.
    """
    tools = next(
        (
            place[key]
            for place in (body, parameters)
            if isinstance(place, dict)
            for key in ("tools", "functions")
            if place.get(key)
        ),
        None,
    )
    body = dict(body)
    messages = body.get("messages")
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]
    if isinstance(messages, list):
        plain, among = [], []
        for index, message in enumerate(messages):
            with inside(f"messages[{index}]"):
                shaped = plain_message(message)
            if shaped.get("role") == "tool" and _is_tool(shaped.get("content")):
                among.append(shaped["content"])
            else:
                plain.append(_with_answer_as_text(shaped))
        body["messages"] = plain
        tools = tools or among
    if tools:
        body["tools"] = [_tool(tool) for tool in tools] if isinstance(tools, list) else tools
    return body


def _tool(tool: Any) -> Any:
    """Return a tool that is described without its kind as one of functions."""
    if isinstance(tool, dict) and "name" in tool and not {"function", "type", "input_schema"} & tool.keys():
        return function_tool(tool["name"], tool.get("description"), tool.get("parameters"))
    return tool


def plain_message(message: Any) -> Json:
    """Return a message with ``role``, ``content`` and ``tool_calls`` as the chat API names them.

    Raises
    ------
    FieldError
        If it is no object.
    """
    if isinstance(message, dict) and isinstance(message.get("kwargs"), dict):
        identity = message.get("id")
        kind = identity[-1] if isinstance(identity, list) and identity else None
        message = {"type": kind, **message["kwargs"]}
    elif isinstance(message, dict) and isinstance(message.get("data"), dict) and "content" not in message:
        message = {"type": message.get("type"), **message["data"]}
    if not isinstance(message, dict):
        raise FieldError("", f"is {show(message)}, expected an object")
    role = next((message[key] for key in ("role", "from", "type") if message.get(key) is not None), None)
    content = next(
        (
            message[key]
            for key in ("content", "value", "text", "system_prompt")
            if message.get(key) is not None
        ),
        None,
    )
    plain = {
        key: value
        for key, value in message.items()
        if key in ("name", "tool_call_id", "reasoning", "reasoning_content", "thinking") and value is not None
    }
    calls = message.get("tool_calls")
    if not calls and isinstance(message.get("additional_kwargs"), dict):
        calls = message["additional_kwargs"].get("tool_calls")
    plain = {"role": _ROLES.get(role, role) if type(role) is str else role, "content": content, **plain}
    if isinstance(calls, list) and calls:
        plain["tool_calls"] = [_call(call) for call in calls]
    return plain


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    function = call.get("function")
    if isinstance(function, dict):
        arguments = function.get("arguments")
        return {
            **call,
            "function": {**function, "arguments": json_text({} if arguments is None else arguments)},
        }
    name = next((call[key] for key in ("name", "function_name") if key in call), None)
    arguments = next((call[key] for key in ("args", "arguments", "input") if key in call), {})
    return {
        "id": call.get("id", call.get("tool_call_id")),
        "type": "function",
        "function": {"name": function or name, "arguments": json_text(arguments)},
    }


def _with_answer_as_text(message: Json) -> Json:
    """Return a tool's answer as text where it is an object, or a list of what are no parts."""
    content = message.get("content")
    is_parts = isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("type"), str))
        for part in content
    )
    if message.get("role") == "tool" and isinstance(content, dict | list) and not is_parts:
        return {**message, "content": json_text(content)}
    return message


def _is_tool(content: Any) -> bool:
    return isinstance(content, dict) and content.get("type") == "function" and "function" in content


def _are_messages(value: list[Any]) -> bool:
    first = value[0] if value else None
    return isinstance(first, dict) or (isinstance(first, list) and bool(first) and isinstance(first[0], dict))


def _looks_like_json(text: str) -> bool:
    begin = text.lstrip()[:40]
    return begin[:1] == "{" or (begin[:1] in ("[", '"') and begin[1:].lstrip()[:1] in ("{", '"', "["))

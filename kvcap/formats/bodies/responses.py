"""Bodies of ``/v1/responses`` as the chat completions that engines render them as.

Items become messages in order. What one assistant turn spreads over several items (its reasoning, its text,
its tool calls) is gathered into one message, the way vLLM does it. An earlier response that is only referred
to is not in the log, so such a request cannot be rendered.
"""

from __future__ import annotations

from typing import Any

from kvcap.formats.bodies.turns import Json
from kvcap.formats.rows import FieldError


def chat_body(body: Json) -> Json:
    """Return the chat completions body that means the same prompt.

    Raises
    ------
    FieldError
        If the request refers to what is not in it, or holds an item or a tool that no chat message can
        express.
    """
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise FieldError(
                name, "refers to turns that are not in the request, expected all of them in input"
            )
    items = body["input"]
    messages: list[Json] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    if isinstance(items, str):
        messages.append({"role": "user", "content": items})
    elif isinstance(items, list):
        for position, item in enumerate(items):
            _add_item(messages, item, f"input[{position}]")
    else:
        raise FieldError("input", "is neither text nor a list of items")
    chat = {
        key: value for key, value in body.items() if key not in ("input", "instructions", "tools", "prompt")
    }
    chat["messages"] = messages
    if body.get("tools"):
        chat["tools"] = _chat_tools(body["tools"])
    effort = _effort(body.get("reasoning"))
    if effort is not None:
        chat.setdefault("reasoning_effort", effort)
    if isinstance(items, list) and _is_unfinished(items):
        chat["continue_final_message"] = True
    return chat


def _add_item(messages: list[Json], item: object, field: str) -> None:
    if not isinstance(item, dict):
        raise FieldError(field, "is not an object, expected an input item")
    kind = item.get("type") or "message"
    if kind == "message" and isinstance(item.get("role"), str):
        if item["role"] == "assistant":
            _fill_assistant(messages, "content", item.get("content"))
        else:
            messages.append(
                {key: value for key, value in item.items() if key not in ("type", "id", "status")}
            )
    elif kind == "reasoning":
        if item.get("encrypted_content"):
            raise FieldError(field, "is encrypted reasoning, expected its text")
        _fill_assistant(messages, "reasoning", _reasoning_text(item))
    elif kind == "function_call":
        call = {"name": item.get("name"), "arguments": item.get("arguments")}
        entry = {"id": item.get("call_id"), "type": "function", "function": call}
        _assistant_without(messages, None).setdefault("tool_calls", []).append(entry)
    elif kind == "function_call_output":
        output = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        messages.append(output)
    else:
        raise FieldError(
            field, f"is an item of type {kind!r}, expected a message, a function call or reasoning"
        )


def _fill_assistant(messages: list[Json], key: str, value: Any) -> None:
    _assistant_without(messages, key)[key] = value


def _assistant_without(messages: list[Json], key: str | None) -> Json:
    """Return the assistant turn that is being gathered, or a new one if it has ``key`` already."""
    if not messages or messages[-1]["role"] != "assistant" or messages[-1].get(key or "") is not None:
        messages.append({"role": "assistant"})
    return messages[-1]


def _reasoning_text(item: Json) -> str:
    parts = item.get("content") or item.get("summary") or []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _chat_tools(tools: object) -> list[Json]:
    """Return function tools in the nested form; those that the server runs are not part of the prompt."""
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise FieldError("tools", "is not a list of objects")
    nested: list[Json] = []
    for position, tool in enumerate(tools):
        if tool.get("type") in ("custom", "namespace"):
            raise FieldError(f"tools[{position}]", f"is of type {tool['type']!r}, expected function")
        if tool.get("type") == "function":
            function = tool.get("function") or {key: value for key, value in tool.items() if key != "type"}
            nested.append({"type": "function", "function": function})
    return nested


def _effort(reasoning: object) -> object:
    return reasoning.get("effort") if isinstance(reasoning, dict) else None


def _is_unfinished(items: list[Any]) -> bool:
    last = items[-1] if items else None
    return (
        isinstance(last, dict)
        and last.get("type", "message") in ("message", "reasoning")
        and last.get("role", "assistant") == "assistant"
        and last.get("status") in ("in_progress", "incomplete")
    )

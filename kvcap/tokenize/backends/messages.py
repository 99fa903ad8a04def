"""Logged messages in the shape that chat templates are written for.

What engines and transformers do before a template sees a message: tool calls carry their arguments as
objects, an assistant turn without text has an empty one, absent fields are absent and not null, reasoning
stands under each name that templates know, and content is text unless the template takes parts.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kvcap.formats.bodies.openai import TEXT_KEYS
from kvcap.tokenize.prompts import ChatPrompt, Json, PromptSource

_REASONING_NAMES: Final = ("reasoning_content", "thinking", "reasoning")


def template_messages(prompt: ChatPrompt, *, takes_parts: bool) -> list[Json]:
    """Return the conversation for a template.

    Parameters
    ----------
    prompt
        The conversation as logged; it is not changed.
    takes_parts
        Whether the template takes lists of parts; else their texts are joined by line breaks. What a tool
        returned is always text.

    Raises
    ------
    RecordError
        If the arguments of a tool call are no JSON object, or a part is not text.
    """
    return [
        _template_message(message, f"messages[{position}]", prompt.source, takes_parts)
        for position, message in enumerate(prompt.messages)
    ]


def _template_message(message: Json, field: str, source: PromptSource, takes_parts: bool) -> Json:
    shaped = {key: value for key, value in message.items() if value is not None}
    content = shaped.get("content")
    if isinstance(content, list):
        parts = [
            _text_part(part, f"{field}.content[{position}]", source) for position, part in enumerate(content)
        ]
        as_parts = takes_parts and message["role"] != "tool"
        shaped["content"] = parts if as_parts else "\n".join(part["text"] for part in parts)
    elif content is None:
        shaped["content"] = ""
    if "tool_calls" in shaped:
        shaped["tool_calls"] = [
            _template_call(call, f"{field}.tool_calls[{position}]", source)
            for position, call in enumerate(shaped["tool_calls"])
        ]
        if not shaped["tool_calls"]:
            del shaped["tool_calls"]
    reasoning = next((shaped[name] for name in _REASONING_NAMES if name in shaped), None)
    if reasoning is not None:
        shaped = {"thinking": reasoning, **shaped, "reasoning_content": reasoning}
    return shaped


def _text_part(part: Any, field: str, source: PromptSource) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type")
    text = part.get(TEXT_KEYS.get(kind, ""))
    if not isinstance(text, str):
        raise source.error(field, f"is a part of type {kind!r}, expected text")
    return {**part, "type": "text", "text": text}


def _template_call(call: Json, field: str, source: PromptSource) -> Json:
    function = call["function"]
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            # Not orjson: it turns integers beyond 64 bits into floats, and templates print the arguments.
            arguments = json.loads(arguments)
        except json.JSONDecodeError as error:
            raise source.error(f"{field}.function.arguments", f"is not JSON ({error})") from error
    if not isinstance(arguments, dict):
        raise source.error(f"{field}.function.arguments", "is not a JSON object")
    return {**call, "function": {**function, "arguments": arguments}}

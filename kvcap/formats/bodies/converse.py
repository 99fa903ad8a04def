"""Bodies of Amazon Bedrock's Converse API, as chat completions that mean the same prompt.

::

    {"system": [{"text": "Be kind."}], "messages": [{"role": "user", "content": [{"text": "hi"}]}],
     "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]}}
"""

from __future__ import annotations

from typing import Any, Final

from kvcap.formats.bodies.turns import Json, Turn, content_of, function_tool, json_text
from kvcap.formats.rows import FieldError, an_object, inner_list, inside, show

_MEDIA: Final = {"image": "image", "document": "file", "video": "video", "audio": "audio"}
_KEYS: Final = frozenset(
    (*_MEDIA, "text", "toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent")
)


def is_converse(body: Json) -> bool:
    """Return whether a body is one of Converse, whose blocks have no type but a key that names it."""
    if "toolConfig" in body or "inferenceConfig" in body:
        return "messages" in body
    messages = body.get("messages")
    return isinstance(messages, list) and any(
        isinstance(message, dict)
        and isinstance(message.get("content"), list)
        and any(isinstance(b, dict) and "type" not in b and _KEYS & b.keys() for b in message["content"])
        for message in messages
    )


def chat_body(body: Json) -> tuple[Json, list[str]]:
    """Return the chat completions body that means the same prompt, and no remark.

    Raises
    ------
    FieldError
        If it holds what no chat message can express.
    """
    chat: Json = {"model": body["model"]} if type(body.get("model")) is str else {}
    messages: list[Json] = []
    if body.get("system"):
        turn = Turn("system")
        _add_blocks(turn, inner_list(body, "system"), "system")
        messages.extend(turn.messages())
    for index, message in enumerate(inner_list(body, "messages")):
        with inside(f"messages[{index}]"):
            message = an_object(message, "role and content")
            role = message.get("role")
            if type(role) is not str:
                raise FieldError("role", f"is {show(role)}, expected a string")
            turn = Turn(role)
            if type(message.get("content")) is str:
                turn.text(message["content"])
            else:
                _add_blocks(turn, inner_list(message, "content"), "content")
        messages.extend(turn.messages())
    chat["messages"] = messages
    tools = _tools(body.get("toolConfig"))
    if tools:
        chat["tools"] = tools
    return chat, []


def _add_blocks(turn: Turn, blocks: list[Any], field: str) -> None:
    for index, block in enumerate(blocks):
        with inside(f"{field}[{index}]"):
            _add_block(turn, an_object(block, "text, toolUse or toolResult"))


def _add_block(turn: Turn, block: Json) -> None:
    medium = next((key for key in _MEDIA if block.get(key) is not None), None)
    use, result, thought = block.get("toolUse"), block.get("toolResult"), block.get("reasoningContent")
    if type(block.get("text")) is str:
        turn.text(block["text"])
    elif medium is not None:
        turn.medium(_MEDIA[medium], block[medium])
    elif isinstance(use, dict):
        turn.call(use.get("name"), use.get("input"), use.get("toolUseId"))
    elif isinstance(result, dict):
        with inside("toolResult"):
            turn.answer(_answer(inner_list(result, "content")), result.get("toolUseId"))
    elif isinstance(thought, dict):
        text = thought.get("reasoningText")
        if not isinstance(text, dict) or type(text.get("text")) is not str:
            raise FieldError("reasoningContent", "is encrypted, expected its text")
        turn.reasoning(text["text"])
    elif isinstance(block.get("guardContent"), dict):
        text = block["guardContent"].get("text")
        turn.text(str(text.get("text", "")) if isinstance(text, dict) else "")
    elif "cachePoint" not in block:
        raise FieldError("", f"holds {', '.join(block) or 'nothing'}, expected text, toolUse or toolResult")


def _answer(blocks: list[Any]) -> Any:
    parts: list[Json] = []
    for index, block in enumerate(blocks):
        with inside(f"content[{index}]"):
            block = an_object(block, "text, json or image")
            medium = next((key for key in _MEDIA if block.get(key) is not None), None)
            if type(block.get("text")) is str:
                parts.append({"type": "text", "text": block["text"]})
            elif medium is not None:
                parts.append({"type": _MEDIA[medium], _MEDIA[medium]: block[medium]})
            elif "json" in block:
                parts.append({"type": "text", "text": json_text(block["json"])})
            else:
                raise FieldError("", f"holds {', '.join(block) or 'nothing'}, expected text, json or image")
    return content_of(parts) if parts else ""


def _tools(config: Any) -> list[Json]:
    tools = config.get("tools") if isinstance(config, dict) else None
    found = []
    for tool in tools if isinstance(tools, list) else ():
        spec = tool.get("toolSpec") if isinstance(tool, dict) else None
        if isinstance(spec, dict):
            schema = spec.get("inputSchema")
            parameters = schema.get("json") if isinstance(schema, dict) else None
            found.append(function_tool(spec.get("name"), spec.get("description"), parameters))
    return found

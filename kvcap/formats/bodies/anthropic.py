"""Bodies of the Anthropic Messages API (``/v1/messages``), as engines that serve it render them.

::

    {"system": [{"type": "text", "text": "Be kind."}], "tools": [{"name": "f", "input_schema": {}}],
     "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "4"}]}]}

The texts of ``system`` make the first message, joined with nothing between them as vLLM does (SGLang puts a
line feed there). Answers of tools become messages of role ``tool``; thinking of earlier turns is their
reasoning; what a tool takes stands in ``input_schema``. Agents put a line for billing that differs in each
request into ``system``; engines take it out, and so is it here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kvcap.formats.bodies.turns import Json, Turn, content_of, function_tool
from kvcap.formats.rows import FieldError, an_object, inner_list, inside, show

BILLING: Final = (
    "requests hold a billing header in their system prompt, which engines take out and so is here"
)

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "search_result")
_MEDIA: Final = ("image", "document")
_BILLING_LINE: Final = re.compile(r"x-anthropic-billing-header[^\n]*\n*")
_EXPECTED_BLOCK: Final = "text, image, document, thinking, search_result, tool_use or tool_result"


def is_anthropic(body: Json) -> bool:
    """Return whether a body is one of the Messages API rather than of chat completions."""
    if "anthropic_version" in body or body.get("system") is not None:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    messages = body.get("messages")
    return isinstance(messages, list) and any(map(_has_own_blocks, messages))


def _has_own_blocks(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict)
        and (block.get("type") in _OWN_BLOCKS or (block.get("type") in _MEDIA and "source" in block))
        for block in content
    )


def chat_body(body: Json) -> tuple[Json, list[str]]:
    """Return the chat completions body that means the same prompt, and remarks on it.

    Raises
    ------
    FieldError
        If it holds what no chat message can express.
    """
    chat = {key: body[key] for key in ("model", "chat_template_kwargs") if body.get(key) is not None}
    remarks: list[str] = []
    messages: list[Json] = []
    system = _system_text(body.get("system"), remarks)
    if system:
        messages.append({"role": "system", "content": system})
    for index, message in enumerate(inner_list(body, "messages")):
        with inside(f"messages[{index}]"):
            messages.extend(_messages(an_object(message, "role and content")))
    chat["messages"] = messages
    if body.get("tools"):
        chat["tools"] = _tools(inner_list(body, "tools"))
    return chat, remarks


def _system_text(system: Any, remarks: list[str]) -> str:
    if system is None or type(system) is str:
        blocks = [system or ""]
    elif type(system) is list:
        blocks = []
        for index, block in enumerate(system):
            text = block.get("text") if isinstance(block, dict) else block
            if type(text) is not str:
                raise FieldError(f"system[{index}]", f"is {show(block)}, expected a block of text")
            blocks.append(text)
    else:
        raise FieldError("system", f"is {show(system)}, expected text or a list of blocks")
    begins = [_BILLING_LINE.match(text) for text in blocks]
    if any(begins):
        remarks.append(BILLING)
    return "".join(text[found.end() :] if found else text for text, found in zip(blocks, begins, strict=True))


def _messages(message: Json) -> list[Json]:
    role, content = message.get("role"), message.get("content")
    if type(role) is not str:
        raise FieldError("role", f"is {show(role)}, expected a string")
    if content is None or type(content) is str:
        return [{"role": role, "content": content or ""}]
    turn = Turn(role)
    for index, block in enumerate(inner_list(message, "content")):
        with inside(f"content[{index}]"):
            _add_block(turn, an_object(block, "type"))
    return turn.messages()


def _add_block(turn: Turn, block: Json) -> None:
    kind = block.get("type")
    if kind == "text":
        turn.text(_text(block, "text"))
    elif kind in _MEDIA:
        turn.medium(kind, block.get("source"))
    elif kind == "thinking":
        turn.reasoning(_text(block, "thinking"))
    elif kind == "tool_use":
        turn.call(block.get("name"), block.get("input"), block.get("id"))
    elif kind == "tool_result":
        turn.answer(_answer(block.get("content")), block.get("tool_use_id"))
    elif kind == "search_result":
        turn.text(_search_text(block))
    elif kind == "redacted_thinking":
        raise FieldError("type", "is redacted_thinking, which is encrypted, expected its text")
    else:
        raise FieldError("type", f"is {show(kind)}, expected {_EXPECTED_BLOCK}")


def _answer(content: Any) -> Any:
    if content is None or type(content) is str:
        return content or ""
    if type(content) is not list:
        raise FieldError("content", f"is {show(content)}, expected text or a list of blocks")
    parts: list[Json] = []
    for index, block in enumerate(content):
        with inside(f"content[{index}]"):
            kind = an_object(block, "type").get("type")
            if kind == "text":
                parts.append({"type": "text", "text": _text(block, "text")})
            elif kind in _MEDIA:
                parts.append({"type": kind, kind: block.get("source")})
            elif kind == "search_result":
                parts.append({"type": "text", "text": _search_text(block)})
            else:
                raise FieldError("type", f"is {show(kind)}, expected text, image, document or search_result")
    return content_of(parts) if parts else ""


def _search_text(block: Json) -> str:
    content = block.get("content")
    texts = [part.get("text") for part in content or () if isinstance(part, dict)] if content else []
    lines = [
        f"{name}: {block[key]}" for name, key in (("Title", "title"), ("Source", "source")) if block.get(key)
    ]
    if texts:
        lines.append("Content: " + "\n".join(text for text in texts if type(text) is str))
    return "\n".join(lines)


def _text(block: Json, field: str) -> str:
    text = block.get(field)
    if type(text) is not str:
        raise FieldError(field, f"is {show(text)}, expected text")
    return text


def _tools(tools: list[Any]) -> list[Json]:
    """Return the tools that the client runs; those of the provider are no part of an engine's prompt."""
    found = []
    for index, tool in enumerate(tools):
        with inside(f"tools[{index}]"):
            tool = an_object(tool, "input_schema")
        if "input_schema" in tool:
            found.append(function_tool(tool.get("name"), tool.get("description"), tool["input_schema"]))
        elif "function" in tool:
            found.append(tool)
    return found

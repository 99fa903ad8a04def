"""One message made of blocks, as messages of the chat API in the order of its blocks."""

from __future__ import annotations

from typing import Any

import orjson

Json = dict[str, Any]


class Turn:
    """Gather the blocks of one message.

    Answers of tools are messages of their own in the chat API: what came before one in the same message
    stays before it.

    Parameters
    ----------
    role
        Who speaks, as the chat API names it.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._done: list[Json] = []
        self._parts: list[Json] = []
        self._calls: list[Json] = []
        self._reasoning: list[str] = []

    def text(self, text: str) -> None:
        """Add text that is not empty."""
        if text:
            self._parts.append({"type": "text", "text": text})

    def medium(self, kind: str, content: Any) -> None:
        """Add an image or the like, told apart from others by its content."""
        self._parts.append({"type": kind, kind: content})

    def reasoning(self, text: str) -> None:
        """Add what a model thought in an earlier turn."""
        if text:
            self._reasoning.append(text)

    def call(self, name: Any, arguments: Any, call_id: Any = None) -> None:
        """Add the call of a tool; arguments are an object or JSON text."""
        function = {"name": name or "", "arguments": json_text(arguments if arguments is not None else {})}
        self._calls.append({"id": call_id, "type": "function", "function": function})

    def answer(self, content: Any, call_id: Any = None) -> None:
        """Add what a tool answered: text, or parts that :func:`content_of` made."""
        self._flush()
        self._done.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def messages(self) -> list[Json]:
        """Return the messages; a turn without anything is one of empty text."""
        self._flush()
        return self._done or [{"role": self._role, "content": ""}]

    def _flush(self) -> None:
        if not (self._parts or self._calls or self._reasoning):
            return
        message: Json = {"role": self._role}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        message["content"] = content_of(self._parts) if self._parts else None
        if self._calls:
            message["tool_calls"] = self._calls
        self._done.append(message)
        self._parts, self._calls, self._reasoning = [], [], []


def content_of(parts: list[Json]) -> Any:
    """Return the content of a message: the text where that is all of it, else its parts."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def function_tool(name: Any, description: Any, parameters: Any) -> Json:
    """Return a tool as the chat API describes it."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {
        "type": "function",
        "function": {key: value for key, value in function.items() if value is not None},
    }


def json_text(value: Any) -> str:
    """Return text as it is, and anything else as JSON."""
    return value if type(value) is str else orjson.dumps(value).decode()

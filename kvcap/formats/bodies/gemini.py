"""Bodies of Gemini's ``generateContent``, as chat completions that mean the same prompt.

::

    {"systemInstruction": {"parts": [{"text": "Be kind."}]},
     "contents": [{"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png"}}]}],
     "tools": [{"functionDeclarations": [{"name": "f", "parameters": {}}]}]}

Field names may be in snake case too, as the libraries write them. No engine serves this interface; an open
model that takes over such traffic gets the same parts as chat messages.
"""

from __future__ import annotations

from typing import Any, Final

from kvcap.formats.bodies.turns import Json, Turn, function_tool, json_text
from kvcap.formats.rows import FieldError, an_object, inner_list, inside, show

_ROLES: Final = {"model": "assistant", "function": "user", None: "user"}
_MEDIA: Final = (("inlineData", "inline_data"), ("fileData", "file_data"))
_EXPECTED: Final = "text, inlineData, fileData, functionCall or functionResponse"


def is_gemini(body: Json) -> bool:
    """Return whether a body is one of ``generateContent``."""
    return isinstance(body.get("contents"), list | str) and "messages" not in body


def chat_body(body: Json) -> tuple[Json, list[str]]:
    """Return the chat completions body that means the same prompt, and no remark.

    Raises
    ------
    FieldError
        If it holds what no chat message can express.
    """
    chat: Json = {"model": body["model"]} if type(body.get("model")) is str else {}
    messages: list[Json] = []
    system = _setting(body, "systemInstruction", "system_instruction")
    if system is not None:
        with inside("systemInstruction"):
            messages.extend(_content(system, "system"))
    contents = body["contents"]
    if type(contents) is str:
        messages.append({"role": "user", "content": contents})
    else:
        for index, content in enumerate(contents):
            with inside(f"contents[{index}]"):
                messages.extend(_content(content, None))
    chat["messages"] = messages
    tools = _tools(body)
    if tools:
        chat["tools"] = tools
    return chat, []


def _content(content: Any, role: str | None) -> list[Json]:
    if type(content) is str:
        return [{"role": role or "user", "content": content}]
    content = an_object(content, "parts")
    if role is None:
        given = content.get("role")
        role = _ROLES.get(given, given) if given is None or type(given) is str else None
        if role is None:
            raise FieldError("role", f"is {show(given)}, expected a string")
    parts = content.get("parts")
    turn = Turn(role)
    for index, part in enumerate([parts] if isinstance(parts, dict) else inner_list(content, "parts")):
        with inside(f"parts[{index}]"):
            _add_part(turn, an_object(part, _EXPECTED))
    return turn.messages()


def _add_part(turn: Turn, part: Json) -> None:
    call = _either(part, "functionCall", "function_call")
    answer = _either(part, "functionResponse", "function_response")
    media = next((found for names in _MEDIA if (found := _either(part, *names)) is not None), None)
    text = part.get("text")
    if type(text) is str:
        (turn.reasoning if part.get("thought") is True else turn.text)(text)
    elif isinstance(call, dict):
        turn.call(call.get("name"), call.get("args"), call.get("id"))
    elif isinstance(answer, dict):
        turn.answer(json_text(answer.get("response")), answer.get("id"))
    elif isinstance(media, dict):
        turn.medium(_medium(media), media)
    else:
        raise FieldError("", f"holds {', '.join(part) or 'nothing'}, expected {_EXPECTED}")


def _medium(media: Json) -> str:
    kind = str(_either(media, "mimeType", "mime_type")).partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "file"


def _tools(body: Json) -> list[Json]:
    """Return the declared functions; search and the like are run by the provider."""
    tools = _setting(body, "tools")
    if tools is None:
        return []
    found: list[Json] = []
    for index, tool in enumerate(inner_list({"tools": tools}, "tools")):
        with inside(f"tools[{index}]"):
            declared = _either(
                an_object(tool, "functionDeclarations"), "functionDeclarations", "function_declarations"
            )
            for function in declared if isinstance(declared, list) else ():
                function = an_object(function, "name")
                parameters = function.get("parameters") or function.get("parametersJsonSchema")
                found.append(function_tool(function.get("name"), function.get("description"), parameters))
    return found


def _setting(body: Json, *names: str) -> Any:
    """Return a field of a body, which Google's own library takes inside ``config``."""
    config = body.get("config")
    found = _either(body, *names)
    return _either(config, *names) if found is None and isinstance(config, dict) else found


def _either(record: Json, *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)

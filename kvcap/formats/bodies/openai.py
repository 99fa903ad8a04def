"""Bodies of the OpenAI-compatible API, checked once for whoever reads, converts or tokenizes them.

``messages`` is ``/v1/chat/completions``, ``input`` is ``/v1/responses`` and ``prompt`` is
``/v1/completions``, where every prompt of a list is a request of its own. Fields that are not named here are
carried along untouched.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from kvcap.formats.bodies import responses
from kvcap.formats.bodies.turns import Json
from kvcap.formats.rows import FieldError

MAX_TOKEN_ID: Final = 2**32 - 1
MEDIA_TYPES: Final = {
    **dict.fromkeys(("image", "image_url", "input_image", "image_pil", "image_embeds"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio", "audio_embeds"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video", "video_embeds"), "video"),
    **dict.fromkeys(("file", "input_file", "document"), "file"),
}
"""What kind of medium a part's type is."""

TEXT_KEYS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Which field holds the text of a part, by the part's type."""


def has_prompt(body: Any) -> bool:
    """Return whether a body holds something to prefill."""
    return isinstance(body, dict) and any(
        body.get(key) is not None for key in ("messages", "prompt", "input")
    )


def rendered_body(body: Json) -> Json:
    """Return the body that a tokenizer renders: checked, and as chat completions where it has turns.

    Raises
    ------
    FieldError
        If it is no request of text or tokens.
    """
    if body.get("messages") is not None:
        _check_chat(body)
        return body
    if body.get("input") is not None:
        chat = responses.chat_body(body)
        _check_chat(chat)
        return chat
    if body.get("prompt") is not None:
        _check_completion(body)
        return body
    found = ", ".join(sorted(body)[:6]) or "nothing"
    raise FieldError("", f"holds {found}; expected messages, input or prompt")


def _check_chat(body: Json) -> None:
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise FieldError("messages", f"is {named(messages)}, expected a list with at least one message")
    for position, message in enumerate(messages):
        _check_message(message, f"messages[{position}]")
    for name in ("tools", "documents"):
        entries = body.get(name)
        if entries is not None and not _is_list_of_objects(entries):
            raise FieldError(name, f"is {named(entries)}, expected a list of objects")
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise FieldError("chat_template_kwargs", f"is {named(kwargs)}, expected an object")
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise FieldError("continue_final_message", "excludes add_generation_prompt, expected one of them")


def _check_message(message: object, field: str) -> None:
    if not isinstance(message, dict):
        raise FieldError(field, f"is {named(message)}, expected an object")
    if not isinstance(message.get("role"), str):
        raise FieldError(f"{field}.role", f"is {named(message.get('role'))}, expected a string")
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise FieldError(f"{field}.content", f"is {named(content)}, expected a string or a list of parts")
    if isinstance(content, list):
        for position, part in enumerate(content):
            _check_part(part, f"{field}.content[{position}]")
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not _is_list_of_objects(calls):
        raise FieldError(f"{field}.tool_calls", f"is {named(calls)}, expected a list of objects")
    for position, call in enumerate(calls):
        _check_function(call.get("function"), f"{field}.tool_calls[{position}].function")


def _check_part(part: object, field: str) -> None:
    if isinstance(part, str):
        return
    if not isinstance(part, dict):
        raise FieldError(field, "is neither an object nor text, expected a part")
    kind = part.get("type")
    known = isinstance(kind, str) and (
        kind in MEDIA_TYPES or isinstance(part.get(TEXT_KEYS.get(kind, "")), str)
    )
    if not known:
        raise FieldError(field, f"is a part of type {kind!r}, expected text")


def _check_function(function: object, field: str) -> None:
    if not isinstance(function, dict):
        raise FieldError(field, f"is {named(function)}, expected an object")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise FieldError(f"{field}.arguments", f"is not JSON ({error})") from None
    if not isinstance(arguments, dict):
        raise FieldError(f"{field}.arguments", "is not a JSON object")


def _check_completion(body: Json) -> None:
    if body.get("suffix"):
        raise FieldError("suffix", "is given; how a model places it is its own, expected a prompt alone")
    prompt = body["prompt"]
    if isinstance(prompt, str):
        return
    if not isinstance(prompt, list) or not prompt:
        raise FieldError("prompt", f"is {named(prompt)}, expected text, token ids, or lists of them")
    if isinstance(prompt[0], int):
        _check_token_ids(prompt, "prompt")
        return
    for position, item in enumerate(prompt):
        if isinstance(item, list):
            _check_token_ids(item, f"prompt[{position}]")
        elif not isinstance(item, str):
            raise FieldError(f"prompt[{position}]", f"is {named(item)}, expected text or token ids")


def _check_token_ids(ids: list[object], field: str) -> None:
    if set(map(type, ids)) <= {int} and (not ids or (min(ids) >= 0 and max(ids) <= MAX_TOKEN_ID)):  # type: ignore[type-var,operator]
        return
    for position, token_id in enumerate(ids):
        if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:
            raise FieldError(f"{field}[{position}]", f"is {named(token_id)}, expected a token id")


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def named(value: object) -> str:
    """Return a JSON value as a message shows it, short."""
    if isinstance(value, (dict, list)):
        kind = "object" if isinstance(value, dict) else "list"
        return f"a{'n' if kind == 'object' else ''} {kind}" if value else f"an empty {kind}"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."

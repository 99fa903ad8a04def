"""The prompts of an OpenAI-compatible request body.

``messages`` is ``/v1/chat/completions``, ``input`` is ``/v1/responses`` and ``prompt`` is
``/v1/completions``, where every prompt of a list is a request of its own. Fields that are not named here are
carried along untouched.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import orjson

from kvcap.tokenize.media import replace_media
from kvcap.tokenize.options import MultimodalMode
from kvcap.tokenize.prompts import ChatPrompt, Json, Prompt, Source, TextPrompt, TokenIds, TokenPrompt
from kvcap.tokenize.responses import chat_body

_MAX_TOKEN_ID = 2**32 - 1
_RENDERERS_OWN = ("chat_template", "tokenize")


def prompts_of(
    request_json: str,
    source: Source,
    timestamp: datetime | None,
    multimodal: MultimodalMode,
    *,
    trust_chat_template: bool = False,
) -> list[Prompt]:
    """Return the prompts of one request, at least one.

    Parameters
    ----------
    request_json
        The body.
    source
        Where it stands in the logs.
    timestamp
        When it was sent, in UTC.
    multimodal
        What to do with parts that are not text.
    trust_chat_template
        Whether a request's own chat template renders it; a template is a program. Engines ignore or refuse
        it unless they are told to trust it.

    Raises
    ------
    RecordError
        If the body is no request of text or tokens.
    """
    try:
        body = orjson.loads(request_json)
    except orjson.JSONDecodeError as error:
        raise source.error("", f"is not JSON ({error}), expected a request body") from error
    if not isinstance(body, dict):
        raise source.error("", f"is {_named(body)}, expected a request body as an object")
    if body.get("messages") is not None:
        return [_chat_prompt(body, source, timestamp, multimodal, trust_chat_template)]
    if body.get("input") is not None:
        return [_chat_prompt(chat_body(body, source), source, timestamp, multimodal, trust_chat_template)]
    if body.get("prompt") is not None:
        return _completion_prompts(body, source)
    found = ", ".join(sorted(body)[:6]) or "nothing"
    raise source.error("", f"holds {found}; expected messages, input or prompt")


def _chat_prompt(
    body: Json,
    source: Source,
    timestamp: datetime | None,
    multimodal: MultimodalMode,
    trust_chat_template: bool,
) -> ChatPrompt:
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise source.error("messages", f"is {_named(messages)}, expected a list with at least one message")
    for position, message in enumerate(messages):
        _check_message(message, f"messages[{position}]", source)
    for name in ("tools", "documents"):
        entries = body.get(name)
        if entries is not None and not _is_list_of_objects(entries):
            raise source.error(name, f"is {_named(entries)}, expected a list of objects")
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise source.error("chat_template_kwargs", f"is {_named(kwargs)}, expected an object")
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise source.error("continue_final_message", "excludes add_generation_prompt, expected one of them")
    untrusted = not trust_chat_template and body.get("chat_template") is not None
    own: Json = {"chat_template": None} if untrusted else {}
    if kwargs:
        # Not a variable of templates, but an argument of those who render them.
        own["chat_template_kwargs"] = {
            name: value for name, value in kwargs.items() if name not in _RENDERERS_OWN
        }
    messages, media = replace_media(messages, source, multimodal)
    return ChatPrompt(source, {**body, **own, "messages": messages}, timestamp, media, untrusted)


def _check_message(message: object, field: str, source: Source) -> None:
    if not isinstance(message, dict):
        raise source.error(field, f"is {_named(message)}, expected an object")
    if not isinstance(message.get("role"), str):
        raise source.error(f"{field}.role", f"is {_named(message.get('role'))}, expected a string")
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise source.error(f"{field}.content", f"is {_named(content)}, expected a string or a list of parts")
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not _is_list_of_objects(calls):
        raise source.error(f"{field}.tool_calls", f"is {_named(calls)}, expected a list of objects")
    for position, call in enumerate(calls):
        if not isinstance(call.get("function"), dict):
            found = _named(call.get("function"))
            raise source.error(f"{field}.tool_calls[{position}].function", f"is {found}, expected an object")


def _completion_prompts(body: Json, source: Source) -> list[Prompt]:
    if body.get("suffix"):
        raise source.error("suffix", "is given; how a model places it is its own, expected a prompt alone")
    prompt = body["prompt"]
    if isinstance(prompt, str):
        return [_text_prompt(prompt, body, source)]
    if not isinstance(prompt, list) or not prompt:
        raise source.error("prompt", f"is {_named(prompt)}, expected text, token ids, or lists of them")
    if isinstance(prompt[0], int):
        return [TokenPrompt(source, _token_ids(prompt, "prompt", source))]
    prompts: list[Prompt] = []
    for position, item in enumerate(prompt):
        if isinstance(item, str):
            prompts.append(_text_prompt(item, body, source))
        elif isinstance(item, list):
            prompts.append(TokenPrompt(source, _token_ids(item, f"prompt[{position}]", source)))
        else:
            raise source.error(f"prompt[{position}]", f"is {_named(item)}, expected text or token ids")
    return prompts


def _text_prompt(text: str, body: Json, source: Source) -> TextPrompt:
    add_special_tokens = body.get("add_special_tokens")
    return TextPrompt(source, text, add_special_tokens is None or bool(add_special_tokens), body)


def _token_ids(ids: list[object], field: str, source: Source) -> TokenIds:
    for position, token_id in enumerate(ids):
        if type(token_id) is not int or not 0 <= token_id <= _MAX_TOKEN_ID:
            raise source.error(f"{field}[{position}]", f"is {_named(token_id)}, expected a token id")
    return np.array(ids, dtype=np.uint32)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _named(value: object) -> str:
    """Return a JSON value as a message shows it, short."""
    if isinstance(value, (dict, list)):
        kind = "object" if isinstance(value, dict) else "list"
        return f"a{'n' if kind == 'object' else ''} {kind}" if value else f"an empty {kind}"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."

"""The prompts of an OpenAI-compatible request body, as :mod:`kvcap.formats.bodies` gives and checks it."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import orjson

from kvcap.formats.bodies.openai import named, rendered_body
from kvcap.formats.rows import FieldError
from kvcap.tokenize.media import replace_media
from kvcap.tokenize.options import MultimodalMode
from kvcap.tokenize.prompts import ChatPrompt, Json, Prompt, PromptSource, TextPrompt, TokenPrompt

_RENDERERS_OWN = ("chat_template", "tokenize")


def prompts_of(
    request_json: str,
    source: PromptSource,
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
        raise source.error("", f"is {named(body)}, expected a request body as an object")
    try:
        body = rendered_body(body)
    except FieldError as error:
        raise source.error(error.field, error.reason) from None
    if body.get("messages") is None:
        return _completion_prompts(body, source)
    return [_chat_prompt(body, source, timestamp, multimodal, trust_chat_template)]


def _chat_prompt(
    body: Json,
    source: PromptSource,
    timestamp: datetime | None,
    multimodal: MultimodalMode,
    trust_chat_template: bool,
) -> ChatPrompt:
    untrusted = not trust_chat_template and body.get("chat_template") is not None
    own: Json = {"chat_template": None} if untrusted else {}
    kwargs = body.get("chat_template_kwargs")
    if kwargs:
        # Not a variable of templates, but an argument of those who render them.
        own["chat_template_kwargs"] = {
            name: value for name, value in kwargs.items() if name not in _RENDERERS_OWN
        }
    messages, media = replace_media(body["messages"], source, multimodal)
    return ChatPrompt(source, {**body, **own, "messages": messages}, timestamp, media, untrusted)


def _completion_prompts(body: Json, source: PromptSource) -> list[Prompt]:
    prompt = body["prompt"]
    prompts = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
    return [
        _text_prompt(item, body, source)
        if isinstance(item, str)
        else TokenPrompt(source, np.array(item, dtype=np.uint32))
        for item in prompts
    ]


def _text_prompt(text: str, body: Json, source: PromptSource) -> TextPrompt:
    add_special_tokens = body.get("add_special_tokens")
    return TextPrompt(source, text, add_special_tokens is None or bool(add_special_tokens), body)

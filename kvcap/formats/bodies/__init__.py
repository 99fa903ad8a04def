"""What stands inside logs of text: request bodies of the APIs that people speak, made into one.

A reader hands any body to :func:`openai_body` and gets the OpenAI-compatible one that a tokenizer renders,
checked: what passes here is what can be replayed. Modules per API; :mod:`~kvcap.formats.bodies.usage` reads
what answers say of tokens.
"""

from __future__ import annotations

from typing import Any

from kvcap.formats.bodies import anthropic, converse, gemini
from kvcap.formats.bodies.openai import has_prompt, rendered_body
from kvcap.formats.bodies.turns import Json
from kvcap.formats.rows import FieldError

_APIS = (
    (gemini.is_gemini, gemini.chat_body),
    (converse.is_converse, converse.chat_body),
    (anthropic.is_anthropic, anthropic.chat_body),
)
"""The particular before the general: Anthropic's blocks have types, Converse's have none."""


def is_body(value: Any) -> bool:
    """Return whether a value looks like a request body of an API that is read."""
    return has_prompt(value) or (isinstance(value, dict) and gemini.is_gemini(value))


def openai_body(body: Json) -> tuple[Json, list[str]]:
    """Return a body of any API as the OpenAI-compatible one that means the same prompt, and remarks on it.

    Parameters
    ----------
    body
        As it was sent: chat completions, completions, responses, Anthropic Messages, Gemini, Converse.

    Raises
    ------
    FieldError
        If it holds no prompt, or none that can be rendered.
    """
    remarks: list[str] = []
    for is_of_api, chat_body in _APIS:
        if is_of_api(body):
            body, remarks = chat_body(body)
            break
    if not has_prompt(body):
        raise FieldError("", "has no prompt, expected messages, prompt or input")
    rendered_body(body)
    return body, remarks

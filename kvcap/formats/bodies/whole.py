"""Texts that a logger cut or replaced: what is left of them has other blocks than the prompt had."""

from __future__ import annotations

import re
from typing import Any, Final

from kvcap.formats.bodies.turns import Json
from kvcap.formats.rows import FieldError

_PROMPT_KEYS: Final = ("messages", "prompt", "input", "instructions")
_LITELLM_CUT: Final = re.compile(r"\(litellm_truncated skipped \d+ chars")
_LITELLM_MARK: Final = "(litellm_truncated "
_LONGEST_MARK: Final = 120
_REPLACED: Final = re.compile(
    r"redacted-by-litellm|default-message-value|REDACTED"
    r"|(?i:[\[<({*_]+\s*redacted[^\n\])>}]{0,60}[\])>}*_]+)"
    r"|(?i:[\[<(]\s*truncated[^\n\])>}]{0,60}[\])>])"
)
_MARKS: Final = ("redacted", "truncated", "default-message-value", '..."')
_INNER_KEYS: Final = ("content", "text", "tool_calls", "reasoning", "arguments", "function", "output")
_CUT_REASON: Final = 'was cut by the logger ("..."), expected all of it: log whole texts'
_REPLACED_REASON: Final = (
    "was replaced by the logger ({!r}), expected its text: log prompts without redaction"
)
_LITELLM_REMEDY: Final = (
    "was cut by LiteLLM (litellm_truncated), expected all of it: raise MAX_STRING_LENGTH_PROMPT_IN_DB or log "
    "to a callback"
)


def check_whole(body: Json, text: str) -> None:
    """Refuse a body one of whose texts was cut or replaced; ``text`` is the body as JSON.

    Raises
    ------
    FieldError
        If one was: with the field and what to log instead.
    """
    # Nearly all bodies end here, at the speed of a search for a few words.
    lower = text.lower()
    if not any(mark in lower for mark in _MARKS):
        return
    stack: list[tuple[Any, str]] = [(body[key], key) for key in _PROMPT_KEYS if key in body]
    while stack:
        value, field = stack.pop()
        if type(value) is str:
            _check_text(value, field)
        elif type(value) is list:
            if value and type(value[0]) is not int:
                stack.extend((item, f"{field}[{index}]") for index, item in enumerate(value))
        elif type(value) is dict:
            stack.extend((value[key], f"{field}.{key}") for key in _INNER_KEYS if key in value)


def _check_text(value: str, field: str) -> None:
    if _LITELLM_MARK in value and _LITELLM_CUT.search(value):
        raise FieldError(field, _LITELLM_REMEDY)
    if len(value) <= _LONGEST_MARK:
        text = value.strip()
        if text == "...":
            raise FieldError(field, _CUT_REASON)
        if _REPLACED.fullmatch(text):
            raise FieldError(field, _REPLACED_REASON.format(text))

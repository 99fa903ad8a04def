"""What a reader of text takes, a replay renders: one check for convert, tokenize and replay."""

from __future__ import annotations

import json
from typing import Any

from body_kinds import ANTHROPIC, CHAT, CONVERSE, GEMINI
from hypothesis import given
from hypothesis import strategies as st

from kvcap.errors import RecordError
from kvcap.formats.bodies import openai_body
from kvcap.formats.rows import FieldError
from kvcap.formats.text_rows import body_text
from kvcap.tokenize.backends.messages import template_messages
from kvcap.tokenize.prompts import ChatPrompt, PromptSource
from kvcap.tokenize.requests import prompts_of

IMAGE = {"type": "image_url", "image_url": {"url": "u"}}
CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"messages": [
    {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "4"},
]}  # fmt: skip
ITEMS = [{"role": "user", "content": "a"}, {"type": "function_call", "name": "f", "arguments": "{}"}]
BODIES: list[Any] = [CHAT, ANTHROPIC, GEMINI, CONVERSE, CALLS, {"prompt": ["a", [1, 2]]}, {"input": ITEMS}]
odd = st.sampled_from(
    [None, True, -1, 0, 1.5, 2**40, "", "x", "{", [], [[]], [1], ["a", 1], {}, {"type": "x"}, [{}]]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def render(text: str) -> None:
    for prompt in prompts_of(text, PromptSource("log", 1), None, "placeholder"):
        if isinstance(prompt, ChatPrompt):
            template_messages(prompt, takes_parts=False)


@given(data=st.data())
def test_a_body_of_any_api_that_is_read_is_rendered(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(BODIES))
    body = replaced(body, data.draw(st.sampled_from(places(body)[1:])), data.draw(odd))
    try:
        text = body_text(openai_body(body)[0])
    except FieldError:
        return
    render(text)


@given(data=st.data())
def test_a_chat_body_is_refused_by_the_reader_where_a_replay_refuses_it(data: st.DataObject) -> None:
    body = replaced(CALLS, data.draw(st.sampled_from(places(CALLS)[1:])), data.draw(odd))
    outcomes = []
    for check in (lambda: openai_body(body), lambda: render(json.dumps(body))):
        try:
            check()
        except (FieldError, RecordError):
            outcomes.append("refused")
        else:
            outcomes.append("taken")
    assert outcomes[0] == outcomes[1]

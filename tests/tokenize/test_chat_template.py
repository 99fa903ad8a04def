from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pytest

from kvcap.errors import RecordError
from kvcap.tokenize.prompts import ChatPrompt, PromptSource

jinja2 = pytest.importorskip("jinja2")

from kvcap.tokenize.backends.chat_template import ChatTemplate  # noqa: E402
from kvcap.tokenize.backends.messages import template_messages  # noqa: E402

STARTED = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
USER = {"role": "user", "content": "hi"}


def template(source: str, **special_tokens: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens, STARTED)


def render(source: str, messages: Any = (USER,), tools: Any = None, **kwargs: Any) -> str:
    return template(source, bos_token="<s>").render(
        list(messages), tools, kwargs, add_generation_prompt=True, timestamp=None
    )


def test_json_keeps_html_and_unicode_as_they_are() -> None:
    tools = [{"name": "<f>", "hint": "café & 'co'"}]
    assert render("{{ tools | tojson }}", tools=tools) == '[{"name": "<f>", "hint": "café & \'co\'"}]'
    assert render("{{ tools[0] | tojson(indent=1, sort_keys=true) }}", tools=tools) == (
        '{\n "hint": "café & \'co\'",\n "name": "<f>"\n}'
    )


def test_blocks_leave_no_blanks_and_loops_can_be_left() -> None:
    source = "{% for n in [1, 2, 3] %}\n  {% if n == 2 %}{% break %}{% endif %}\n{{ n }}\n{% endfor %}\nend"
    assert render(source) == "1\nend"


def test_the_date_is_that_of_the_request_or_of_the_run() -> None:
    dated = template("{{ strftime_now('%d %b %Y') }}")
    sent = datetime(2024, 5, 15, 23, 59, tzinfo=timezone.utc)
    assert dated.render([USER], None, {}, add_generation_prompt=True, timestamp=sent) == "15 May 2024"
    assert dated.render([USER], None, {}, add_generation_prompt=True, timestamp=None) == "01 Mar 2026"


def test_arguments_of_the_request_win_over_special_tokens_but_not_over_the_conversation() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}"
    kwargs = {"bos_token": "<mine>", "messages": [], "tools": [1]}
    assert render(source) == "<s>hi"
    text = template(source, bos_token="<s>").render(
        [USER], None, kwargs, add_generation_prompt=True, timestamp=None
    )
    assert text == "<mine>hi"


def test_generation_blocks_render_as_they_stand() -> None:
    assert render("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c") == "abhic"


def test_a_template_can_refuse() -> None:
    with pytest.raises(jinja2.TemplateError, match="no such role"):
        render("{{ raise_exception('no such role') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ strftime_now.__self__.__class__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ dict.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(source: str) -> None:
    # The sandbox refuses, or gives something undefined that prints as nothing.
    with suppress(jinja2.TemplateError):
        assert render(source) == ""


def test_a_namespace_and_a_dict_work_as_in_models_templates() -> None:
    assert render("{% set ns = namespace(self=1, n=0) %}{% set ns.n = ns.self + 1 %}{{ ns.n }}") == "2"
    assert render("{{ dict(a=1) | tojson }}{{ dict.fromkeys(['b']) | tojson }}") == '{"a": 1}{"b": null}'


TURNS = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}<end>{% endfor %}"


def render_open(source: str, content: Any) -> str:
    messages = [USER, {"role": "assistant", "content": content}]
    return template(source).render_open(messages, None, {}, timestamp=None)


def test_an_open_message_ends_where_its_text_ends() -> None:
    assert render_open(TURNS, "Once upon") == "[user] hi<end>[assistant] Once upon"
    untrimmed = TURNS.replace(" | trim", "")
    assert render_open(untrimmed, "Once upon ") == "[user] hi<end>[assistant] Once upon "
    assert render_open(TURNS, "Once upon ") == "[user] hi<end>[assistant] Once upon"


def test_the_last_text_of_an_open_part_list_is_the_one_to_continue() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p.text }}|{% endfor %}{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "assistant", "content": parts}]
    assert template(source).render_open(messages, None, {}, timestamp=None) == "a|b"


def test_an_open_message_that_the_template_drops_is_an_error() -> None:
    with pytest.raises(ValueError, match="drops the final message"):
        render_open("{{ messages[0].content }}", "Once")
    with pytest.raises(ValueError, match="no text to continue"):
        render_open(TURNS, None)


def test_a_template_that_loops_over_parts_gets_them(template: Any) -> None:
    takes_parts = ChatTemplate(template("xml_arguments"), {}, STARTED).takes_parts
    takes_text = ChatTemplate(template("chatml_thinking"), {}, STARTED).takes_parts
    assert (takes_parts, takes_text) == (True, False)
    assert not ChatTemplate("{{ raise_exception('never') }}", {}, STARTED).takes_parts


def shaped(*messages: Any, takes_parts: bool = False) -> list[Any]:
    prompt = ChatPrompt(PromptSource("log.jsonl", 1), {"messages": list(messages)})
    return template_messages(prompt, takes_parts=takes_parts)


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ('{"a": [1, 2.50, null], "big": 123456789012345678901234567890}', None),
        ("{}", {}),
        ("", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_of_tool_calls_become_objects(logged: Any, expected: Any) -> None:
    if expected is None:
        expected = {"a": [1, 2.5, None], "big": 123456789012345678901234567890}
    message = call(logged)
    (given,) = shaped(message)
    assert given["tool_calls"][0]["function"]["arguments"] == expected
    assert given["tool_calls"][0]["id"] == "1"
    assert message["tool_calls"][0]["function"]["arguments"] == logged


@pytest.mark.parametrize("arguments", ["{", "[1]", '"text"', [1]])
def test_arguments_that_are_no_object_are_an_error(arguments: Any) -> None:
    with pytest.raises(RecordError, match=r"messages\[0\].tool_calls\[0\].function.arguments is not"):
        shaped(call(arguments))


def test_absent_is_absent_and_a_turn_without_text_has_an_empty_one() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [], "name": None, "extra": 0}
    assert shaped(message) == [{"role": "assistant", "content": "", "extra": 0}]


def test_reasoning_stands_under_every_name_that_templates_know() -> None:
    (given,) = shaped({"role": "assistant", "content": "x", "reasoning": "why"})
    assert given["reasoning_content"] == given["thinking"] == given["reasoning"] == "why"


PARTS = ["a", {"type": "input_text", "text": "b", "id": 1}, {"type": "refusal", "refusal": "c"}]


def test_parts_are_joined_by_line_breaks_unless_the_template_takes_them() -> None:
    message = {"role": "user", "content": PARTS}
    assert shaped(message)[0]["content"] == "a\nb\nc"
    assert shaped(message, takes_parts=True)[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "id": 1},
        {"type": "text", "text": "c", "refusal": "c"},
    ]
    tool = {"role": "tool", "content": PARTS}
    assert shaped(tool, takes_parts=True)[0]["content"] == "a\nb\nc"


def test_a_part_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(RecordError, match=r"messages\[0\].content\[0\] is a part of type 'poem'"):
        shaped({"role": "user", "content": [{"type": "poem", "text": 1}]})

from __future__ import annotations

import pytest

from kvcap.formats.bodies.responses import chat_body
from kvcap.formats.rows import FieldError
from kvcap.tokenize.prompts import Json


def messages(body: Json) -> list[Json]:
    converted: list[Json] = chat_body(body)["messages"]
    return converted


def test_instructions_are_the_system_turn_and_text_is_the_users() -> None:
    assert messages({"instructions": "Be short.", "input": "Hi"}) == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
    ]


def test_the_items_of_one_assistant_turn_are_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Cancel"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sure."}]},
        {"type": "function_call", "call_id": "c1", "name": "cancel", "arguments": '{"id": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "refund", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]
    assert messages({"input": items}) == [
        {"role": "user", "content": [{"type": "input_text", "text": "Cancel"}]},
        {
            "role": "assistant",
            "reasoning": "think",
            "content": [{"type": "output_text", "text": "Sure."}],
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "cancel", "arguments": '{"id": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "refund", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "assistant", "content": "Done."},
    ]


def test_a_second_text_of_the_assistant_is_a_second_message() -> None:
    items = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [message["content"] for message in messages({"input": items})] == ["a", "b"]


def test_function_tools_are_nested_and_tools_of_the_server_left_out() -> None:
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    body = chat_body({"input": "x", "tools": [{"type": "function", **function}, {"type": "web_search"}]})
    assert body["tools"] == [{"type": "function", "function": function}]


def test_effort_and_unfinished_turns_reach_the_template() -> None:
    partial = {"type": "message", "role": "assistant", "status": "incomplete", "content": "Once"}
    body = chat_body({"input": [partial], "reasoning": {"effort": "high"}, "model": "m"})
    assert body["reasoning_effort"] == "high"
    assert body["continue_final_message"] is True
    assert body["model"] == "m"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": "x", "previous_response_id": "r"}, "previous_response_id refers to turns"),
        ({"input": {"a": 1}}, "input is neither text nor a list of items"),
        ({"input": [3]}, r"input\[0\] is not an object"),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "of type 'item_reference'"),
        ({"input": [{"type": "reasoning", "encrypted_content": "e"}]}, "encrypted reasoning"),
        ({"input": "x", "tools": [{"type": "custom", "name": "patch"}]}, r"tools\[0\] is of type 'custom'"),
    ],
)
def test_what_a_chat_message_cannot_express_is_refused(body: Json, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        chat_body(body)

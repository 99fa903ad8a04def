"""Bodies of each API mean the chat messages that engines make of them; what no message can say is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kvcap.formats.bodies import openai_body
from kvcap.formats.bodies.anthropic import BILLING
from kvcap.formats.bodies.usage import Usage, answer_usage, usage_of
from kvcap.formats.rows import FieldError

CALL = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
CALLED = {"name": "f", "args": {"x": 1}}
ANSWER = {"role": "tool", "tool_call_id": "t", "content": "4"}


def messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = openai_body(body)[0]["messages"]
    return found


def anthropic(*content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"system": "S", "messages": [{"role": role, "content": list(content)}], **more}


def test_system_blocks_are_joined_with_nothing_and_come_first() -> None:
    body = {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "messages": [
        {"role": "user", "content": "hi"}]}  # fmt: skip
    assert messages(body)[0] == {"role": "system", "content": "ab"}


@pytest.mark.parametrize(
    "system",
    [
        "x-anthropic-billing-header: cch=1;\n\nBe kind.",
        [
            {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
            {"type": "text", "text": "Be kind."},
        ],
    ],
)
def test_of_a_billing_header_only_its_line_is_taken_out(system: Any) -> None:
    body, remarks = openai_body({"system": system, "messages": [{"role": "user", "content": "hi"}]})
    assert body["messages"][0] == {"role": "system", "content": "Be kind."}
    assert remarks == [BILLING]


def test_answers_of_tools_are_messages_in_their_place() -> None:
    body = anthropic(
        {"type": "tool_result", "tool_use_id": "t", "content": "4"},
        {"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "5"}]},
        {"type": "text", "text": "go on"},
    )
    assert messages(body)[1:] == [
        ANSWER,
        {"role": "tool", "tool_call_id": "u", "content": "5"},
        {"role": "user", "content": "go on"},
    ]


def test_thinking_and_calls_of_an_assistant_are_one_message() -> None:
    body = anthropic(
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
        role="assistant",
    )
    assert messages(body)[1] == {
        "role": "assistant", "reasoning": "hm", "content": "look", "tool_calls": [CALL],
    }  # fmt: skip


def test_an_image_is_the_same_part_wherever_a_cache_breakpoint_stands() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "AA"}}
    marked = {**image, "cache_control": {"type": "ephemeral"}}
    assert messages(anthropic(image)) == messages(anthropic(marked))
    assert messages(anthropic(image))[1]["content"] == [{"type": "image", "image": image["source"]}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            anthropic({"type": "redacted_thinking", "data": "x"}),
            r"messages\[0\].content\[0\].type is redacted",
        ),
        (anthropic({"type": "server_tool_use"}), r"type is 'server_tool_use', expected text, image"),
        (anthropic(3), r"messages\[0\].content\[0\] is 3, expected an object"),
        ({"system": 3, "messages": []}, "system is 3, expected text or a list of blocks"),
        ({"system": "S", "messages": {}}, "messages is an object, expected a list"),
        (
            {"contents": [{"parts": [{"executableCode": {}}]}]},
            r"parts\[0\] holds executableCode, expected text",
        ),
        ({"contents": [{"role": 4, "parts": []}]}, r"contents\[0\].role is 4, expected a string"),
        (
            {"inferenceConfig": {}, "messages": [{"role": "user", "content": [{"x": 1}]}]},
            "holds x, expected text",
        ),
        ({"model": "m"}, "has no prompt, expected messages, prompt or input"),
    ],
)
def test_what_no_message_can_say_is_refused_with_its_field(body: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        openai_body(body)


def test_tools_of_the_provider_are_no_part_of_the_prompt() -> None:
    own = {"name": "f", "input_schema": {"type": "object"}}
    body = anthropic({"type": "text", "text": "hi"}, tools=[{"type": "web_search_20250305"}, own])
    assert openai_body(body)[0]["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]


def test_gemini_parts_are_chat_messages_in_both_spellings() -> None:
    def body(*, snake: bool) -> dict[str, Any]:
        call, answer, data = (
            ("function_call", "function_response", "inline_data")
            if snake
            else ("functionCall", "functionResponse", "inlineData")
        )
        return {"contents": [
            {"role": "user", "parts": [{"text": "look"}, {data: {"mimeType": "image/png", "data": "AA"}}]},
            {"role": "model", "parts": [{"text": "hm", "thought": True}, {call: CALLED}]},
            {"role": "user", "parts": [{answer: {"name": "f", "response": {"r": 4}}}]},
        ]}  # fmt: skip

    found = messages(body(snake=False))
    assert found == messages(body(snake=True))
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]
    assert found[0]["content"][1]["type"] == "image"
    assert found[1]["reasoning"] == "hm"
    assert found[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert found[2]["content"] == '{"r":4}'


def test_settings_of_googles_library_stand_inside_config() -> None:
    declared = {"function_declarations": [{"name": "f"}]}
    body = {"contents": "hi", "config": {"system_instruction": "Be kind.", "tools": [declared]}}
    found, _ = openai_body(body)
    assert [message["content"] for message in found["messages"]] == ["Be kind.", "hi"]
    assert found["tools"] == [{"type": "function", "function": {"name": "f"}}]


def test_converse_blocks_are_chat_messages() -> None:
    body = {"messages": [
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm"}}},
            {"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": 1}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "t", "content": [{"json": {"r": 4}}, {"text": "b"}]}},
            {"cachePoint": {"type": "default"}}, {"image": {"format": "png"}}]},
    ]}  # fmt: skip
    assert messages(body) == [
        {"role": "assistant", "reasoning": "hm", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "t", "content": [
            {"type": "text", "text": '{"r":4}'}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "image", "image": {"format": "png"}}]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "messages is an empty list"),
        (
            {"messages": [{"role": "user", "content": [{"type": "wat"}]}]},
            "is a part of type 'wat', expected text",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
                ]
            },
            r"tool_calls\[0\].function.arguments is not JSON",
        ),
        ({"prompt": {"text": "x"}}, "prompt is an object, expected text, token ids"),
        ({"input": [{"type": "item_reference"}]}, "of type 'item_reference'"),
    ],
)
def test_what_a_replay_refuses_is_refused_by_the_reader(body: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        openai_body(body)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 7}, Usage(20, None, 7)),
        ({"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(20, 0, None)),
        ({"prompt_tokens": 20, "prompt_tokens_details": None}, Usage(20, None, None)),
        ({"prompt_tokens": 20, "cache_read_input_tokens": 15}, Usage(20, 15, None)),
        ({"prompt_tokens": 20, "prompt_cache_hit_tokens": 16}, Usage(20, 16, None)),
        ({"input_tokens": 20, "input_tokens_details": {"cached_tokens": 16}}, Usage(20, 16, None)),
        (
            {"input_tokens": 2, "cache_read_input_tokens": 15, "cache_creation_input_tokens": 3},
            Usage(20, 15, None),
        ),
        ({"input_tokens": 2, "cache_read_input_tokens": 0}, Usage(2, 0, None)),
        ({"inputTokens": 2, "cacheReadInputTokens": 18, "outputTokens": 7}, Usage(20, 18, 7)),
        ({"promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}, Usage(20, None, 7)),
        ({"prompt_tokens": 20.0, "completion_tokens": True}, Usage(20, None, None)),
        ({"prompt_tokens": -1, "cached_tokens": 2**63}, Usage()),
        (None, Usage()),
    ],
)
def test_counts_of_each_api_absent_null_and_zero_are_three_things(counts: Any, expected: Usage) -> None:
    assert usage_of(counts) == expected


def test_the_last_of_several_events_counts() -> None:
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 9}}},
        {"type": "message_delta", "usage": {"output_tokens": 7}},
        {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}},
    ]
    assert answer_usage(events) == Usage(12, 9, 7)

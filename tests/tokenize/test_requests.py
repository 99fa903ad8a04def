from __future__ import annotations

import json
from typing import Any

import pytest

from kvcap.errors import RecordError
from kvcap.tokenize.prompts import ChatPrompt, Prompt, PromptSource, TextPrompt, TokenPrompt
from kvcap.tokenize.requests import prompts_of

USER = {"role": "user", "content": "hi"}


def prompts(body: object, multimodal: Any = "refuse") -> list[Prompt]:
    text = body if isinstance(body, str) else json.dumps(body)
    return prompts_of(text, PromptSource("log.jsonl", 7), None, multimodal)


def chat(body: object, multimodal: Any = "refuse") -> ChatPrompt:
    (prompt,) = prompts(body, multimodal)
    assert isinstance(prompt, ChatPrompt)
    return prompt


def test_a_chat_body_is_one_prompt_with_everything_that_it_carries() -> None:
    body = {
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"enable_thinking": False},
        "documents": [{"title": "t"}],
        "reasoning_effort": "low",
        "unknown": 1,
    }
    prompt = chat(body)
    assert prompt.messages == [USER]
    assert prompt.tools == body["tools"]
    assert prompt.template_kwargs == {
        "enable_thinking": False,
        "documents": [{"title": "t"}],
        "reasoning_effort": "low",
    }
    assert prompt.body["unknown"] == 1
    assert prompt.add_generation_prompt
    assert not prompt.add_special_tokens


def test_an_open_final_message_takes_the_place_of_the_generation_prompt() -> None:
    prompt = chat({"messages": [USER], "continue_final_message": True, "add_generation_prompt": False})
    assert prompt.continue_final_message
    assert not prompt.add_generation_prompt
    assert not chat({"messages": [USER], "continue_final_message": True}).add_generation_prompt
    assert not chat({"messages": [USER], "add_generation_prompt": False}).add_generation_prompt


def test_no_tools_and_an_empty_list_are_the_same() -> None:
    assert chat({"messages": [USER], "tools": []}).tools is None
    assert chat({"messages": [USER], "tools": None}).tools is None


def test_each_prompt_of_a_completion_is_a_request() -> None:
    texts = prompts({"prompt": ["a", "b"]})
    assert [prompt.text for prompt in texts if isinstance(prompt, TextPrompt)] == ["a", "b"]
    tokens = prompts({"prompt": [[1, 2, 4294967295], []]})
    assert [prompt.token_ids.tolist() for prompt in tokens if isinstance(prompt, TokenPrompt)] == [
        [1, 2, 4294967295],
        [],
    ]
    (single,) = prompts({"prompt": [1, 2]})
    assert isinstance(single, TokenPrompt)
    assert single.token_ids.tolist() == [1, 2]


def test_completions_take_the_tokenizers_own_special_tokens_unless_told_not_to() -> None:
    (plain,) = prompts({"prompt": "a"})
    (bare,) = prompts({"prompt": "a", "add_special_tokens": False})
    assert isinstance(plain, TextPrompt)
    assert isinstance(bare, TextPrompt)
    assert plain.add_special_tokens
    assert not bare.add_special_tokens


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "log.jsonl:7: is not JSON"),
        ([1], "is a list, expected a request body as an object"),
        ({"model": "m"}, "holds model; expected messages, input or prompt"),
        ({"messages": []}, "messages is an empty list, expected a list with at least one message"),
        ({"messages": ["hi"]}, 'messages[0] is "hi", expected an object'),
        ({"messages": [{"content": "x"}]}, "messages[0].role is null, expected a string"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content is 3, expected a string"),
        ({"messages": [{**USER, "tool_calls": [1]}]}, "messages[0].tool_calls is a list, expected a list of"),
        (
            {"messages": [{**USER, "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function is null, expected an object",
        ),
        ({"messages": [USER], "tools": {}}, "tools is an empty object, expected a list of objects"),
        ({"messages": [USER], "chat_template_kwargs": 1}, "chat_template_kwargs is 1, expected an object"),
        (
            {"messages": [USER], "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message excludes add_generation_prompt",
        ),
        ({"prompt": {"id": "p"}}, "prompt is an object, expected text, token ids, or lists of them"),
        ({"prompt": []}, "prompt is an empty list, expected text"),
        ({"prompt": [1, True]}, "prompt[1] is true, expected a token id"),
        ({"prompt": [[1], [-2]]}, "prompt[1][0] is -2, expected a token id"),
        ({"prompt": [[4294967296]]}, "prompt[0][0] is 4294967296, expected a token id"),
        ({"prompt": ["a", 1.5]}, "prompt[1] is 1.5, expected text or token ids"),
        ({"prompt": "a", "suffix": "b"}, "suffix is given"),
    ],
)
def test_a_bad_body_is_refused_with_its_line_and_field(body: object, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        prompts(body)
    assert message in str(caught.value)
    assert (caught.value.path, caught.value.line) == ("log.jsonl", 7)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
OTHER = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}


def with_parts(*parts: object) -> dict[str, object]:
    return {"messages": [USER, {"role": "user", "content": list(parts)}]}


def test_an_image_is_refused_by_default() -> None:
    with pytest.raises(RecordError, match=r"messages\[1\].content\[1\] is of kind image, expected text"):
        prompts(with_parts({"type": "text", "text": "a"}, IMAGE))


def test_placeholders_are_counted_and_tell_media_apart() -> None:
    prompt = chat(with_parts(IMAGE, OTHER, IMAGE, {"type": "input_audio", "input_audio": {}}), "placeholder")
    first, second, third, audio = (part["text"] for part in prompt.messages[1]["content"])
    assert prompt.media == 4
    assert first == third != second
    assert first.startswith("<image ")
    assert audio.startswith("<audio ")


def test_text_parts_pass_as_logged() -> None:
    prompt = chat(with_parts({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "b"))
    assert prompt.media == 0
    assert prompt.messages[1]["content"] == [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        "b",
    ]


TEMPLATE_BODY = '{"messages": [{"role": "user", "content": "hi"}], "chat_template": "mine", %s}'


def test_a_template_of_a_request_is_left_out_unless_it_is_trusted() -> None:
    body = TEMPLATE_BODY % '"chat_template_kwargs": {"chat_template": "smuggled", "thinking": true}'
    (untrusted,) = prompts_of(body, PromptSource("log.jsonl", 7), None, "refuse")
    (trusted,) = prompts_of(body, PromptSource("log.jsonl", 7), None, "refuse", trust_chat_template=True)
    assert isinstance(untrusted, ChatPrompt)
    assert isinstance(trusted, ChatPrompt)
    assert (untrusted.body["chat_template"], untrusted.untrusted_template) == (None, True)
    assert (trusted.body["chat_template"], trusted.untrusted_template) == ("mine", False)
    assert untrusted.template_kwargs == trusted.template_kwargs == {"thinking": True}

"""The vllm backend: what is said where it cannot run, and against transformers where vLLM is installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvcap.errors import MissingExtraError, RecordError, UsageError
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import ChatPrompt, PromptSource, TextPrompt

SOURCE = PromptSource("log.jsonl", 2)
HAS_VLLM = importlib.util.find_spec("vllm") is not None


def options(tokenizer: str = "model") -> TokenizeOptions:
    return TokenizeOptions(tokenizer=tokenizer, backend="vllm")


@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_what_is_missing_is_said_in_one_line() -> None:
    with pytest.raises(
        MissingExtraError, match=r"^the vllm backend needs an optional dependency: pip install"
    ):
        create_backend(options())


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("vllm")
    other.__version__ = "0.9.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", other)
    with pytest.raises(
        UsageError, match=r"is written for vLLM 0\.32, found 0\.9\.1; --tokenize-backend engine"
    ):
        create_backend(options())


needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="needs vLLM")
its_own_warnings = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def backend(engine_model_dir: Path) -> Iterator[Any]:
    created = create_backend(options(str(engine_model_dir)))
    yield created
    created.close()


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "Cancel"}, {"type": "text", "text": "it"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "done"},
]


@needs_vllm
@its_own_warnings
@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        {"messages": CHAT, "model": "logged", "max_tokens": 10**6, "stream": True, "tool_choice": "required"},
        {"messages": CHAT, "chat_template_kwargs": {"enable_thinking": False}},
        {"messages": CHAT[:2], "add_generation_prompt": False},
        {
            "messages": [*CHAT[:2], {"role": "assistant", "content": "Let"}],
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
    ],
)
def test_chats_have_the_ids_of_the_huggingface_backend(
    backend: Any, engine_model_dir: Path, body: Any
) -> None:
    plain = create_backend(TokenizeOptions(tokenizer=str(engine_model_dir)))
    prompt = ChatPrompt(SOURCE, body)
    assert backend.encode(prompt).tolist() == plain.encode(prompt).tolist()


@needs_vllm
@its_own_warnings
@pytest.mark.slow
def test_completions_have_the_ids_of_the_huggingface_backend(backend: Any, engine_model_dir: Path) -> None:
    plain = create_backend(TokenizeOptions(tokenizer=str(engine_model_dir)))
    for special in (True, False):
        body = {"prompt": "unused", "add_special_tokens": special, "max_tokens": 5}
        prompt = TextPrompt(SOURCE, "Book a seat", special, body)
        assert backend.encode(prompt).tolist() == plain.encode(prompt).tolist()


@needs_vllm
@its_own_warnings
@pytest.mark.slow
def test_what_vllm_refuses_is_an_error_of_that_request(backend: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"^log\.jsonl:2: is refused by vLLM: "):
        backend.encode(ChatPrompt(SOURCE, {"messages": CHAT, "tools": [{"type": "function"}]}))
    with pytest.raises(UsageError, match="vLLM does not take"):
        create_backend(options(str(tmp_path)))

"""The sglang backend: what is said where it cannot run, and what SGLang sees where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvcap.errors import RecordError, UsageError
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import ChatPrompt, PromptSource, TextPrompt

SOURCE = PromptSource("log.jsonl", 2)
HAS_SGLANG = importlib.util.find_spec("sglang") is not None


def options(tokenizer: str = "model", **changes: Any) -> TokenizeOptions:
    return TokenizeOptions(tokenizer=tokenizer, backend="sglang", **changes)


@pytest.mark.skipif(HAS_SGLANG, reason="SGLang is installed")
def test_what_is_missing_is_said_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        create_backend(options())
    assert str(caught.value) == (
        "the sglang backend runs where SGLang 0.5.23 is, as in its container; "
        "--tokenize-backend engine asks any server"
    )


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("sglang")
    other.__version__ = "0.4.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang", other)
    with pytest.raises(UsageError, match=r"is for SGLang 0\.5\.23, found 0\.4\.9; --tokenize-backend"):
        create_backend(options())


needs_sglang = pytest.mark.skipif(not HAS_SGLANG, reason="needs SGLang")
its_own_warnings = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def backend(engine_model_dir: Path) -> Any:
    return create_backend(options(str(engine_model_dir), tool_call_parser="qwen25"))


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Cancel it"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "done"}]},
]


@needs_sglang
@its_own_warnings
@pytest.mark.slow
def test_prompts_without_tools_have_the_ids_of_the_huggingface_backend(
    backend: Any, engine_model_dir: Path
) -> None:
    plain = create_backend(TokenizeOptions(tokenizer=str(engine_model_dir)))
    for prompt in (
        ChatPrompt(SOURCE, {"messages": CHAT, "model": "logged", "max_tokens": 10**6, "stream": True}),
        ChatPrompt(SOURCE, {"messages": CHAT, "chat_template_kwargs": {"enable_thinking": False}}),
        TextPrompt(SOURCE, "Book a seat", True, {"prompt": "Book a seat"}),
        TextPrompt(SOURCE, "Book a seat", False, {"prompt": "Book a seat", "add_special_tokens": False}),
    ):
        assert backend.encode(prompt).tolist() == plain.encode(prompt).tolist()


@needs_sglang
@its_own_warnings
@pytest.mark.slow
def test_what_sglang_makes_of_a_request_is_in_its_ids(backend: Any, engine_model_dir: Path) -> None:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(engine_model_dir / "tokenizer.json"))

    def text(body: Any) -> str:
        ids = backend.encode(ChatPrompt(SOURCE, body)).tolist()
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    # Its request type spells out a tool's defaults, and "none" takes tools out of the prompt.
    assert '"defer_loading": null' in text({"messages": CHAT, "tools": [TOOL]})
    assert "# Tools" not in text({"messages": CHAT, "tools": [TOOL], "tool_choice": "none"})
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "user\na b<|im_end|>" in text({"messages": [{"role": "user", "content": parts}]})


@needs_sglang
@its_own_warnings
@pytest.mark.slow
def test_what_sglang_refuses_is_an_error(backend: Any, engine_model_dir: Path) -> None:
    broken = {
        "messages": [{**CHAT[2], "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}]}]
    }
    with pytest.raises(RecordError, match=r"^log\.jsonl:2: is refused by SGLang: .*valid JSON"):
        backend.encode(ChatPrompt(SOURCE, broken))
    with pytest.raises(UsageError, match=r"--tool-call-parser is 'none such', expected one of .*qwen25"):
        create_backend(options(str(engine_model_dir), tool_call_parser="none such"))

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kvcap.errors import MissingExtraError, RecordError, UsageError
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import ChatPrompt, PromptSource, TextPrompt

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

SOURCE = PromptSource("log.jsonl", 4)
USER = {"role": "user", "content": "Cancel the flight"}


@pytest.fixture
def model(tokenizer_dir: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a model directory of one's own, with a changed configuration."""

    def make(remove: tuple[str, ...] = (), **config: Any) -> Path:
        directory = tmp_path / "model"
        shutil.copytree(tokenizer_dir, directory, dirs_exist_ok=True)
        path = directory / "tokenizer_config.json"
        changed = {**json.loads(path.read_text()), **config}
        path.write_text(json.dumps({key: changed[key] for key in changed if key not in remove}))
        return directory

    return make


def backend(directory: Path, **changes: Any) -> Any:
    return create_backend(TokenizeOptions(tokenizer=str(directory), **changes))


def chat(*messages: Any, **body: Any) -> ChatPrompt:
    timestamp = body.pop("timestamp", None)
    return ChatPrompt(SOURCE, {"messages": list(messages) or [USER], **body}, timestamp)


def tokens(directory: Path, prompt: ChatPrompt | TextPrompt, **changes: Any) -> list[str]:
    plain = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    ids = backend(directory, **changes).encode(prompt).tolist()
    return [plain.id_to_token(token_id) for token_id in ids]


def test_a_chat_is_rendered_and_tokenized(tokenizer_dir: Path) -> None:
    plain = tokenizers.Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    loaded = backend(tokenizer_dir)
    text = "<|im_start|>user\nCancel the flight<|im_end|>\n<|im_start|>assistant\n"
    assert loaded.render(chat()) == text
    assert loaded.encode(chat()).tolist() == plain.encode(text, add_special_tokens=False).ids
    assert loaded.encode(chat()).dtype == "uint32"


def test_arguments_of_the_request_reach_the_template(tokenizer_dir: Path) -> None:
    prompt = chat(chat_template_kwargs={"enable_thinking": False})
    assert backend(tokenizer_dir).render(prompt).endswith("assistant\n<think>\n\n</think>\n\n")


def test_special_tokens_go_around_completions_and_not_around_chats(tokenizer_dir: Path) -> None:
    text = {"text": "hi", "body": {}}
    assert tokens(tokenizer_dir, TextPrompt(SOURCE, add_special_tokens=True, **text))[0] == "<|endoftext|>"
    assert tokens(tokenizer_dir, TextPrompt(SOURCE, add_special_tokens=False, **text))[0] != "<|endoftext|>"
    assert tokens(tokenizer_dir, chat())[0] == "<|im_start|>"
    assert tokens(tokenizer_dir, chat(add_special_tokens=True))[:2] == ["<|endoftext|>", "<|im_start|>"]


def test_an_open_final_message_has_no_end(tokenizer_dir: Path) -> None:
    prompt = chat(USER, {"role": "assistant", "content": "Once"}, continue_final_message=True)
    assert (
        backend(tokenizer_dir).render(prompt).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nOnce")
    )


@pytest.mark.parametrize("form", ["file", "list", "object", "processor"])
def test_chat_templates_are_found_wherever_models_keep_them(model: Callable[..., Path], form: str) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}"
    named = {"file": None, "list": [{"name": "default", "template": source}], "object": {"default": source}}
    directory = model(chat_template=named.get(form))
    if form == "file":
        (directory / "chat_template.jinja").write_text(source)
    if form == "processor":
        (directory / "chat_template.json").write_text(json.dumps({"chat_template": source}))
    assert backend(directory).render(chat()) == "<|endoftext|>Cancel the flight"


def test_a_template_for_tools_is_taken_when_there_are_some(model: Callable[..., Path]) -> None:
    directory = model(chat_template="from the configuration")
    (directory / "chat_template.jinja").write_text("plain")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    loaded = backend(directory)
    assert loaded.render(chat()) == "plain"
    assert loaded.render(chat(tools=[{"type": "function"}])) == "tools"
    assert loaded.render(chat(chat_template="tool_use")) == "tools"
    assert loaded.render(chat(chat_template="the request's own")) == "the request's own"


def test_a_template_can_be_given(tokenizer_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ strftime_now('%Y-%m-%d') }} {{ eos_token }}")
    sent = datetime(2024, 5, 15, tzinfo=timezone.utc)
    loaded = backend(tokenizer_dir, chat_template=str(path))
    assert loaded.render(chat(timestamp=sent)) == "2024-05-15 <|im_end|>"


def test_tokens_of_the_configuration_are_added_in_the_order_of_their_ids(model: Callable[..., Path]) -> None:
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    base = backend(model()).encode(TextPrompt(SOURCE, "<|im_end|>", False, {})).tolist()[0]
    count = tokenizers.Tokenizer.from_file(str(model() / "tokenizer.json")).get_vocab_size()
    directory = model(
        added_tokens_decoder={
            str(count + 1): {"content": "<|second|>", **flags},
            str(count): {"content": "<|first|>", **flags},
            str(base): {"content": "<|im_end|>", **flags},
        },
        image_token="<|image|>",
        extra_special_tokens=["<|extra|>"],
    )
    prompt = TextPrompt(SOURCE, "<|first|><|second|><|image|><|extra|><|im_end|>", False, {})
    assert backend(directory).encode(prompt).tolist() == [count, count + 1, count + 2, count + 3, base]


def test_special_tokens_of_older_tools_are_read(model: Callable[..., Path]) -> None:
    directory = model(chat_template="{{ bos_token }}")
    (directory / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<|im_start|>"}}))
    assert backend(directory).render(chat()) == "<|im_start|>"
    directory = model(chat_template="{{ bos_token }}", added_tokens_decoder={})
    assert backend(directory).render(chat()) == "<|endoftext|>"


def test_what_the_template_refuses_is_an_error_of_that_request(model: Callable[..., Path]) -> None:
    loaded = backend(model(chat_template="{{ raise_exception('roles must\n alternate') }}"))
    with pytest.raises(
        RecordError, match=r"^log.jsonl:4: messages do not fit the chat template: roles must alternate$"
    ):
        loaded.render(chat())
    loaded = backend(model(chat_template="{{ messages[0].missing + 'x' }}"))
    with pytest.raises(RecordError, match="do not fit the chat template"):
        loaded.render(chat())


def test_text_that_is_no_unicode_is_an_error_of_that_request(tokenizer_dir: Path) -> None:
    call = {"function": {"name": "f", "arguments": json.dumps({"half": "\ud800"})}}
    with pytest.raises(RecordError, match=r"^log\.jsonl:4: cannot be tokenized: "):
        backend(tokenizer_dir).encode(chat(USER, {"role": "assistant", "tool_calls": [call]}))


def test_what_is_missing_is_said_in_one_line(tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("huggingface", "chat_template", "library_tokenizer"):
        monkeypatch.delitem(sys.modules, f"kvcap.tokenize.backends.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kvcap\[huggingface\]'"):
        backend(tokenizer_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chat_template": "{% if %}"}, "is no Jinja template"),
        ({"chat_template": None}, r"has no default chat template \(found: none\); give --chat-template"),
        (
            {"chat_template": [{"name": "rag", "template": ""}]},
            r"has no default chat template \(found: rag\)",
        ),
    ],
)
def test_a_model_without_a_usable_template_stops_the_run(
    model: Callable[..., Path], change: dict[str, Any], message: str
) -> None:
    loaded = backend(model(**change))
    with pytest.raises(UsageError, match=message):
        loaded.encode(chat())
    assert loaded.encode(TextPrompt(SOURCE, "no template needed", True, {})).size > 0


def test_a_directory_that_is_no_tokenizer_is_refused(model: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a model directory or a hub id"):
        backend(tmp_path / "absent" / "dir" / "ectory")
    with pytest.raises(UsageError, match="expected a model directory or a hub id"):
        backend(model() / "tokenizer.json")
    directory = model()
    (directory / "tokenizer_config.json").write_text("{")
    with pytest.raises(UsageError, match=r"tokenizer_config\.json is not JSON"):
        backend(directory)
    directory = model()
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer that can be read"):
        backend(directory)


def test_a_hub_id_that_cannot_be_had_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"--tokenizer nobody/nothing is no directory here, and the hub gave no"
    ):
        backend(Path("nobody/nothing"))


def test_code_of_the_model_does_not_run(model: Callable[..., Path], tmp_path: Path) -> None:
    directory = model(auto_map={"AutoTokenizer": ["code.Tokenizer", None]})
    (directory / "code.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Tokenizer: ...\n"
    )
    assert backend(directory).encode(chat()).size > 0
    (directory / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match="is code of the model's own; --trust-remote-code runs it"):
        backend(directory)
    assert not (tmp_path / "ran").exists()


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ENDLESS, "take the chat template more than 0.3 s"),
        (
            "{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
            "makes more than 67,108,864 characters",
        ),
        ("{{ 'x' * 999999999 }}", "makes more than a conversation may be"),
        ("{{ 9 ** 9 ** 9 }}", "makes more than a conversation may be"),
        ("{% if %}", "do not fit the chat template"),
    ],
)
def test_a_template_of_a_request_is_bounded_in_time_and_output(
    tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    # Time ends only what nothing else does, however busy the machine.
    seconds = 0.3 if source == ENDLESS else 60.0
    monkeypatch.setattr("kvcap.tokenize.backends.huggingface.RENDER_SECONDS", seconds)
    with pytest.raises(RecordError, match=message):
        backend(tokenizer_dir).render(chat(chat_template=source))

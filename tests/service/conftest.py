from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

TEMPLATE = (
    "{% for message in messages %}{{ message.role }} : {{ message.content }} ; {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


@pytest.fixture(scope="session")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose tokens are words, w0 to w199."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    words = ["?", ":", ";", "system", "user", "assistant", *(f"w{n}" for n in range(200))]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    directory = tmp_path_factory.mktemp("words")
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

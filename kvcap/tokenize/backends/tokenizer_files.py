"""A model directory's ``tokenizer_config.json`` and the chat templates beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from kvcap.errors import UsageError
from kvcap.tokenize.prompts import Json

TOKENIZER_FILE: Final = "tokenizer.json"
_HUB_ID: Final = re.compile(r"[\w.-]+(/[\w.-]+)?\Z")
_HUB_FILES: Final = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer's directory and what its configuration says.

    Parameters
    ----------
    directory
        Where the files are.
    config
        ``tokenizer_config.json``, with ``special_tokens_map.json`` where older tools wrote one.
    templates
        Chat templates by name; the only one is called ``default``.
    """

    directory: Path
    config: Json
    templates: dict[str, str]

    @property
    def has_code(self) -> bool:
        """Whether the tokenizer is a class that comes with the model."""
        return "AutoTokenizer" in (self.config.get("auto_map") or {})

    @property
    def special_tokens(self) -> dict[str, str]:
        """The named special tokens, as templates see them."""
        named = {name: _content(value) for name, value in self.config.items() if name.endswith("_token")}
        return {name: content for name, content in named.items() if content is not None}


def find_directory(tokenizer: str, *, trust_remote_code: bool) -> Path:
    """Return the directory of a tokenizer, downloaded first if it is a hub id.

    Raises
    ------
    UsageError
        If there is neither; ``HF_HUB_OFFLINE`` and the hub's other variables are honoured.
    """
    path = Path(tokenizer)
    if path.is_dir():
        return path
    if path.exists() or not _HUB_ID.match(tokenizer):
        raise UsageError(f"--tokenizer is {tokenizer!r}, expected a model directory or a hub id")
    from huggingface_hub import snapshot_download

    patterns = [*_HUB_FILES, "*.py"] if trust_remote_code else list(_HUB_FILES)
    try:
        return Path(snapshot_download(tokenizer, allow_patterns=patterns))
    except Exception as error:
        # The hub's client raises errors of its own, of its HTTP client and of the operating system.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"--tokenizer {tokenizer} is no directory here, and the hub gave no such model: {reason}"
        ) from error


def read_tokenizer_files(directory: Path) -> TokenizerFiles:
    """Read the configuration and the chat templates.

    Raises
    ------
    UsageError
        If a file is not what it should be.
    """
    config = _read_json(directory / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config.update(_read_json(directory / "special_tokens_map.json"))
    return TokenizerFiles(directory, config, _read_templates(directory, config))


def _read_templates(directory: Path, config: Json) -> dict[str, str]:
    """Return templates by name: files of their own win over the configuration, as in transformers."""
    templates: dict[str, str] = {}
    for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    if (directory / "chat_template.jinja").is_file():
        templates["default"] = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    if templates:
        return templates
    configured = config.get("chat_template") or _read_json(directory / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(configured, str):
        return {"default": configured}
    if isinstance(configured, dict):
        return configured
    return {named["name"]: named["template"] for named in configured or []}


def _read_json(path: Path) -> Json:
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is not a JSON object")
    return value


def _content(token: Any) -> str | None:
    """Return the text of a token, which may be spelled out with its flags."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None

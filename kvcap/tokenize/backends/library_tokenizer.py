"""A ``tokenizer.json``, loaded by the ``tokenizers`` library."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers

from kvcap.errors import UsageError
from kvcap.tokenize.backends.tokenizer_files import TOKENIZER_FILE, TokenizerFiles
from kvcap.tokenize.prompts import Json, TokenIds
from kvcap.tokenize.segments import AddedTokenCutter, EncodeBatch


@dataclass(frozen=True)
class LoadedTokenizer:
    """What the backend needs of a tokenizer.

    Parameters
    ----------
    encode_batch
        Returns the ids of texts, without special tokens around them.
    encode_with_special_tokens
        Returns the ids of a text between the special tokens that the tokenizer adds.
    cutter
        Where its text falls apart; None if nowhere.
    special_tokens
        The named special tokens, as templates see them.
    templates
        Chat templates by name.
    apply_chat_template
        The tokenizer's own way to render, where it has one: takes what transformers' method takes.
    """

    encode_batch: EncodeBatch
    encode_with_special_tokens: Callable[[str], TokenIds]
    cutter: AddedTokenCutter | None
    special_tokens: dict[str, str]
    templates: dict[str, str]
    apply_chat_template: Callable[..., str] | None = None


def load_tokenizer_file(files: TokenizerFiles) -> LoadedTokenizer:
    """Return the tokenizer of a directory that has a ``tokenizer.json``.

    Raises
    ------
    UsageError
        If the library cannot read it.
    """
    path = files.directory / TOKENIZER_FILE
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises plain Exception.
        raise UsageError(f"{path} is no tokenizer that can be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _add_configured_tokens(tokenizer, files.config)
    return LoadedTokenizer(
        encode_batch=batch_encoder(tokenizer),
        encode_with_special_tokens=special_encoder(tokenizer),
        cutter=AddedTokenCutter(tokenizer.to_str()),
        special_tokens=files.special_tokens,
        templates=files.templates,
    )


def batch_encoder(tokenizer: tokenizers.Tokenizer) -> EncodeBatch:
    """Return the function that tokenizes several texts on the caller's thread, without the GIL."""
    # The driver runs the threads; the library's own would multiply them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def encode_batch(texts: Sequence[str]) -> list[TokenIds]:
        # `encode` of one text keeps the GIL; this one releases it, and leaves out character offsets.
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    return encode_batch


def special_encoder(tokenizer: tokenizers.Tokenizer) -> Callable[[str], TokenIds]:
    """Return the function that tokenizes one text with special tokens around it."""

    def encode(text: str) -> TokenIds:
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=True)
        return np.array(encoding.ids, dtype=np.uint32)

    return encode


def _add_configured_tokens(tokenizer: tokenizers.Tokenizer, config: Json) -> None:
    """Add the tokens that only the configuration knows, in the order of their ids."""
    present = {str(token.content) for token in tokenizer.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder") or {}
    wanted = [listed[token_id] for token_id in sorted(listed, key=int)]
    wanted.extend(value for name, value in config.items() if name.endswith("_token"))
    for name in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(name) or []
        wanted.extend(extra.values() if isinstance(extra, dict) else extra)
    for value in wanted:
        token = _added_token(value, listed=any(value is entry for entry in listed.values()))
        if token is not None and token.content not in present:
            present.add(token.content)
            tokenizer.add_tokens([token])


def _added_token(value: Any, *, listed: bool) -> tokenizers.AddedToken | None:
    """Return a token from its JSON; one that is only named is special."""
    if isinstance(value, str):
        return tokenizers.AddedToken(value, special=True)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        return None
    flags = {name: value[name] for name in ("single_word", "lstrip", "rstrip", "normalized") if name in value}
    special = bool(value.get("special", False)) if listed else True
    return tokenizers.AddedToken(value["content"], special=special, **flags)

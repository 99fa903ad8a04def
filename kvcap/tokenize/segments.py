"""Tokenize text that repeats, once.

Conversations repeat: each turn sends all earlier ones again. A tokenizer of the ``tokenizers`` library first
cuts its input at added tokens (``<|im_start|>`` and the like) and then works on every stretch between them
alone, so the ids of a stretch may be kept. That holds unless its parts look at the place of a stretch in the
text, or an added token takes up neighbouring blanks; then the text is one stretch. The cut is the one that
the library makes: first at the added tokens that match the raw text, in what remains at those that match
normalized text, leftmost and then longest each time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np
import orjson

from kvcap.tokenize.prompts import Json, TokenIds

EncodeBatch = Callable[[Sequence[str]], list[TokenIds]]
"""Returns the ids of texts, without added tokens at their ends."""

CACHE_CHARACTERS: Final = 64 * 1024 * 1024
"""Characters of text whose ids are kept."""

_PLACE_BLIND_PRE_TOKENIZERS: Final = frozenset(
    ("ByteLevel", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer")
)


class AddedTokenCutter:
    """Cuts text at added tokens.

    Parameters
    ----------
    tokenizer_json
        The tokenizer, as the library serializes it.
    """

    def __init__(self, tokenizer_json: str) -> None:
        config = orjson.loads(tokenizer_json)
        passes: list[dict[str, int]] = []
        if _is_separable(config):
            raw, normalized = _added_tokens(config)
            # Tokens that match normalized text stay with the library, unless there is no normalization.
            passes = [raw, normalized] if _is_identity(config.get("normalizer")) else [raw]
        self._scanners = [_Scanner(tokens) for tokens in passes if tokens]

    def cut(self, text: str) -> list[str | int]:
        """Return stretches of text and ids of added tokens, in order; no stretch is empty."""
        pieces: list[str | int] = [text] if text else []
        for scanner in self._scanners:
            cut: list[str | int] = []
            for piece in pieces:
                if isinstance(piece, str):
                    cut.extend(scanner.cut(piece))
                else:
                    cut.append(piece)
            pieces = cut
        return pieces


class _Scanner:
    """Finds the leftmost, then longest of some literals."""

    def __init__(self, tokens: dict[str, int]) -> None:
        self._tokens = tokens
        self._lengths = sorted({len(token) for token in tokens}, reverse=True)
        first_characters = sorted({token[0] for token in tokens})
        self._starts = re.compile("[" + "".join(map(re.escape, first_characters)) + "]")

    def cut(self, text: str) -> list[str | int]:
        pieces: list[str | int] = []
        begin = 0
        match = self._starts.search(text)
        while match is not None:
            start = match.start()
            token = self._token_at(text, start)
            if token is None:
                match = self._starts.search(text, start + 1)
                continue
            if start > begin:
                pieces.append(text[begin:start])
            pieces.append(self._tokens[token])
            begin = start + len(token)
            match = self._starts.search(text, begin)
        if begin < len(text):
            pieces.append(text[begin:])
        return pieces

    def _token_at(self, text: str, start: int) -> str | None:
        for length in self._lengths:
            candidate = text[start : start + length]
            if candidate in self._tokens:
                return candidate
        return None


class CachedEncoder:
    """Encodes text by its stretches and keeps the ids of those it saw last; for several threads at once.

    Parameters
    ----------
    encode_batch
        The plain way.
    cutter
        Where text falls apart; None if nowhere.
    capacity_characters
        Characters of text whose ids are kept.
    """

    def __init__(
        self,
        encode_batch: EncodeBatch,
        cutter: AddedTokenCutter | None,
        capacity_characters: int = CACHE_CHARACTERS,
    ) -> None:
        self._encode_batch = encode_batch
        self._cutter = cutter
        self._capacity_characters = capacity_characters
        self._characters = 0
        self._kept: OrderedDict[str, TokenIds] = OrderedDict()
        self._lock = Lock()

    def encode(self, text: str) -> TokenIds:
        """Return the ids of a text, equal to those of the plain way."""
        pieces: list[str | int] = [text] if self._cutter is None else self._cutter.cut(text)
        known = self._known(pieces)
        missing = [piece for piece in dict.fromkeys(pieces) if isinstance(piece, str) and piece not in known]
        if missing:
            fresh = dict(zip(missing, self._encode_batch(missing), strict=True))
            self._keep(fresh)
            known.update(fresh)
        parts = [
            known[piece] if isinstance(piece, str) else np.array([piece], dtype=np.uint32) for piece in pieces
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)

    def _known(self, pieces: list[str | int]) -> dict[str, TokenIds]:
        known: dict[str, TokenIds] = {}
        with self._lock:
            for piece in pieces:
                if isinstance(piece, str) and piece in self._kept:
                    known[piece] = self._kept[piece]
                    self._kept.move_to_end(piece)
        return known

    def _keep(self, fresh: dict[str, TokenIds]) -> None:
        with self._lock:
            for piece, ids in fresh.items():
                if piece not in self._kept:
                    self._kept[piece] = ids
                    self._characters += len(piece)
            while self._characters > self._capacity_characters:
                piece, _ = self._kept.popitem(last=False)
                self._characters -= len(piece)


def _is_separable(config: Json) -> bool:
    """Tell whether stretches between added tokens are tokenized independently of their place."""
    added = config.get("added_tokens") or []
    plain = all(not (token["single_word"] or token["lstrip"] or token["rstrip"]) for token in added)
    # Blanks and letters would cut everywhere: still exact, but slower than not to cut.
    marked = all(
        token["content"] and not token["content"][0].isspace() and not token["content"][0].isalnum()
        for token in added
    )
    sure = config["model"].get("dropout") in (None, 0.0)
    return bool(added) and plain and marked and sure and _is_place_blind(config.get("pre_tokenizer"))


def _is_place_blind(pre_tokenizer: Json | None) -> bool:
    if pre_tokenizer is None:
        return True
    if pre_tokenizer["type"] == "Sequence":
        return all(map(_is_place_blind, pre_tokenizer["pretokenizers"]))
    if pre_tokenizer["type"] == "Metaspace":
        return pre_tokenizer.get("prepend_scheme") in ("always", "never")
    return pre_tokenizer["type"] in _PLACE_BLIND_PRE_TOKENIZERS


def _is_identity(normalizer: Any) -> bool:
    if normalizer is None:
        return True
    return bool(normalizer["type"] == "Sequence") and all(map(_is_identity, normalizer["normalizers"]))


def _added_tokens(config: Json) -> tuple[dict[str, int], dict[str, int]]:
    """Return the added tokens that match raw text, and those that match normalized text."""
    raw = {token["content"]: token["id"] for token in config["added_tokens"] if not token["normalized"]}
    normalized = {token["content"]: token["id"] for token in config["added_tokens"] if token["normalized"]}
    return raw, normalized

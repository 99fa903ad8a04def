"""Ids of repeated text are kept only where that is exact: against the plain way, for every make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.tokenize.prompts import TokenIds
from kvcap.tokenize.segments import AddedTokenCutter, CachedEncoder

tokenizers = pytest.importorskip("tokenizers")

# Tokens that begin, contain and end each other, so that leftmost-longest has something to decide.
RAW = ("<|a|>", "<|a|><|b|>", "<|", "|>", "<|ab|>", "｜x｜", "<|b|>")
NORMALIZED = ("<call>", "<call>x", "</call>", "<|c|>", "[É]")
CORPUS = [
    "the user asks for a flight, the agent answers",
    'a = {"flight": [1, 22, 333]}',
    "naïve café, 東京",
] * 4


def added(token: str, *, normalized: bool, **flags: bool) -> Any:
    return tokenizers.AddedToken(token, normalized=normalized, **flags)


def build(
    pre_tokenizer: Any, normalizer: Any = None, raw: Sequence[Any] | None = None, model: Any = None
) -> Any:
    tokenizer = tokenizers.Tokenizer(model or tokenizers.models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if model is None:
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
    tokens = [added(token, normalized=False, special=True) for token in RAW] if raw is None else list(raw)
    tokenizer.add_tokens(tokens + [added(token, normalized=True) for token in NORMALIZED])
    return tokenizer


def byte_level(**options: bool) -> Any:
    return tokenizers.pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def metaspace(scheme: str) -> Any:
    return tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)


def lower() -> Any:
    normalizers = tokenizers.normalizers
    return normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase(), normalizers.Prepend("_")])


def spaced(flag: str) -> list[Any]:
    plain = [added(token, normalized=False) for token in RAW[:-1]]
    return [*plain, added(RAW[-1], normalized=False, **{flag: True})]


MAKES: dict[str, Callable[[], Any]] = {
    "byte level": lambda: build(byte_level()),
    "byte level, empty normalizer": lambda: build(byte_level(), tokenizers.normalizers.Sequence([])),
    "byte level, prefix blank": lambda: build(byte_level(add_prefix_space=True)),
    "byte level, normalized": lambda: build(byte_level(), lower()),
    "split and digits": lambda: build(
        tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\s+(?!\S)|\s+|\p{L}+"), "isolated"),
                tokenizers.pre_tokenizers.Digits(individual_digits=True),
                byte_level(use_regex=False),
            ]
        )
    ),
    "metaspace, always": lambda: build(metaspace("always")),
    "metaspace, first": lambda: build(metaspace("first")),
    "metaspace, never": lambda: build(metaspace("never")),
    "single word": lambda: build(byte_level(), raw=spaced("single_word")),
    "left blanks": lambda: build(byte_level(), raw=spaced("lstrip")),
    "right blanks": lambda: build(byte_level(), raw=spaced("rstrip")),
    "blanks as tokens": lambda: build(byte_level(), raw=[added("  ", normalized=False)]),
    "no added tokens": lambda: build(byte_level(), raw=[]),
}
WHOLE = {
    "metaspace, first",
    "single word",
    "left blanks",
    "right blanks",
    "blanks as tokens",
}
"""Makes whose text does not fall apart, or would into crumbs."""

_pieces = st.sampled_from(
    [*RAW, *NORMALIZED, " ", "  ", "\n", "<", "|", "a", "É", "e\u0301", "user", "X", "1234"]
)
texts = st.lists(_pieces | st.text(max_size=4), max_size=14).map("".join)


def plain(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def batch(tokenizer: Any) -> Callable[[Sequence[str]], list[TokenIds]]:
    return lambda given: [np.array(plain(tokenizer, text), dtype=np.uint32) for text in given]


@pytest.fixture(scope="module", params=sorted(MAKES))
def make(request: pytest.FixtureRequest) -> tuple[str, Any, CachedEncoder]:
    tokenizer = MAKES[request.param]()
    # A cache of a few words, so that what is thrown out comes up again.
    encoder = CachedEncoder(batch(tokenizer), AddedTokenCutter(tokenizer.to_str()), capacity_characters=40)
    return request.param, tokenizer, encoder


@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_ids_by_stretch_are_the_plain_ids(make: tuple[str, Any, CachedEncoder], text: str) -> None:
    _, tokenizer, encoder = make
    assert encoder.encode(text).tolist() == plain(tokenizer, text)
    assert encoder.encode(text).tolist() == plain(tokenizer, text)


def test_text_falls_apart_only_where_no_part_sees_its_place(make: tuple[str, Any, CachedEncoder]) -> None:
    name, tokenizer, _ = make
    pieces = AddedTokenCutter(tokenizer.to_str()).cut("the<|a|>user<call>asks")
    expected: dict[str, list[str | int]] = {
        "byte level, normalized": ["the", tokenizer.token_to_id("<|a|>"), "user<call>asks"],
        "no added tokens": ["the<|a|>user", tokenizer.token_to_id("<call>"), "asks"],
        **{whole: ["the<|a|>user<call>asks"] for whole in WHOLE},
    }
    ids = [tokenizer.token_to_id(token) for token in ("<|a|>", "<call>")]
    assert pieces == expected.get(name, ["the", ids[0], "user", ids[1], "asks"])


def test_dropout_is_never_kept() -> None:
    model = tokenizers.models.BPE(vocab={"a": 0, "aa": 1}, merges=[("a", "a")], dropout=0.5)
    tokenizer = build(tokenizers.pre_tokenizers.Whitespace(), model=model)
    assert AddedTokenCutter(tokenizer.to_str()).cut("a<|a|>a") == ["a<|a|>a"]


def test_a_stretch_is_tokenized_once_and_kept_while_there_is_room() -> None:
    tokenizer = MAKES["byte level"]()
    asked: list[str] = []

    def encode_batch(given: Sequence[str]) -> list[TokenIds]:
        asked.extend(given)
        return batch(tokenizer)(given)

    encoder = CachedEncoder(encode_batch, AddedTokenCutter(tokenizer.to_str()), capacity_characters=10)
    encoder.encode("user<|a|>agent<|b|>user")
    assert asked == ["user", "agent"]
    encoder.encode("agent<|a|>user")
    assert asked == ["user", "agent"]
    encoder.encode("flight")
    encoder.encode("user")
    encoder.encode("agent")
    assert asked == ["user", "agent", "flight", "agent"]


def test_threads_share_one_encoder() -> None:
    tokenizer = MAKES["byte level"]()
    encoder = CachedEncoder(batch(tokenizer), AddedTokenCutter(tokenizer.to_str()), capacity_characters=60)
    given = [f"user {n % 7}<|a|>agent {n % 5}<|b|>the flight {n % 3}" for n in range(300)]
    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(encoder.encode, given))
    assert [ids.tolist() for ids in results] == [plain(tokenizer, text) for text in given]


def test_empty_text_has_no_ids() -> None:
    tokenizer = MAKES["byte level"]()
    ids = CachedEncoder(batch(tokenizer), AddedTokenCutter(tokenizer.to_str())).encode("")
    assert (ids.size, ids.dtype) == (0, np.dtype(np.uint32))

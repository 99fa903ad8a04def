"""Tokenizers that only transformers loads: other files than ``tokenizer.json``, code of the model's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvcap.errors import UsageError
from kvcap.tokenize.backends.library_tokenizer import LoadedTokenizer, batch_encoder, special_encoder
from kvcap.tokenize.backends.tokenizer_files import TokenizerFiles
from kvcap.tokenize.prompts import TokenIds
from kvcap.tokenize.segments import AddedTokenCutter


def load_with_transformers(files: TokenizerFiles, *, trust_remote_code: bool) -> LoadedTokenizer:
    """Return the tokenizer of a directory, whatever its files are.

    Raises
    ------
    UsageError
        If transformers is missing or cannot load it.
    """
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            f"{files.directory} has no tokenizer.json; expected one, or transformers installed to read it"
        ) from error
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            str(files.directory), trust_remote_code=trust_remote_code
        )
    except Exception as error:
        # Loading may run code of the model, which raises what it likes.
        raise UsageError(f"{files.directory}: transformers cannot load the tokenizer: {error}") from error
    own_rendering = type(tokenizer).apply_chat_template is not (
        transformers.PreTrainedTokenizerBase.apply_chat_template
    )
    encode_batch, encode_special, cutter = _encoders(tokenizer)
    return LoadedTokenizer(
        encode_batch=encode_batch,
        encode_with_special_tokens=encode_special,
        cutter=cutter,
        special_tokens={name: str(value) for name, value in tokenizer.special_tokens_map.items()},
        templates=files.templates or _templates(tokenizer.chat_template),
        apply_chat_template=_renderer(tokenizer) if own_rendering else None,
    )


def _encoders(
    tokenizer: Any,
) -> tuple[Callable[[Sequence[str]], list[TokenIds]], Callable[[str], TokenIds], AddedTokenCutter | None]:
    if tokenizer.is_fast:
        library = tokenizer.backend_tokenizer
        library.no_truncation()
        library.no_padding()
        return batch_encoder(library), special_encoder(library), AddedTokenCutter(library.to_str())

    def encode(text: str, add_special_tokens: bool) -> TokenIds:
        return np.array(tokenizer.encode(text, add_special_tokens=add_special_tokens), dtype=np.uint32)

    return (
        lambda texts: [encode(text, False) for text in texts],
        lambda text: encode(text, True),
        None,
    )


def _renderer(tokenizer: Any) -> Callable[..., str]:
    def render(messages: Any, **kwargs: Any) -> str:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, **kwargs)
        return text

    return render


def _templates(chat_template: str | dict[str, str] | None) -> dict[str, str]:
    return {"default": chat_template} if isinstance(chat_template, str) else dict(chat_template or {})

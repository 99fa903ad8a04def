"""Who renders and tokenizes: one module per backend, each with ``create(options) -> Backend``.

========================= ==========================================================================
``huggingface``           the model's tokenizer and chat template, in this process
``engine``                the ``/tokenize`` of a running vLLM or SGLang server
``sglang``                SGLang's own request types and template code, without weights
``vllm``                  vLLM's own renderer, without weights
========================= ==========================================================================
"""

from __future__ import annotations

import importlib
from typing import Protocol

from kvcap.tokenize.options import TokenizeOptions
from kvcap.tokenize.prompts import ChatPrompt, TextPrompt, TokenIds


class Backend(Protocol):
    """Turns prompts into token ids; called from several threads at once."""

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        """Return the ids of one prompt, as uint32.

        Raises
        ------
        RecordError
            If this prompt cannot be rendered or tokenized; others may.
        """
        ...

    def close(self) -> None:
        """Release what the backend holds; no call of :meth:`encode` is under way."""
        ...


def create_backend(options: TokenizeOptions) -> Backend:
    """Load the backend that the options name.

    Raises
    ------
    MissingExtraError
        If its packages are not installed.
    UsageError
        If the tokenizer cannot be found or read.
    """
    module = importlib.import_module(f"kvcap.tokenize.backends.{options.backend}")
    backend: Backend = module.create(options)
    return backend

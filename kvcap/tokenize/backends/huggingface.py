"""The model's own tokenizer and chat template, in this process.

Needs ``tokenizers`` and ``jinja2`` (the extra ``huggingface``). The rules are those of transformers 5: a
``tokenizer.json`` is taken as it is, with the tokens that ``tokenizer_config.json`` adds; a chat template
writes all special tokens itself, and completions get those of the tokenizer. Where there is no
``tokenizer.json``, or the tokenizer is code that comes with the model and may run, transformers loads it.
"""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Final

from kvcap.errors import MissingExtraError, RecordError, UsageError
from kvcap.tokenize.backends.messages import template_messages
from kvcap.tokenize.backends.time_limit import TookTooLongError, time_limit
from kvcap.tokenize.backends.tokenizer_files import (
    TOKENIZER_FILE,
    TokenizerFiles,
    find_directory,
    read_tokenizer_files,
)
from kvcap.tokenize.options import TokenizeOptions
from kvcap.tokenize.prompts import ChatPrompt, Json, TextPrompt, TokenIds
from kvcap.tokenize.segments import CachedEncoder

try:
    import jinja2

    from kvcap.tokenize.backends.chat_template import ChatTemplate
    from kvcap.tokenize.backends.library_tokenizer import LoadedTokenizer, load_tokenizer_file
except ImportError as error:
    raise MissingExtraError("the huggingface backend", "huggingface") from error


def create(options: TokenizeOptions) -> HuggingFaceBackend:
    """Load the tokenizer and its chat templates."""
    assert options.tokenizer is not None
    directory = find_directory(options.tokenizer, trust_remote_code=options.trust_remote_code)
    tokenizer = _load(read_tokenizer_files(directory), options.trust_remote_code)
    chosen = None
    if options.chat_template is not None:
        chosen = Path(options.chat_template).read_text(encoding="utf-8")
    return HuggingFaceBackend(tokenizer, options.tokenizer, chosen)


def _load(files: TokenizerFiles, trust_remote_code: bool) -> LoadedTokenizer:
    has_file = (files.directory / TOKENIZER_FILE).is_file()
    if has_file and not (files.has_code and trust_remote_code):
        return load_tokenizer_file(files)
    if files.has_code and not trust_remote_code:
        raise UsageError(
            f"the tokenizer of {files.directory} is code of the model's own; --trust-remote-code runs it"
        )
    from kvcap.tokenize.backends.transformers_tokenizer import load_with_transformers

    return load_with_transformers(files, trust_remote_code=trust_remote_code)


RENDER_SECONDS: Final = 10.0
"""What one conversation may take to render; real ones take a thousandth of it."""


class HuggingFaceBackend:
    """Renders with Jinja and tokenizes with the ``tokenizers`` library.

    Parameters
    ----------
    tokenizer
        The loaded tokenizer.
    name
        What messages call the model.
    chat_template
        A template in place of the tokenizer's own.
    """

    def __init__(self, tokenizer: LoadedTokenizer, name: str, chat_template: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._templates = tokenizer.templates if chat_template is None else {"default": chat_template}
        self._started_at = datetime.now(timezone.utc)
        self._compile = lru_cache(maxsize=16)(self._compile_uncached)
        self._encoder = CachedEncoder(tokenizer.encode_batch, tokenizer.cutter)

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        """Return the ids of one prompt.

        Raises
        ------
        RecordError
            If the template or the tokenizer does not take it.
        UsageError
            If the model has no chat template.
        """
        text = prompt.text if isinstance(prompt, TextPrompt) else self.render(prompt)
        try:
            # Half of a surrogate pair is no text; not every release of the library says so.
            text.encode()
            if prompt.add_special_tokens:
                return self._tokenizer.encode_with_special_tokens(text)
            return self._encoder.encode(text)
        except Exception as error:
            # The library raises plain Exception.
            raise prompt.source.error("", f"cannot be tokenized: {error}") from error

    def render(self, prompt: ChatPrompt) -> str:
        """Return the text of a conversation.

        Raises
        ------
        RecordError
            If the template does not take it.
        UsageError
            If the model has no chat template.
        """
        source = self._template_source(prompt)
        try:
            with time_limit(RENDER_SECONDS):
                template = self._compile(source)
                messages = template_messages(prompt, takes_parts=template.takes_parts)
                return self._rendered(prompt, template, messages, source)
        except (RecordError, UsageError):
            raise
        except TookTooLongError:
            raise prompt.source.error(
                "messages",
                f"take the chat template more than {RENDER_SECONDS:g} s; leave the request out (--skip-bad)",
            ) from None
        except Exception as error:
            # A template is a program: it raises on purpose, and trips over what it does not expect.
            reason = " ".join(str(error).split()) or type(error).__name__
            raise prompt.source.error("messages", f"do not fit the chat template: {reason}") from error

    def close(self) -> None:
        """Do nothing; no file is open."""

    def _rendered(self, prompt: ChatPrompt, template: ChatTemplate, messages: list[Json], source: str) -> str:
        if self._tokenizer.apply_chat_template is not None:
            return self._render_own(prompt, messages, source)
        if prompt.continue_final_message:
            return template.render_open(
                messages, prompt.tools, prompt.template_kwargs, timestamp=prompt.timestamp
            )
        return template.render(
            messages,
            prompt.tools,
            prompt.template_kwargs,
            add_generation_prompt=prompt.add_generation_prompt,
            timestamp=prompt.timestamp,
        )

    def _render_own(self, prompt: ChatPrompt, messages: list[Json], source: str) -> str:
        assert self._tokenizer.apply_chat_template is not None
        return self._tokenizer.apply_chat_template(
            messages,
            tools=prompt.tools,
            chat_template=source,
            add_generation_prompt=prompt.add_generation_prompt,
            continue_final_message=prompt.continue_final_message,
            **prompt.template_kwargs,
        )

    def _template_source(self, prompt: ChatPrompt) -> str:
        """Return the template of a request: its own, or the model's for tools where it has one."""
        own = prompt.body.get("chat_template")
        if isinstance(own, str):
            return self._templates.get(own, own)
        name = "tool_use" if prompt.tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            found = ", ".join(sorted(self._templates)) or "none"
            raise UsageError(
                f"{self._name} has no default chat template (found: {found}); give --chat-template"
            )
        return self._templates[name]

    def _compile_uncached(self, source: str) -> ChatTemplate:
        try:
            return ChatTemplate(source, self._tokenizer.special_tokens, self._started_at)
        except jinja2.TemplateError as error:
            if source not in self._templates.values():
                raise
            raise UsageError(f"the chat template of {self._name} is no Jinja template: {error}") from error

"""What a backend turns into token ids: one prompt, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kvcap.errors import RecordError

TokenIds: TypeAlias = npt.NDArray[np.uint32]
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class PromptSource:
    """Where a request stands in the logs.

    Parameters
    ----------
    file
        The file, as the user named it.
    line
        Number of the line (or of the record, in a binary file), from 1.
    """

    file: str
    line: int

    def error(self, field: str, reason: str) -> RecordError:
        """Return the error that says what is wrong with this request."""
        return RecordError(self.file, self.line, field, reason)


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation that a chat template turns into text.

    Parameters
    ----------
    source
        Where it stands in the logs.
    body
        A checked ``/v1/chat/completions`` body, whatever interface the request came through.
    timestamp
        When it was sent, in UTC; templates that print the date print this one.
    media
        How many images and the like stand as placeholders in it.
    untrusted_template
        Whether it came with a chat template of its own, which is not in ``body`` any more.
    """

    source: PromptSource
    body: Json
    timestamp: datetime | None = None
    media: int = 0
    untrusted_template: bool = False

    @property
    def messages(self) -> list[Json]:
        """The conversation, as logged."""
        messages: list[Json] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[Json] | None:
        """The tools offered to the model; none at all and an empty list are the same."""
        return self.body.get("tools") or None

    @property
    def continue_final_message(self) -> bool:
        """Whether the last message is left open for the model to go on with."""
        return bool(self.body.get("continue_final_message"))

    @property
    def add_generation_prompt(self) -> bool:
        """Whether the prompt ends with the opening of the model's turn; engines do so by default."""
        given = self.body.get("add_generation_prompt")
        return not self.continue_final_message if given is None else bool(given)

    @property
    def add_special_tokens(self) -> bool:
        """Whether the tokenizer adds its own tokens to what the template wrote."""
        return bool(self.body.get("add_special_tokens"))

    @property
    def template_kwargs(self) -> Json:
        """Variables of the template beside the conversation and the tools."""
        kwargs = dict(self.body.get("chat_template_kwargs") or {})
        for name in ("documents", "reasoning_effort"):
            if self.body.get(name) is not None:
                kwargs[name] = self.body[name]
        return kwargs


@dataclass(frozen=True)
class TextPrompt:
    """A text that is tokenized as it is.

    Parameters
    ----------
    source
        Where it stands in the logs.
    text
        The prompt.
    add_special_tokens
        Whether the tokenizer adds its own tokens, such as one for the beginning; engines do so by default.
    body
        The whole ``/v1/completions`` body.
    """

    source: PromptSource
    text: str
    add_special_tokens: bool
    body: Json


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt that was sent as token ids."""

    source: PromptSource
    token_ids: TokenIds


Prompt: TypeAlias = ChatPrompt | TextPrompt | TokenPrompt

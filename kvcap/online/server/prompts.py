"""Bodies of the OpenAI API as token ids, by the backends of the tokenize command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Protocol

import numpy as np

from kvcap.errors import KvcapError, RequestRefusedError, TraceError
from kvcap.kernels.arrays import offsets_of
from kvcap.online.estimator import RequestBatch
from kvcap.online.server.incoming import Incoming
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import Prompt, PromptSource, TokenIds, TokenPrompt
from kvcap.tokenize.requests import prompts_of

_SOURCE: Final = PromptSource("body", 1)


class PromptEncoder(Protocol):
    """Turns bodies into token ids; called from several threads at once."""

    def encode(self, body: bytes) -> list[TokenIds]:
        """Return the ids of every prompt of a body, at least one.

        Raises
        ------
        RequestRefusedError
            If it is no request that can be tokenized.
        """
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class TokenizingEncoder:
    """The backends of the tokenize command; without one it takes prompts that are token ids already.

    Parameters
    ----------
    options
        Which tokenizer; None for none.
    """

    def __init__(self, options: TokenizeOptions | None) -> None:
        self._backend = None if options is None else create_backend(options)

    def encode(self, body: bytes) -> list[TokenIds]:
        """Return the ids of every prompt of a body; see :class:`PromptEncoder`."""
        try:
            text = body.decode()
            prompts = prompts_of(text, _SOURCE, datetime.now(timezone.utc), "placeholder")
            return [self._ids(prompt) for prompt in prompts]
        except UnicodeDecodeError as error:
            raise RequestRefusedError(400, f"the body is no UTF-8 ({error}), expected JSON") from error
        except RecursionError as error:
            raise RequestRefusedError(422, "the body nests too deep to be rendered") from error
        except TraceError as error:
            raise RequestRefusedError(422, str(error)) from error

    def close(self) -> None:
        """Release the backend."""
        if self._backend is not None:
            self._backend.close()

    def _ids(self, prompt: Prompt) -> TokenIds:
        if isinstance(prompt, TokenPrompt):
            return prompt.token_ids
        if self._backend is None:
            raise RequestRefusedError(
                501,
                "the prompt is text and the service has no tokenizer: start it with --tokenizer or "
                "--engine-url",
            )
        return self._backend.encode(prompt)


@dataclass(frozen=True)
class World:
    """Whose cache a body looks up, and what besides tokens must agree for it to share blocks there."""

    pool: str | None
    namespace: str | None


def incoming_prompts(
    encoder: PromptEncoder, body: bytes, labels: dict[str, Any], world: World, max_ids: int
) -> Incoming:
    """Return the prompts of a body as requests; runs in a tokenizer's thread.

    Raises
    ------
    RequestRefusedError
        If it cannot be tokenized, or a prompt is too long.
    """
    try:
        prompts = encoder.encode(body)
    except (RequestRefusedError, MemoryError):
        raise
    except (KvcapError, OSError) as error:
        raise RequestRefusedError(502, f"the tokenizer failed: {error}") from error
    longest = max(ids.size for ids in prompts)
    if longest > max_ids:
        raise RequestRefusedError(413, f"a prompt has {longest} tokens, expected at most {max_ids}")
    lengths = [ids.size for ids in prompts]
    return Incoming(
        RequestBatch(
            "token_ids",
            np.concatenate(prompts),
            offsets_of(np.array(lengths, np.int64)),
            pools=None if world.pool is None else [world.pool] * len(prompts),
            namespaces=None if world.namespace is None else [world.namespace] * len(prompts),
        ),
        {name: [value] * len(prompts) for name, value in labels.items()},
    )

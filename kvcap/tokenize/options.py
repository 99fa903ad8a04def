"""How request texts become token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvcap.errors import UsageError
from kvcap.option_fields import option, whole_number

BackendName = Literal["huggingface", "engine", "sglang", "vllm"]
MultimodalMode = Literal["refuse", "placeholder"]

BACKENDS: Final[tuple[BackendName, ...]] = get_args(BackendName)
API_KEY_VARIABLE: Final = "KVCAP_ENGINE_API_KEY"
"""Environment variable with the engine's API key; a key on the command line would show in process lists."""


@dataclass(frozen=True)
class TokenizeOptions:
    """Which tokenizer, and how it is driven.

    Parameters
    ----------
    tokenizer
        A model directory or hub id. The ``engine`` backend has its own and takes this as the name of the
        served model, if at all.
    backend
        Who renders and tokenizes; see :mod:`kvcap.tokenize.backends`.
    chat_template
        A Jinja file in place of the model's own chat template.
    engine_url
        Base address of a running server, for ``engine``.
    engine_timeout_s
        Seconds that one answer of the server may take.
    engine_retries
        How often one prompt is sent again after a failure that may pass.
    tool_call_parser
        The engine's parser of tool calls, for ``sglang``: it decides the prompt of some models.
    multimodal
        What to do with images, audio and other parts that are not text.
    trust_remote_code
        Whether code that comes with a tokenizer may run.
    trust_request_chat_template
        Whether a chat template that comes with a request renders it.
    workers
        Prompts in work at once; 1 is serial. The ids and their order do not depend on it.
    skip_bad
        How many bad requests, those of the reader included, are left out before one stops the run.

    Raises
    ------
    UsageError
        If the backend lacks what it needs, or is given what it cannot use.
    """

    tokenizer: str | None = option(
        None,
        "model directory or hub id; with a running engine, the name of the model that it serves",
        metavar="DIR_OR_ID",
    )
    backend: BackendName = option(
        "huggingface",
        "who renders and tokenizes (default: {default}; engine with --engine-url)",
        "--tokenize-backend",
        choices=BACKENDS,
    )
    chat_template: str | None = option(
        None, "Jinja template in place of the model's own chat template", metavar="FILE"
    )
    engine_url: str | None = option(
        None,
        "a running vLLM or SGLang server whose /tokenize is asked; its API key is taken from "
        f"{API_KEY_VARIABLE}",
        metavar="URL",
    )
    engine_timeout_s: float = 60.0
    engine_retries: int = 5
    tool_call_parser: str | None = option(
        None, "parser of tool calls, for the sglang backend", metavar="NAME"
    )
    multimodal: MultimodalMode = option(
        "refuse",
        "images, audio and the like: refuse the request, or count a short placeholder for each (default: "
        "{default})",
        choices=get_args(MultimodalMode),
    )
    trust_remote_code: bool = option(False, "run code that comes with the tokenizer")
    trust_request_chat_template: bool = option(
        False, "render requests that bring a chat template of their own with it (default: with the model's)"
    )
    workers: int = option(
        4,
        "prompts in work at once, 1 is serial; ids and order are the same for any N (default: {default})",
        "--tokenize-workers",
        metavar="N",
        parse=whole_number(1),
    )
    skip_bad: int = 0

    def __post_init__(self) -> None:
        if self.backend == "engine":
            if self.engine_url is None:
                raise UsageError("the engine backend needs --engine-url")
            if self.chat_template is not None:
                raise UsageError("--chat-template is the server's own choice with the engine backend")
        else:
            if self.tokenizer is None:
                raise UsageError(
                    f"the {self.backend} backend needs --tokenizer (a model directory or hub id)"
                )
            if self.engine_url is not None:
                raise UsageError(f"--engine-url means the engine backend, found {self.backend}")
        if self.tool_call_parser is not None and self.backend != "sglang":
            raise UsageError(f"--tool-call-parser is for the sglang backend, found {self.backend}")
        if self.workers < 1:
            raise UsageError(f"workers is {self.workers}, expected at least 1")

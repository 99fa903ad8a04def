"""SGLang's own request types and template code, without weights: the ids that this release of SGLang sees.

Written for SGLang 0.5.23, whose ``/tokenize`` runs the same methods. Only the configuration and the tokenizer
are loaded. Runs where SGLang is installed, such as in its container; elsewhere the ``engine`` backend asks a
server.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from kvcap.errors import UsageError
from kvcap.tokenize.options import TokenizeOptions
from kvcap.tokenize.prompts import ChatPrompt, Json, TextPrompt, TokenIds

SGLANG_RELEASE: Final = "0.5.23"

_NOT_OF_THE_PROMPT: Final = ("max_tokens", "max_completion_tokens", "stream", "stream_options", "n")
"""Fields that SGLang checks against a running engine, and that leave the prompt as it is."""


def create(options: TokenizeOptions) -> SglangBackend:
    """Load the configuration and the tokenizer through SGLang.

    Raises
    ------
    UsageError
        If SGLang is not installed or another release, or does not take the model or the parser.
    """
    elsewhere = "--tokenize-backend engine asks any server"
    try:
        import sglang
    except ImportError as error:
        raise UsageError(
            f"the sglang backend runs where SGLang {SGLANG_RELEASE} is, as in its container; {elsewhere}"
        ) from error
    if sglang.__version__ != SGLANG_RELEASE:
        raise UsageError(
            f"the sglang backend is for SGLang {SGLANG_RELEASE}, found {sglang.__version__}; {elsewhere}"
        )
    return SglangBackend(options)


class SglangBackend:
    """Renders and tokenizes with SGLang's classes, one prompt at a time: they keep state between calls.

    Parameters
    ----------
    options
        The model directory or hub id, the parser of tool calls, and whether the model's code may run.

    Raises
    ------
    UsageError
        If SGLang does not take the model or the parser.
    """

    def __init__(self, options: TokenizeOptions) -> None:
        _check_parser(options.tool_call_parser)
        try:
            self._serving, self._tokenizer = _serving(options)
        except Exception as error:
            # Pydantic, transformers and SGLang each raise errors of their own here.
            reason = " ".join(str(error).split())[:300]
            raise UsageError(f"SGLang does not take {options.tokenizer}: {reason}") from error
        self._lock = threading.Lock()

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        """Return the ids of one prompt.

        Raises
        ------
        RecordError
            If SGLang refuses this prompt.
        """
        try:
            with self._lock:
                ids = self._chat(prompt.body) if isinstance(prompt, ChatPrompt) else self._text(prompt)
        except Exception as error:
            # What SGLang answers with status 400 are errors of several libraries inside it.
            raise prompt.source.error("", f"is refused by SGLang: {' '.join(str(error).split())}") from error
        return np.array(ids, dtype=np.uint32)

    def close(self) -> None:
        """Do nothing; no file is open."""

    def _chat(self, body: Json) -> list[int]:
        from sglang.srt.entrypoints.openai.protocol import TokenizeRequest

        fields = {
            key: value for key, value in body.items() if value is not None and key not in _NOT_OF_THE_PROMPT
        }
        ids: list[int] = self._serving._tokenize_chat_request(TokenizeRequest.model_validate(fields))
        return ids

    def _text(self, prompt: TextPrompt) -> list[int]:
        ids: list[int] = self._tokenizer.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)
        return ids


def _check_parser(name: str | None) -> None:
    if name is None:
        return
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    known = sorted(FunctionCallParser.ToolCallParserEnum)
    if name not in known:
        raise UsageError(f"--tool-call-parser is {name!r}, expected one of {', '.join(known)}")


def _serving(options: TokenizeOptions) -> tuple[Any, Any]:
    """Return SGLang's handler of ``/tokenize``, over as much of a manager as it needs, and the tokenizer."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingTokenize
    from sglang.srt.parser.template_manager import TemplateManager
    from sglang.srt.runtime_context import get_context, publish
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils.hf_transformers.tokenizer import get_tokenizer

    server_args = ServerArgs(
        model_path=options.tokenizer,
        trust_remote_code=options.trust_remote_code,
        tool_call_parser=options.tool_call_parser,
        chat_template=options.chat_template,
        device="cpu",
    )
    publish(server_args, role="tokenizer")
    tokenizer = get_tokenizer(options.tokenizer, trust_remote_code=options.trust_remote_code)
    manager = SimpleNamespace(
        server_args=server_args,
        model_path=options.tokenizer,
        served_model_name=options.tokenizer,
        model_config=ModelConfig.from_server_args(server_args),
        tokenizer=tokenizer,
        processor=None,
        config_value=get_context().config_leaf,
    )
    templates = TemplateManager()
    templates.initialize_templates(manager, options.tokenizer, options.chat_template)
    return OpenAIServingTokenize(manager, templates), tokenizer

"""vLLM's own renderer, without weights: the ids that this release of vLLM sees.

Written for vLLM 0.32, whose ``vllm launch render`` builds the same objects. Runs where vLLM is installed,
such as in its container; elsewhere the ``engine`` backend asks a server.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import numpy as np

from kvcap.errors import MissingExtraError, UsageError
from kvcap.tokenize.options import TokenizeOptions
from kvcap.tokenize.prompts import ChatPrompt, Json, TextPrompt, TokenIds

VLLM_RELEASE: Final = "0.32"

_NOT_OF_THE_PROMPT: Final = (
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "n",
    "response_format",
    "tool_choice",
)
"""Fields that vLLM checks against a running engine, and that leave the prompt as it is."""

_Result = TypeVar("_Result")


def create(options: TokenizeOptions) -> VllmBackend:
    """Load the configuration and the tokenizer through vLLM.

    Raises
    ------
    MissingExtraError
        If vLLM is not installed.
    UsageError
        If it is another release, or does not take the model.
    """
    # Its log goes to stdout by default, where the ids go.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm
    except ImportError as error:
        raise MissingExtraError("the vllm backend", "vllm") from error
    if not vllm.__version__.startswith(f"{VLLM_RELEASE}."):
        raise UsageError(
            f"the vllm backend is written for vLLM {VLLM_RELEASE}, found {vllm.__version__}; "
            "--tokenize-backend engine asks any server"
        )
    return VllmBackend(options)


class VllmBackend:
    """Renders and tokenizes with vLLM's classes, on an event loop of its own.

    Parameters
    ----------
    options
        The model directory or hub id, and whether its code may run.

    Raises
    ------
    UsageError
        If vLLM does not take the model.
    """

    def __init__(self, options: TokenizeOptions) -> None:
        try:
            self._renderer = _online_renderer(options)
        except Exception as error:
            # Pydantic, transformers and vLLM each raise errors of their own here.
            reason = " ".join(str(error).split())[:300]
            raise UsageError(f"vLLM does not take {options.tokenizer}: {reason}") from error
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kvcap-vllm", daemon=True)
        self._thread.start()

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        """Return the ids of one prompt.

        Raises
        ------
        RecordError
            If vLLM refuses this prompt.
        """
        try:
            inputs = self._run(self._chat(prompt) if isinstance(prompt, ChatPrompt) else self._text(prompt))
        except Exception as error:
            # What vLLM answers with status 400 are errors of several libraries inside it.
            raise prompt.source.error("", f"is refused by vLLM: {' '.join(str(error).split())}") from error
        return np.array(inputs["prompt_token_ids"], dtype=np.uint32)

    def close(self) -> None:
        """End the event loop and the renderer's threads."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._renderer.renderer.shutdown()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _chat(self, prompt: ChatPrompt) -> Any:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        rendered = await self._renderer.render_chat(ChatCompletionRequest(**_prompt_fields(prompt.body)))
        if not isinstance(rendered, tuple):
            raise ValueError(rendered.error.message)
        ((inputs,),) = rendered[1:]
        return inputs

    async def _text(self, prompt: TextPrompt) -> Any:
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        body = {**_prompt_fields(prompt.body), "prompt": prompt.text}
        rendered = await self._renderer.render_completion(CompletionRequest(**body))
        if not isinstance(rendered, list):
            raise ValueError(rendered.error.message)
        (inputs,) = rendered
        return inputs


def _prompt_fields(body: Json) -> Json:
    return {key: value for key, value in body.items() if value is not None and key not in _NOT_OF_THE_PROMPT}


def _online_renderer(options: TokenizeOptions) -> Any:
    """Return what ``vllm launch render`` renders with."""
    from vllm import AsyncEngineArgs
    from vllm.config import VllmConfig
    from vllm.renderers import renderer_from_config
    from vllm.renderers.chat_utils import load_chat_template
    from vllm.renderers.online_renderer import OnlineRenderer

    engine = AsyncEngineArgs(
        model=options.tokenizer,
        trust_remote_code=options.trust_remote_code,
        renderer_num_workers=options.workers,
    )
    model_config = engine.create_model_config()
    # Nothing is computed: without weights, their quantization need not fit this machine.
    model_config.quantization = None
    return OnlineRenderer(
        model_config=model_config,
        renderer=renderer_from_config(VllmConfig(model_config=model_config)),
        request_logger=None,
        chat_template=load_chat_template(options.chat_template),
        chat_template_content_format="auto",
        trust_request_chat_template=options.trust_request_chat_template,
        enable_auto_tools=True,
    )

"""The ``/tokenize`` of a running server: the ids are the engine's own.

vLLM and SGLang differ in what they take. vLLM takes the fields that it names, and template arguments only as
``chat_template_kwargs``; SGLang takes a chat completion as it is. Which of them answers is told once, by the
address under which each describes itself.

A failure that may pass (no connection, a timeout, a broken answer, a server that is busy or starting) is
tried again after a growing pause. When one prompt has used up its tries for lack of a server, no other waits
for it either.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any, Final, Literal

import numpy as np

from kvcap.errors import UsageError
from kvcap.tokenize.backends.http_json import Answer, JsonClient
from kvcap.tokenize.options import API_KEY_VARIABLE, TokenizeOptions
from kvcap.tokenize.prompts import ChatPrompt, Json, TextPrompt, TokenIds

Dialect = Literal["vllm", "sglang"]

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0

_SELF_DESCRIPTIONS: Final[tuple[tuple[str, str, Dialect], ...]] = (
    ("/version", "version", "vllm"),
    ("/model_info", "model_path", "sglang"),
    ("/get_model_info", "model_path", "sglang"),
)
"""Address, a field of its answer, and whose it is."""

_MAY_PASS: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_REFUSED: Final = frozenset((400, 413, 422, 500))
"""Statuses that blame the prompt; 500 only when trying again does not help."""

_VLLM_CHAT_FIELDS: Final = (
    "messages",
    "tools",
    "chat_template",
    "add_special_tokens",
    "mm_processor_kwargs",
)


def create(options: TokenizeOptions) -> EngineBackend:
    """Find the server and tell which one it is."""
    assert options.engine_url is not None
    client = JsonClient(options.engine_url, os.environ.get(API_KEY_VARIABLE), options.engine_timeout_s)
    try:
        return EngineBackend(client, options.tokenizer, options.engine_retries)
    except BaseException:
        client.close()
        raise


class EngineBackend:
    """Asks a server for the ids of each prompt.

    Parameters
    ----------
    client
        The server.
    model
        The name of a model that it serves; None leaves the choice to the server.
    retries
        How often a prompt is sent again after a failure that may pass.

    Raises
    ------
    ConnectionError
        If there is no server.
    UsageError
        If it is neither vLLM nor SGLang, or refuses the API key.
    """

    def __init__(self, client: JsonClient, model: str | None, retries: int) -> None:
        self._client = client
        self._model = model
        self._retries = retries
        self._gone = threading.Event()
        self.dialect = self._detect()

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        """Return the ids of one prompt.

        Raises
        ------
        RecordError
            If the server refuses this prompt.
        ConnectionError
            If there is no server any more.
        UsageError
            If it refuses the API key, the model or the address.
        """
        answer = self._send("POST", "/tokenize", self._question(prompt))
        if answer.status in _REFUSED:
            raise prompt.source.error("", f"is refused by the engine: {_message(answer)}")
        self._check(answer, "/tokenize")
        return np.array(answer.json()["tokens"], dtype=np.uint32)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _question(self, prompt: ChatPrompt | TextPrompt) -> Json:
        if isinstance(prompt, TextPrompt):
            question: Json = {"prompt": prompt.text, "add_special_tokens": prompt.add_special_tokens}
        elif self.dialect == "sglang":
            question = {key: value for key, value in prompt.body.items() if value is not None}
        else:
            question = {
                key: prompt.body[key] for key in _VLLM_CHAT_FIELDS if prompt.body.get(key) is not None
            }
            question["chat_template_kwargs"] = prompt.template_kwargs
            question["add_generation_prompt"] = prompt.add_generation_prompt
            question["continue_final_message"] = prompt.continue_final_message
        question.pop("model", None)
        return question if self._model is None else {"model": self._model, **question}

    def _detect(self) -> Dialect:
        for path, field, dialect in _SELF_DESCRIPTIONS:
            answer = self._send("GET", path, None)
            self._check_key(answer)
            described = answer.json() if answer.status == 200 else None
            if isinstance(described, dict) and field in described:
                return dialect
        raise UsageError(f"--engine-url {self._client.url} answers neither like vLLM nor like SGLang")

    def _send(self, method: Literal["GET", "POST"], path: str, question: Json | None) -> Answer:
        """Return an answer that trying again would not change."""
        pause_s = FIRST_PAUSE_S
        for tries in range(1, self._retries + 2):
            answer: Answer | None = None
            try:
                answer = self._client.get(path) if method == "GET" else self._client.post(path, question)
                failure = f"status {answer.status}: {_message(answer)}"
                if answer.status == 200 and method == "POST" and not _is_complete(answer):
                    answer, failure = None, "an answer without tokens and their count"
                elif answer.status not in _MAY_PASS:
                    return answer
            except ConnectionError as error:
                failure = str(error)
            if tries > self._retries or self._gone.is_set():
                break
            asked_s = answer.retry_after_s if answer is not None else None
            self._gone.wait(min(LONGEST_PAUSE_S, asked_s or pause_s * (0.5 + random.random())))
            pause_s *= 2
        if answer is not None and answer.status == 500:
            return answer
        self._gone.set()
        raise ConnectionError(
            f"the engine at {self._client.url} does not answer after {tries} tries: {failure}"
        )

    def _check(self, answer: Answer, path: str) -> None:
        self._check_key(answer)
        if answer.status != 200:
            where = f"{self._client.url}{path}"
            raise UsageError(f"{where} answers with status {answer.status}: {_message(answer)}")

    def _check_key(self, answer: Answer) -> None:
        if answer.status in (401, 403):
            raise UsageError(f"{self._client.url} refuses the API key, expected it in {API_KEY_VARIABLE}")


def _is_complete(answer: Answer) -> bool:
    value = answer.json()
    if not isinstance(value, dict):
        return False
    tokens, count = value.get("tokens"), value.get("count")
    return (
        isinstance(tokens, list)
        and count == len(tokens)
        and all(type(token_id) is int and 0 <= token_id < 2**32 for token_id in tokens)
    )


def _message(answer: Answer) -> str:
    """Return what a server says about an error, in one line."""
    value: Any = answer.json()
    for key in ("error", "detail", "message"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    if isinstance(value, dict) and value.get("message"):
        value = value["message"]
    text = value if isinstance(value, str) else answer.body.decode("utf-8", errors="replace")
    return " ".join(text.split())[:300] or "no reason given"

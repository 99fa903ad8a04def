"""The OpenAI API as a mirror sees it: empty completions that are valid, with what the prompt found.

Nothing is generated. The answer's usage counts the prompt, and ``kv_capacity_estimation`` says what caches
of the configured capacities would have held of it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from kvcap.errors import RequestRefusedError
from kvcap.online.estimator import Observation
from kvcap.online.server.options import ServeOptions
from kvcap.units import format_size

Endpoint = Literal["chat.completion", "text_completion"]


@dataclass(frozen=True)
class ShadowRequest:
    """What of a body matters for the form of its answer, and all of its fields."""

    endpoint: Endpoint
    model: str
    stream: bool
    include_usage: bool
    fields: dict[str, Any]


def read_shadow(body: bytes, endpoint: Endpoint, default_model: str, max_depth: int) -> ShadowRequest:
    """Return how a body wants to be answered.

    Raises
    ------
    RequestRefusedError
        If it is no JSON object, nests too deep, or asks for the other endpoint.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefusedError(400, f"the body is no JSON ({error}), expected a request") from error
    if not isinstance(fields, dict):
        raise RequestRefusedError(422, "the body is no object, expected a request")
    wanted = "messages" if endpoint == "chat.completion" else "prompt"
    if fields.get(wanted) is None:
        raise RequestRefusedError(422, f"the body has no {wanted}")
    if depth_exceeds(fields, max_depth):
        raise RequestRefusedError(422, f"the body nests deeper than {max_depth}")
    model = fields.get("model")
    options = fields.get("stream_options")
    return ShadowRequest(
        endpoint=endpoint,
        model=model if isinstance(model, str) else default_model,
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        fields=fields,
    )


def depth_exceeds(value: object, limit: int) -> bool:
    """Return whether objects and lists nest deeper than ``limit``."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def completion(
    request: ShadowRequest,
    observations: Sequence[Observation],
    options: ServeOptions,
    tokenize_seconds: float,
) -> dict[str, Any]:
    """Return an empty completion for what a body's prompts found."""
    return {
        **_head(request),
        "object": request.endpoint,
        "choices": [_choice(request.endpoint, index) for index in range(len(observations))],
        **_tail(observations, options, tokenize_seconds),
    }


def completion_events(
    request: ShadowRequest,
    observations: Sequence[Observation],
    options: ServeOptions,
    tokenize_seconds: float,
) -> Iterator[bytes]:
    """Yield the same as server-sent events."""
    chat = request.endpoint == "chat.completion"
    head = {**_head(request), "object": "chat.completion.chunk" if chat else "text_completion"}
    choices: list[dict[str, Any]] = []
    for index in range(len(observations)):
        content = {"delta": {"role": "assistant", "content": ""}} if chat else {"text": ""}
        choices.append({"index": index, **content, "logprobs": None, "finish_reason": "stop"})
    last = _tail(observations, options, tokenize_seconds)
    if not request.include_usage:
        usage = {"usage": None} if chat else {}
        last = {"kv_capacity_estimation": last["kv_capacity_estimation"], **usage}
        yield _event({**head, "choices": choices, **last})
    else:
        yield _event({**head, "choices": choices, "usage": None})
        yield _event({**head, "choices": [], **last})
    yield b"data: [DONE]\n\n"


def estimation(observation: Observation, options: ServeOptions, tokenize_seconds: float) -> dict[str, Any]:
    """Return what one prompt found, in the words of the extension."""
    return {
        "request_number": observation.request_number,
        "prompt_tokens": observation.input_tokens,
        "block_accesses": observation.blocks,
        "reusable_accesses": observation.ceiling_blocks,
        "infinite_prefix_hits": observation.ceiling_blocks,
        "beyond_bound_accesses": observation.beyond_bound_blocks,
        "configured_capacities": [
            {
                "capacity": format_size(size),
                "capacity_bytes": size,
                "prefix_hits": hits,
                "prefix_hit_rate": hits / observation.blocks if observation.blocks else None,
            }
            for size, hits in zip(options.capacities_bytes, observation.hit_blocks, strict=True)
        ],
        "required_capacity_bytes": observation.required_blocks * options.block_bytes,
        "tokenize_seconds": tokenize_seconds,
    }


def _head(request: ShadowRequest) -> dict[str, Any]:
    prefix = "chatcmpl" if request.endpoint == "chat.completion" else "cmpl"
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": request.model,
    }


def _choice(endpoint: Endpoint, index: int) -> dict[str, Any]:
    content: dict[str, Any] = {"text": ""}
    if endpoint == "chat.completion":
        content = {"message": {"role": "assistant", "content": "", "refusal": None}}
    return {"index": index, **content, "logprobs": None, "finish_reason": "stop"}


def _tail(
    observations: Sequence[Observation], options: ServeOptions, tokenize_seconds: float
) -> dict[str, Any]:
    tokens = sum(observation.input_tokens for observation in observations)
    found = [estimation(observation, options, tokenize_seconds) for observation in observations]
    return {
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        "kv_capacity_estimation": found[0] if len(found) == 1 else found,
    }


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"

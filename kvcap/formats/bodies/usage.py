"""What an answer says of tokens: those of the prompt, those of them from a cache, and those generated.

Names differ by API, and so does what counts: OpenAI's and Gemini's prompt tokens contain the cached ones,
Anthropic's and Bedrock's input tokens do not, nor those written to the cache. A count that is absent is not
0: it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kvcap.formats.rows import INT64_MAX

_WHOLE_PROMPT: Final = ("prompt_tokens", "promptTokenCount", "promptTokens", "prompt")
_FRESH_INPUT: Final = ("input_tokens", "inputTokens", "inputTokenCount", "input")
_CACHED_WITHIN: Final = (
    "cached_tokens",
    "cachedContentTokenCount",
    "cached_input_tokens",
    "cached",
    "prompt_cache_hit_tokens",
)
_READ: Final = (
    "cache_read_input_tokens",
    "cacheReadInputTokenCount",
    "cacheReadInputTokens",
    "input_tokens_cache_read",
    "cache_read_tokens",
    "cacheRead",
)
_WRITTEN: Final = (
    "cache_creation_input_tokens",
    "cacheWriteInputTokenCount",
    "cacheWriteInputTokens",
    "input_tokens_cache_write",
    "cache_write_tokens",
    "cacheWrite",
)
_OUTPUT: Final = (
    "completion_tokens",
    "completion",
    "output_tokens",
    "candidatesTokenCount",
    "outputTokens",
    "outputTokenCount",
    "output",
)
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_HOLDERS: Final = (
    "usage",
    "usageMetadata",
    "usage_metadata",
    "meta_info",
    "amazon-bedrock-invocationMetrics",
)
_AROUND: Final = ("response", "message", "body", "metadata", "outputs", "output")
_EVENT: Final = "data:"


@dataclass(frozen=True)
class Usage:
    """Tokens of one call; None is unknown.

    Parameters
    ----------
    prompt
        All of the prompt, the cached ones included.
    cached
        Those of the prompt that were read from a cache.
    output
        Those that were generated.
    """

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None

    def __or__(self, other: Usage) -> Usage:
        """Return what is known of either, of both this one's."""
        return Usage(
            other.prompt if self.prompt is None else self.prompt,
            other.cached if self.cached is None else self.cached,
            other.output if self.output is None else self.output,
        )


def usage_of(counts: Any) -> Usage:
    """Return what an object of counts says, in the names of any API."""
    if not isinstance(counts, Mapping):
        return Usage()
    read, written = _first(counts, _READ), _first(counts, _WRITTEN)
    cached = _first(counts, _CACHED_WITHIN)
    for name in _DETAILS:
        details = counts.get(name)
        if cached is None and isinstance(details, Mapping):
            cached = _first(details, ("cached_tokens",))
    prompt = _first(counts, _WHOLE_PROMPT)
    if prompt is None:
        prompt = _first(counts, _FRESH_INPUT)
        if prompt is not None and cached is None:
            prompt += (read or 0) + (written or 0)
    output = _first(counts, _OUTPUT)
    thoughts = _first(counts, ("thoughtsTokenCount",))
    if output is not None and thoughts is not None:
        output += thoughts
    return Usage(prompt, read if cached is None else cached, output)


def answer_usage(answer: Any) -> Usage:
    """Return what an answer says of its tokens: an object, its JSON, or the text of an event stream."""
    counts: dict[str, Any] = {}
    for part in _parts(answer):
        for found in _holders(part):
            counts.update((key, value) for key, value in found.items() if value is not None)
    return usage_of(counts)


def _parts(answer: Any) -> Iterator[Any]:
    if type(answer) is str:
        lines = [answer] if answer[:1] in ("{", "[") else []
        if not lines and _EVENT in answer:
            lines = [line[len(_EVENT) :] for line in answer.splitlines() if line.startswith(_EVENT)]
        for line in lines:
            try:
                yield from _parts(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
    elif isinstance(answer, list):
        yield from answer
    else:
        yield answer


def _holders(part: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of counts in an answer, or in what stands around one, in the order of their reach."""
    around = [part, *(part.get(key) for key in _AROUND)] if isinstance(part, dict) else []
    for place in around:
        if isinstance(place, dict):
            yield from (place[key] for key in _HOLDERS if isinstance(place.get(key), dict))


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first count that is there and whole: 12 and 12.0, not true."""
    for name in names:
        value = counts.get(name)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is str and value.isdecimal() and len(value) < 19:
            value = int(value)
        if type(value) is int and 0 <= value <= INT64_MAX:
            return value
    return None

"""Prompts as OpenAI chat completion requests, with tools and tool calls, in made-up English."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kvcap.synth.draws import Draws
from kvcap.synth.encoders import Context, Encoder, Role, Segment

if TYPE_CHECKING:
    from kvcap.synth.options import SynthOptions

_PROSE: Final = """
the the the the of of of and and and a a to to to in in is is that for for it with as was on be by this
are at from or an not which we you they can will if all one has have do its there their more when what
about up out so no time some new could only other than then first also after use two how our work may
well even made over any where most code file test error value list name type class line case result call
return data key path read write open close find search index query table row column report order user
account page change update create remove check run build start stop wait load save send request response
server client cache block token prefix memory disk queue worker task job step plan goal issue fix patch
merge branch commit review function module import string number array object field option default config
setting version release install command script shell output input log message event signal handle state
store fetch parse format print count size length limit range rate hour day week month city street price
total amount payment ticket flight hotel booking customer question answer reason because however
therefore example below above between before during under small large fast slow high low early late
open. done. works. fails. again. here. there. later. now. yes. first, then, also, still, however, today,
please, maybe, indeed, instead, finally, next, team group person question. answer. ready. soon. again,
"""
_WORDS: Final = tuple(_PROSE.split())
"""256 words, one for each value of a byte; frequent ones stand several times."""

_VERBS: Final = ("get", "list", "search", "create", "update", "delete", "read", "run")
_NOUNS: Final = ("file", "record", "account", "order", "page", "report", "ticket", "command")
_MAX_TOOLS: Final = 24

_TOKENS_PER_TOOL: Final = 120
"""About what one definition takes; a system prompt's tools fill up to half of its length."""

_WORDS_PER_TOKEN: Final = 0.8


class OpenAIRequests(Encoder):
    """Prompts as ``messages`` and ``tools``; token counts are met roughly, by ``0.8`` words a token."""

    def __init__(self, options: SynthOptions) -> None:
        self._seed = options.seed
        self._texts = 0
        self.shared = lru_cache(maxsize=4096)(self._shared)
        self.tools = lru_cache(maxsize=256)(self._tools)

    def start(self) -> Context:
        """Return an empty prompt."""
        return _OpenAIContext(self)

    def fresh(self, tokens: int) -> str:
        """Return a text that occurs nowhere else."""
        self._texts += 1
        return self._prose(f"own {self._texts}", tokens)

    def _shared(self, segment: Segment) -> str:
        return self._prose(segment.name, segment.tokens)

    def _prose(self, name: str, tokens: int) -> str:
        content = Draws(self._seed, "words", name).content(max(1, round(tokens * _WORDS_PER_TOKEN)))
        return " ".join(_WORDS[byte] for byte in content)

    def _tools(self, segment: Segment) -> tuple[tuple[str, ...], bytes]:
        """Return the names and the JSON of the tools that come with a system prompt."""
        count = min(_MAX_TOOLS, max(1, segment.tokens // (2 * _TOKENS_PER_TOOL)))
        start = Draws(self._seed, "tools", segment.name).integers(6)
        names = tuple(_tool_name((start + number) % 64) for number in range(count))
        tools = [_tool(name, self._prose(f"{segment.name} {name}", 40)) for name in names]
        return names, _json(tools)


class _OpenAIContext(Context):
    def __init__(self, encoder: OpenAIRequests) -> None:
        super().__init__()
        self._encoder = encoder
        self._calls = 0
        self._call_name = ""
        self._tool_names: tuple[str, ...] = ()
        self._tools = b"[]"

    def add(self, role: Role, own_tokens: int, shared: tuple[Segment, ...] = ()) -> None:
        self.tokens += own_tokens + sum(segment.tokens for segment in shared)
        if role == "system" and shared:
            self._tool_names, self._tools = self._encoder.tools(shared[0])
        texts = [self._encoder.shared(segment) for segment in shared]
        if own_tokens:
            texts.append(self._encoder.fresh(own_tokens))
        self._append(_json(self._message(role, "\n\n".join(texts))))

    def fields(self) -> tuple[bytes, bytes, bytes]:
        return b'"messages":[', bytes(self.text), b'],"tools":' + self._tools

    def _message(self, role: Role, text: str) -> dict[str, object]:
        if role == "call":
            self._calls += 1
            self._call_name = self._tool_names[(len(text) + self._calls) % len(self._tool_names)]
            function = {"name": self._call_name, "arguments": json.dumps({"query": text})}
            call = {"id": self._call_id(), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        if role == "tool":
            return {"role": "tool", "tool_call_id": self._call_id(), "name": self._call_name, "content": text}
        return {"role": role, "content": text}

    def _call_id(self) -> str:
        return f"call_{self._calls:04d}"


def _tool_name(number: int) -> str:
    return f"{_VERBS[number // 8]}_{_NOUNS[number % 8]}"


def _tool(name: str, description: str) -> dict[str, object]:
    query = {"type": "string", "description": f"What to {name.replace('_', ' ')}"}
    limit = {"type": "integer", "description": "How many results to return"}
    parameters = {"type": "object", "properties": {"query": query, "limit": limit}, "required": ["query"]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

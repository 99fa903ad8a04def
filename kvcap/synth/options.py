"""What a synthetic trace is made of, and the defaults of each profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from kvcap.errors import UsageError

Profile = Literal["chat", "agent", "rag"]
Kind = Literal["hash-ids", "token-ids", "openai"]

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_AT_LEAST_ONE: Final = ("block_size", "users", "system_prompts", "system_prompt_tokens", "documents")
_POSITIVE: Final = (
    "sessions_per_hour",
    "think_seconds",
    "turns",
    "opening_tokens",
    "turn_tokens",
    "output_tokens",
    "context_tokens",
    "document_tokens",
)
_PERCENT: Final = ("tool_percent", "edit_percent", "subagent_percent", "document_reuse_percent")
_NOT_NEGATIVE: Final = ("popularity_skew", "user_prompt_tokens", "documents_per_request")


def _finite(options: object, name: str) -> float:
    value: float = getattr(options, name)
    return value if math.isfinite(value) else -1.0


def _check(fine: bool, name: str, value: object, expected: str) -> None:
    if not fine:
        raise UsageError(f"{name} is {value!r}, expected {expected}")


@dataclass(frozen=True)
class SynthOptions:
    """The knobs of a synthetic trace.

    Every length, count and time that says "mean" is the mean of a skewed distribution whose shape is that of
    a real trace (see :mod:`kvcap.synth.sessions`).

    Parameters
    ----------
    profile
        ``chat``: conversations of a few turns. ``agent``: coding agents whose context grows over many tool
        calls, is compacted when full, and which start subagents. ``rag``: questions over shared documents.
    kind
        ``hash-ids``, ``token-ids`` or ``openai`` (chat completion requests).
    seed
        Equal options give equal bytes.
    requests
        Stop after so many requests; None for no limit.
    duration_hours
        Stop at this time of the trace; None for no limit.
    block_size
        Tokens per block of ``hash-ids``.
    model
        Name written into each request.
    sessions_per_hour
        Rate at which sessions start, as a Poisson process.
    think_seconds
        Mean time from one request of a session to its next.
    turns
        Mean turns of a session.
    users, user_prompt_tokens
        How many users there are, and the mean length of what each of them (a memory, a project's notes) puts
        behind the system prompt in all sessions.
    system_prompts, system_prompt_tokens
        How many system prompts (with their tools) there are, and their mean length.
    popularity_skew
        Zipf exponent of system prompts, users and documents; 0 makes all equally popular.
    opening_tokens, turn_tokens, output_tokens
        Mean lengths of what a session opens with, of each later message or tool result, of each answer.
    context_tokens
        A longer context is compacted into a summary (``agent``) or ends the session.
    tool_percent
        Share of answers that call a tool and so lead to another request at once.
    edit_percent
        Share of turns whose message is taken back and written anew.
    subagent_percent
        Share of turns that start a subagent with a context of its own.
    documents, document_tokens
        How many documents there are, and their mean length.
    documents_per_request
        Mean number of documents before a question.
    document_reuse_percent
        How often a document is followed by its usual neighbour, so that lists of documents share prefixes.
    """

    profile: Profile
    kind: Kind = "hash-ids"
    seed: int = 0
    requests: int | None = 10_000
    duration_hours: float | None = None
    block_size: int = 64
    model: str = "synthetic"
    sessions_per_hour: float = 100.0
    think_seconds: float = 100.0
    turns: float = 2.0
    users: int = 100
    user_prompt_tokens: float = 0.0
    system_prompts: int = 4
    system_prompt_tokens: float = 1000.0
    popularity_skew: float = 1.0
    opening_tokens: float = 1000.0
    turn_tokens: float = 1000.0
    output_tokens: float = 350.0
    context_tokens: int = 128_000
    tool_percent: float = 0.0
    edit_percent: float = 0.0
    subagent_percent: float = 0.0
    documents: int = 1000
    document_tokens: float = 1000.0
    documents_per_request: float = 0.0
    document_reuse_percent: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises
        ------
        UsageError
            If a knob is out of its range, or nothing ends the trace.
        """
        _check(self.profile in PROFILES, "profile", self.profile, f"one of {', '.join(PROFILES)}")
        _check(self.kind in KINDS, "kind", self.kind, f"one of {', '.join(KINDS)}")
        for name in _AT_LEAST_ONE:
            _check(_finite(self, name) >= 1, name, getattr(self, name), "a number from 1")
        for name in _POSITIVE:
            _check(_finite(self, name) > 0, name, getattr(self, name), "a number above 0")
        for name in _NOT_NEGATIVE:
            _check(_finite(self, name) >= 0, name, getattr(self, name), "a number from 0")
        for name in _PERCENT:
            _check(0 <= _finite(self, name) <= 100, name, getattr(self, name), "a percentage from 0 to 100")
        if self.requests is not None:
            _check(self.requests >= 1, "requests", self.requests, "a whole number from 1")
        if self.duration_hours is not None:
            _check(
                _finite(self, "duration_hours") > 0, "duration_hours", self.duration_hours, "a number above 0"
            )
        if self.requests is None and self.duration_hours is None:
            raise UsageError(
                "neither requests nor duration_hours is given, expected one of them to end the trace"
            )


DEFAULTS: Final[dict[Profile, SynthOptions]] = {
    "chat": SynthOptions(
        profile="chat",
        sessions_per_hour=6500,
        think_seconds=215,
        turns=1.6,
        users=2000,
        user_prompt_tokens=150,
        system_prompts=6,
        system_prompt_tokens=900,
        opening_tokens=9000,
        turn_tokens=2500,
        output_tokens=340,
        context_tokens=128_000,
        tool_percent=5,
        edit_percent=3,
    ),
    "agent": SynthOptions(
        profile="agent",
        sessions_per_hour=130,
        think_seconds=150,
        turns=50,
        users=60,
        user_prompt_tokens=4000,
        system_prompts=3,
        system_prompt_tokens=16_000,
        opening_tokens=65_000,
        turn_tokens=1200,
        output_tokens=440,
        context_tokens=160_000,
        tool_percent=85,
        edit_percent=1,
        subagent_percent=2,
    ),
    "rag": SynthOptions(
        profile="rag",
        sessions_per_hour=6000,
        think_seconds=60,
        turns=1.5,
        users=500,
        user_prompt_tokens=0,
        system_prompts=4,
        system_prompt_tokens=600,
        opening_tokens=60,
        turn_tokens=60,
        output_tokens=250,
        context_tokens=64_000,
        documents=2000,
        document_tokens=1200,
        documents_per_request=5,
        document_reuse_percent=60,
    ),
}
"""The options of each profile before the user changes any."""


def default_options(profile: Profile, **changes: Any) -> SynthOptions:
    """Return the options of a profile with some of them changed.

    Raises
    ------
    UsageError
        If the profile or a name is unknown, or a value out of its range.
    """
    _check(profile in DEFAULTS, "profile", profile, f"one of {', '.join(PROFILES)}")
    unknown = sorted(changes.keys() - {field.name for field in fields(SynthOptions)})
    _check(not unknown, "option", ", ".join(unknown), "a field of SynthOptions")
    return replace(DEFAULTS[profile], **changes)

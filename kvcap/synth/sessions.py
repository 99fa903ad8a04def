"""How sessions of each profile go: what is said, how long it is, and when.

The shapes below are quantiles of public traces, at :data:`kvcap.synth.draws.SHARES`: openings, messages,
answers and pauses of chats from the Mooncake conversation trace (FAST'25), those of agents from the sessions
of kv-cache-tester; a knob scales a shape to another mean. A generator holds one session: what it yields is
sent at once, and it goes on after ``pause_ms``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kvcap.synth.draws import Draws, Popularity, Quantiles
from kvcap.synth.encoders import Context, Encoder, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcap.synth.options import Profile, SynthOptions

_PART = Quantiles(0.2, 0.25, 0.35, 0.5, 0.7, 1, 1.25, 1.5, 1.7, 1.8, 1.9, 2.1, 2.3, 2.5, 2.8, 3)
"""Shared texts: system prompts, notes and documents."""

_CHAT_OPENING = Quantiles(
    1, 4, 6, 14, 445, 4370, 12200, 24700, 37600, 50900, 66200, 89000, 111000, 117000, 120000, 125000
)
_CHAT_MESSAGE = Quantiles(
    5, 20, 50, 100, 190, 480, 3150, 9400, 14300, 17100, 20200, 26300, 32300, 41500, 53800, 94600
)
_CHAT_ANSWER = Quantiles(1, 3, 10, 24, 156, 350, 472, 597, 698, 800, 950, 1119, 1300, 1600, 1800, 2000)
_CHAT_PAUSE = Quantiles(5, 18, 30, 42, 66, 123, 264, 483, 615, 750, 1030, 1480, 1910, 2290, 2640, 3030)
_CHAT_TURNS = Quantiles(0.6, 0.7, 0.8, 0.9, 1, 1.3, 2.4, 4, 6, 8, 9, 12, 16, 22, 28, 50)

_AGENT_OPENING = Quantiles(
    30, 60, 120, 300, 900, 2600, 76000, 231000, 339000, 412000, 498000, 631000, 772000, 817000, 827000, 832000
)
_AGENT_RESULT = Quantiles(
    5, 20, 35, 50, 120, 350, 1130, 2970, 5430, 7530, 9500, 14500, 19000, 27000, 34000, 50000
)
_AGENT_ANSWER = Quantiles(5, 70, 89, 105, 137, 216, 426, 898, 1550, 2190, 2790, 3690, 5020, 6340, 7980, 18200)
_AGENT_PAUSE = Quantiles(1, 6, 7, 8, 11, 18, 38, 129, 307, 599, 850, 2130, 3350, 11700, 25600, 77600)
_AGENT_TURNS = Quantiles(2, 3, 4, 6, 14, 39, 89, 150, 227, 240, 266, 326, 356, 424, 456, 514)

_SUMMARY_TOKENS: Final = 12_000
_SUBAGENT_TURNS: Final = 8
_SUBAGENT_TASK_TOKENS: Final = 800
_SUBAGENT_PROMPT_SHARE: Final = 0.4
"""Length of a subagent's system prompt, as a share of the main one's."""

_LONG_CONTEXT_FACTOR: Final = 5
"""A session that opens with more than half of the usual context runs with the long-context variant."""

_TOOL_PAUSE_SHARE: Final = 0.1
"""A chat's tools answer faster than its user."""


@dataclass(frozen=True)
class Request:
    """One request of a session.

    Parameters
    ----------
    context
        Its prompt; valid until the session goes on.
    output_tokens
        Length of the answer.
    pause_ms
        Time until the session goes on.
    """

    context: Context
    output_tokens: int
    pause_ms: int


class World:
    """What all sessions of a trace share.

    Parameters
    ----------
    options
        The knobs.
    encoder
        Starts prompts.
    """

    def __init__(self, options: SynthOptions, encoder: Encoder) -> None:
        self.options = options
        self._encoder = encoder
        self._systems = Popularity(options.system_prompts, options.popularity_skew)
        self._users = Popularity(options.users, options.popularity_skew)
        self._documents = Popularity(options.documents, options.popularity_skew)
        self._segment = lru_cache(maxsize=1 << 16)(self._new_segment)

    def shared_prompt(self, draws: Draws) -> tuple[Segment, ...]:
        """Return a system prompt and what its user adds to it."""
        options = self.options
        system = self._segment("system", draws.pick(self._systems), options.system_prompt_tokens)
        user = draws.pick(self._users)
        if not options.user_prompt_tokens:
            return (system,)
        return system, self._segment("user", user, options.user_prompt_tokens)

    def subagent_prompt(self, draws: Draws) -> tuple[Segment, ...]:
        """Return the system prompt of a subagent."""
        mean = self.options.system_prompt_tokens * _SUBAGENT_PROMPT_SHARE
        return (self._segment("subagent", draws.pick(self._systems), mean),)

    def documents(self, draws: Draws) -> tuple[Segment, ...]:
        """Return what a retrieval finds: popular documents, often followed by their usual neighbours."""
        options = self.options
        if not options.documents_per_request:
            return ()
        number = draws.pick(self._documents)
        found = [number]
        for _ in range(draws.length(_PART, options.documents_per_request) - 1):
            follows = draws.chance(options.document_reuse_percent)
            number = (number * 7 + 1) % options.documents if follows else draws.pick(self._documents)
            if number not in found:
                found.append(number)
        return tuple(self._segment("document", number, options.document_tokens) for number in found)

    def open(self, shared: tuple[Segment, ...]) -> Context:
        """Return a new prompt that begins with shared texts."""
        context = self._encoder.start()
        context.add("system", 0, shared)
        return context

    def _new_segment(self, what: str, number: int, mean_tokens: float) -> Segment:
        name = f"{what} {number}"
        return Segment(name, Draws(self.options.seed, "length", name).length(_PART, mean_tokens))


def chat_session(world: World, draws: Draws) -> Iterator[Request]:
    """Yield the requests of a conversation, with a tool call or a rewritten message now and then.

    With ``documents_per_request`` each opening question comes with what was retrieved for it.
    """
    options = world.options
    context = world.open(world.shared_prompt(draws))
    mean_tokens = options.opening_tokens
    opening, documents = _CHAT_OPENING, world.documents(draws)
    for _ in range(draws.length(_CHAT_TURNS, options.turns)):
        context.mark()
        context.add("user", draws.length(opening, mean_tokens), documents)
        if context.tokens > options.context_tokens:
            return
        answer = draws.length(_CHAT_ANSWER, options.output_tokens)
        while draws.chance(options.tool_percent):
            yield Request(context, answer, _pause_ms(draws, _CHAT_PAUSE, options, _TOOL_PAUSE_SHARE))
            context.add("call", answer)
            context.add("tool", draws.length(_CHAT_MESSAGE, options.turn_tokens))
            answer = draws.length(_CHAT_ANSWER, options.output_tokens)
        yield Request(context, answer, _pause_ms(draws, _CHAT_PAUSE, options))
        opening, mean_tokens, documents = _CHAT_MESSAGE, options.turn_tokens, ()
        if draws.chance(options.edit_percent):
            context.rewind()
        else:
            context.add("assistant", answer)


def agent_session(world: World, draws: Draws) -> Iterator[Request]:
    """Yield the requests of a coding agent and of the subagents that it waits for."""
    options = world.options
    prompt = world.shared_prompt(draws)
    opening = draws.length(_AGENT_OPENING, options.opening_tokens)
    limit = options.context_tokens * (_LONG_CONTEXT_FACTOR if 2 * opening > options.context_tokens else 1)
    context = world.open(prompt)
    context.add("user", min(opening, limit))
    for _ in range(draws.length(_AGENT_TURNS, options.turns)):
        if context.tokens > limit:
            context = world.open(prompt)
            context.add("user", draws.length(_PART, min(_SUMMARY_TOKENS, limit / 2)))
        answer = draws.length(_AGENT_ANSWER, options.output_tokens)
        context.mark()
        yield Request(context, answer, _pause_ms(draws, _AGENT_PAUSE, options))
        calls = draws.chance(options.tool_percent)
        context.add("call" if calls else "assistant", answer)
        if calls and draws.chance(options.subagent_percent):
            yield from _subagent(world, draws)
        if draws.chance(options.edit_percent):
            context.rewind()
            context.add("user", draws.length(_AGENT_RESULT, options.turn_tokens))
        else:
            context.add("tool" if calls else "user", draws.length(_AGENT_RESULT, options.turn_tokens))


def _subagent(world: World, draws: Draws) -> Iterator[Request]:
    options = world.options
    context = world.open(world.subagent_prompt(draws))
    context.add("user", draws.length(_PART, _SUBAGENT_TASK_TOKENS))
    for _ in range(draws.length(_AGENT_TURNS, _SUBAGENT_TURNS)):
        answer = draws.length(_AGENT_ANSWER, options.output_tokens)
        yield Request(context, answer, _pause_ms(draws, _CHAT_PAUSE, options, _TOOL_PAUSE_SHARE))
        context.add("call", answer)
        context.add("tool", draws.length(_AGENT_RESULT, options.turn_tokens))
        if context.tokens > options.context_tokens:
            return


def _pause_ms(draws: Draws, shape: Quantiles, options: SynthOptions, share: float = 1) -> int:
    return draws.length(shape, options.think_seconds * share * 1000)


SESSIONS: Final[dict[Profile, Callable[[World, Draws], Iterator[Request]]]] = {
    "chat": chat_session,
    "agent": agent_session,
    "rag": chat_session,
}

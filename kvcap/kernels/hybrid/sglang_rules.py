"""How SGLang runs a hybrid model: its rules as numbers, and what a running request has."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Final, NamedTuple

from kvcap.kernels._jit import inner_jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.hybrid.lookup import Path

MOST_NEW_TOKENS: Final = 4096
"""SGLang plans with at most so many tokens of an output."""


OWN, GONE, COMPUTED, HELD, TRACKED, WINDOW_BRANCH, STATE_BRANCH, IS_LAST = range(8)
"""What a running request has: the tree has the tokens in front of ``OWN``; its own window content in front of
``GONE`` is free again; tokens that are there; states; depth of the last state left behind; where windows and
states are to be given to the tree because paths part there, 0 where there is none, like the depth; whether
all is computed."""


class SglangRules(NamedTuple):
    """How SGLang runs a model.

    Attributes
    ----------
    page_tokens : int
        Tokens that nodes are multiples of.
    window_tokens : int
        Sliding window as the cache gets it; 0 for models without.
    has_states : bool
        Whether the model keeps states.
    step_tokens : int
        The most tokens of a prompt that a step computes.
    is_buffered : bool
        Whether a request keeps two states more and tracks the depths at which it leaves one behind.
    state_tokens : int
        Tokens that the model's own scan goes at a time.
    grid_tokens, track_tokens : int
        States are left behind after multiples of the former from the start of a step, and at multiples of the
        latter while tokens are generated.
    slide_tokens : int
        Generated tokens from one freeing of window content to the next.
    """

    page_tokens: int
    window_tokens: int
    has_states: bool
    step_tokens: int
    is_buffered: bool
    state_tokens: int
    grid_tokens: int
    track_tokens: int
    slide_tokens: int


class Request(NamedTuple):
    """The running request: its number, its path, its tokens, and what it has."""

    number: int
    path: Path
    prompt: int
    output: int
    marks: Int64Array


def sglang_rules(
    *,
    page_tokens: int = 1,
    window_tokens: int | None = None,
    has_states: bool = False,
    step_tokens: int = 8192,
    extra_buffer: bool = True,
    state_tokens: int = 64,
    track_tokens: int = 256,
    slide_tokens: int = 128,
) -> SglangRules:
    """Return the rules of a model; see :class:`SglangRules`.

    Windows are None for models without; ``state_tokens`` is the step of the model's own scan.
    """
    grid = lcm(max(state_tokens, page_tokens), page_tokens)
    return SglangRules(
        page_tokens,
        window_tokens or 0,
        has_states,
        step_tokens,
        extra_buffer,
        state_tokens,
        grid,
        lcm(grid, track_tokens),
        slide_tokens,
    )


@inner_jit
def round_up(tokens, page):
    """Return the next multiple of a page."""
    return -(-tokens // page) * page

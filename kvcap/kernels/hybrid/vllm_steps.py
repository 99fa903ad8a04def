"""How vLLM runs a hybrid model: its rules as numbers, and where a request's steps end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.lookup import BLOCK, CHECKPOINT, FULL, KIND, LOCAL, SPAN, STATE, WINDOW, Specs

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array

_WHOLE_PROMPT: Final = 1 << 40


class VllmRules(NamedTuple):
    """How vLLM runs a model.

    Attributes
    ----------
    specs : Specs
        Groups of layers.
    step_tokens : int
        The most tokens of a step.
    dense : bool
        Whether states are kept at the end of every step.
    in_flight : bool
        Whether the step before is still running when one is scheduled.
    """

    specs: Specs
    step_tokens: int
    dense: bool
    in_flight: bool


def vllm_rules(
    groups: Int64Array,
    alignment: int,
    *,
    retention_tokens: int | None = 0,
    step_tokens: int = 0,
    async_scheduling: bool = False,
) -> VllmRules:
    """Return the rules of a model.

    Parameters
    ----------
    groups : int64 (n_groups, 4)
        In the order of the pool: kind (``FULL``, ``WINDOW``, ``LOCAL``, ``STATE``), tokens of a block, tokens
        of the window or chunk (0 for others), whether the last step of a prompt also writes the state before
        its end.
    alignment
        Tokens that hits are multiples of, a multiple of every block.
    retention_tokens
        Windows and states are kept before every multiple; 0 for the ends of prompts and where they part
        alone, None for every aligned place.
    step_tokens
        The most tokens of a step; 0 for whole prompts.
    async_scheduling
        Whether a step is scheduled while the one before is running.
    """
    kinds, blocks, spans, checkpoints = groups.T
    needed = np.where(kinds == WINDOW, -(-(spans - 1) // blocks), 1)
    if retention_tokens is None:
        periods = np.where(kinds == WINDOW, alignment // blocks, 1)
    else:
        periods = np.maximum(retention_tokens // blocks, 1) if retention_tokens else np.zeros_like(blocks)
    caps = np.full_like(blocks, -1)
    if step_tokens:
        under_way = step_tokens * (2 if async_scheduling else 1)
        caps = np.where(kinds == WINDOW, -(-(spans - 1 + under_way) // blocks) + 1, caps)
        caps = np.where(kinds == LOCAL, -(-(spans + under_way) // blocks), caps)
    alike: dict[tuple[int, int, int], list[int]] = {}
    for group, spec in enumerate(zip(kinds.tolist(), blocks.tolist(), spans.tolist(), strict=True)):
        alike.setdefault(spec, []).append(group)
    members = [alike[spec] for spec in sorted(alike, key=lambda spec: spec[0] != FULL)]
    specs = Specs(
        np.ascontiguousarray(
            np.column_stack((kinds, blocks, spans, checkpoints, needed, periods, caps)), np.int64
        ),
        np.concatenate(members).astype(np.int64),
        np.cumsum([0, *map(len, members)], dtype=np.int64),
        alignment,
    )
    return VllmRules(specs, step_tokens or _WHOLE_PROMPT, retention_tokens != 0, async_scheduling)


@inner_jit
def extra_states(rules, group, prompt, start, end):
    """Return how many states a step writes besides its last: one before its end, where layers do that."""
    alignment = rules.specs.alignment
    if rules.specs.groups[group, CHECKPOINT] == 0 or (end < prompt and not rules.dense):
        return 0
    block_tokens = rules.specs.groups[group, BLOCK]
    boundary = (end - 1) // alignment * alignment
    block = -(-end // block_tokens) - 2
    is_new = block > (start - 1) // block_tokens and start + alignment <= boundary
    return 1 if is_new and block >= 0 and start % alignment == 0 else 0


@inner_jit
def step_tokens(rules, prompt, junction, start):
    """Return the tokens of the step of a prompt that begins at ``start``."""
    end = min(prompt, start + rules.step_tokens)
    groups = rules.specs.groups
    for group in range(len(groups)):
        if groups[group, KIND] == STATE:
            return _end_at_a_state(rules, group, prompt, junction, start, end) - start
    return end - start


@inner_jit
def _end_at_a_state(rules, group, prompt, junction, start, end):
    block_tokens = rules.specs.groups[group, BLOCK]
    if end < prompt:
        aligned = end // block_tokens * block_tokens
        if aligned > start or block_tokens <= rules.step_tokens:
            end = aligned
    if end < prompt or extra_states(rules, group, prompt, start, end) == 0:
        prompt_stop = (prompt - 1) // block_tokens * block_tokens
        block_stop = (start // block_tokens + 1) * block_tokens
        if start < prompt_stop < end:
            end = prompt_stop
        if start % block_tokens > 0 and block_stop < end:
            end = block_stop
    if start < junction < end:
        junction_stop = start + (junction - start) // block_tokens * block_tokens
        if junction_stop > start:
            end = min(end, junction_stop)
    return end


@inner_jit
def quiet_tokens(rules, done):
    """Return after how many generated tokens, counted from ``done``, a step takes, frees or keeps a block."""
    groups, alignment = rules.specs.groups, rules.specs.alignment
    lag = 1 if rules.in_flight else 0
    quiet = alignment - (done + 1 - lag) % alignment
    for group in range(len(groups)):
        kind, block_tokens, span = groups[group, KIND], groups[group, BLOCK], groups[group, SPAN]
        quiet = min(quiet, block_tokens - done % block_tokens)
        if kind == WINDOW:
            quiet = min(quiet, block_tokens - (done - lag - span + 1) % block_tokens)
        elif kind == LOCAL:
            quiet = min(quiet, span - (done - lag) % span)
        elif kind == STATE:
            quiet = min(quiet, block_tokens - (done - lag - 1) % block_tokens)
    return quiet

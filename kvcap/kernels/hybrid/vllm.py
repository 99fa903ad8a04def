"""vLLM's prefix cache of hybrid models, simulated per capacity over spans of blocks.

Requests run one at a time. A request

1. looks up the longest prefix that all groups of layers can go on from; where some group could have gone
   further is the *junction*;
2. is left out where its blocks do not fit beside what it found; windows and chunks count with what a step
   needs of them at most;
3. is computed in steps of at most so many tokens, states in steps that end where a state is wanted. Before
   each step blocks that the next token does not see go back; each step takes its blocks, empty ones
   first, then the oldest unused ones of any group, and makes findable what it completed: every block of full
   and local attention, of windows and states those that end the prompt's last full block, the junction and,
   with a retention interval, its multiples;
4. hands everything back, group by group, the last block first.

Generated tokens come one per step and fill blocks that nobody else knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numba import prange

from kvcap.kernels._jit import jit, parallel_jit
from kvcap.kernels.hybrid.lookup import (
    BLOCK,
    CAP,
    CHECKPOINT,
    FULL,
    KIND,
    LOCAL,
    SPAN,
    STATE,
    WINDOW,
    Path,
    Specs,
    cached_tokens,
)
from kvcap.kernels.hybrid.pool import EMPTY, QUEUED, empty_pool, take_blocks, with_rows
from kvcap.kernels.hybrid.table import (
    LENGTH,
    begin,
    empty_table,
    free_all,
    free_front,
    make_findable,
    push_raw,
    skipped_blocks,
)

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.segments import SegmentPaths


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


_WHOLE_PROMPT: Final = 1 << 40


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


def vllm_hybrid_hit_tokens(
    paths: SegmentPaths,
    segment_tokens: Int64Array,
    prompt_tokens: Int64Array,
    generated_tokens: Int64Array,
    rules: VllmRules,
    capacities_blocks: Int64Array,
) -> Int64Array:
    """Return the tokens that every request finds in vLLM's prefix cache.

    Parameters
    ----------
    paths : SegmentPaths
        The ids of requests.
    segment_tokens : int64 (n_segments,)
        Tokens that each segment covers.
    prompt_tokens : int64 (n_requests,)
        Length of each prompt. Tokens that no id covers are private to the request; ids beyond the
        prompt do not count.
    generated_tokens : int64 (n_requests,)
        Generated tokens that are fed back: all but the last one.
    rules : VllmRules
        How the model is run.
    capacities_blocks : int64 (n_capacities,)
        Usable blocks of the pool, in any order; one below 0 counts as 0.

    Returns
    -------
    int64 (n_capacities, n_requests)
        Tokens; -1 for a request that does not fit.

    Notes
    -----
    O(pieces of paths) time, O(spans in the pool + segments) memory per capacity; capacities run in parallel.
    """
    hit_tokens = np.zeros((len(capacities_blocks), len(prompt_tokens)), np.int64)
    _simulate(
        np.maximum(capacities_blocks, 0, dtype=np.int64),
        paths.path_offsets,
        paths.path_segments,
        np.ascontiguousarray(segment_tokens, np.int64),
        np.ascontiguousarray(prompt_tokens, np.int64),
        np.ascontiguousarray(generated_tokens, np.int64),
        *rules.specs,
        *rules[1:],
        hit_tokens,
    )
    return hit_tokens


@parallel_jit
def _simulate(
    capacities,
    path_offsets,
    path_segments,
    segment_tokens,
    prompt_tokens,
    generated_tokens,
    groups,
    members,
    offsets,
    alignment,
    step_tokens,
    dense,
    in_flight,
    hit_tokens,
):
    # A parallel loop takes arrays and numbers, no tuples of them.
    for point in prange(len(capacities)):
        _simulate_pool(
            capacities[point],
            path_offsets,
            path_segments,
            segment_tokens,
            prompt_tokens,
            generated_tokens,
            VllmRules(Specs(groups, members, offsets, alignment), step_tokens, dense, in_flight),
            hit_tokens[point],
        )


@jit
def _simulate_pool(
    capacity, path_offsets, path_segments, segment_tokens, prompt_tokens, generated_tokens, rules, hit_tokens
):
    groups = rules.specs.groups
    most_tokens, most_steps = 0, 0
    for request in range(len(prompt_tokens)):
        most_tokens = max(most_tokens, prompt_tokens[request] + generated_tokens[request])
        most_steps = max(most_steps, path_offsets[request + 1] - path_offsets[request])
    finest = groups[0, BLOCK]
    for group in range(len(groups)):
        finest = min(finest, groups[group, BLOCK])
    pool = empty_pool(capacity, len(groups), len(segment_tokens))
    table = empty_table(len(groups), most_tokens // finest + 1)
    ends = np.zeros(most_steps + 1, np.int64)
    for request in range(len(prompt_tokens)):
        prompt, generated = prompt_tokens[request], generated_tokens[request]
        if prompt <= 0:
            continue
        segments = path_segments[path_offsets[request] : path_offsets[request + 1]]
        for step in range(len(segments)):
            ends[step + 1] = min(prompt, ends[step] + segment_tokens[segments[step]])
        # Every block may have to be cut off in front and behind.
        pool = with_rows(pool, 3 * len(groups) * ((prompt + generated) // finest + 1))
        path = Path(segments, ends[: len(segments) + 1])
        hit_tokens[request] = _run(pool, path, table, rules, prompt, generated)


@jit
def _run(pool, path, table, rules, prompt, generated):
    """Run one request; return the tokens that hit, or -1 if it does not fit."""
    specs = rules.specs
    groups, alignment = specs.groups, specs.alignment
    hit, junction = cached_tokens(pool, path, specs, prompt - 1)
    if not _is_admitted(pool, rules, prompt, hit, junction):
        return -1
    for group in range(len(groups)):
        found = hit // groups[group, BLOCK]
        begin(pool, path, table, specs, group, min(skipped_blocks(specs, group, hit), found), found)
    done, last_step = hit, 0
    while done < prompt + generated:
        tokens = _step_tokens(rules, prompt, junction, done) if done < prompt else 1
        if done > hit:
            seen = done - last_step if rules.in_flight else done
            for group in range(len(groups)):
                free_front(pool, table, group, skipped_blocks(specs, group, seen))
        if not _allocate(pool, table, rules, prompt, done, done + tokens):
            for group in range(len(groups)):
                free_all(pool, table, group)
            return -1
        # A token is known, and can be looked up, once the step that generated it has run.
        known = done + tokens
        if rules.in_flight and done >= prompt:
            known = done
        for group in range(len(groups)):
            block_tokens = groups[group, BLOCK]
            make_findable(
                pool,
                path,
                table,
                specs,
                group,
                (prompt - 1) // alignment * alignment // block_tokens,
                junction // alignment * alignment // block_tokens,
                known // alignment * alignment // block_tokens,
            )
        # Nothing changes until a token needs a block, leaves a window or completes a block.
        if done > prompt:
            tokens = min(_quiet_tokens(rules, done), prompt + generated - done)
        done += tokens
        last_step = tokens if done <= prompt else 1
    for group in range(len(groups)):
        free_all(pool, table, group)
    return hit


@jit
def _is_admitted(pool, rules, prompt, hit, junction):
    """Whether the prompt, and its first step, fit beside what is found."""
    specs = rules.specs
    first_end = hit + _step_tokens(rules, prompt, junction, hit)
    whole, first = 0, 0
    for group in range(len(specs.groups)):
        kind, block_tokens = specs.groups[group, KIND], specs.groups[group, BLOCK]
        found = hit // block_tokens
        touched = found - min(skipped_blocks(specs, group, hit), found)
        new = -(-prompt // block_tokens)
        if specs.groups[group, CAP] >= 0:
            new = min(new, specs.groups[group, CAP])
        new = max(0, new - found)
        new_first = max(0, -(-first_end // block_tokens) - found)
        if kind == STATE:
            new = min(new, 1 + _extra_states(rules, group, prompt, hit, prompt))
            new_first = min(new_first, 1 + _extra_states(rules, group, prompt, hit, first_end))
        whole += new + touched
        first += new_first + touched
    return max(whole, first) <= pool.counters[EMPTY] + pool.counters[QUEUED]


@jit
def _allocate(pool, table, rules, prompt, start, end):
    """Take the blocks of tokens ``start`` to ``end``; return whether there are enough."""
    groups, total = rules.specs.groups, 0
    for group in range(len(groups)):
        first, stop = _new_blocks(table, rules, group, prompt, start, end)
        total += stop - first
    if total > pool.counters[EMPTY] + pool.counters[QUEUED]:
        return False
    take_blocks(pool, total)
    for group in range(len(groups)):
        first, stop = _new_blocks(table, rules, group, prompt, start, end)
        push_raw(table, group, first, stop)
        table.marks[group, LENGTH] = stop
    return True


@jit
def _new_blocks(table, rules, group, prompt, start, end):
    """Return the first and the end of the blocks that a step takes for a group: of states only the last."""
    length = table.marks[group, LENGTH]
    stop = max(length, -(-end // rules.specs.groups[group, BLOCK]))
    first = length
    if rules.specs.groups[group, KIND] == STATE:
        first = max(length, stop - 1 - _extra_states(rules, group, prompt, start, end))
    return first, stop


@jit
def _extra_states(rules, group, prompt, start, end):
    """Return how many states a step writes besides its last: one before its end, where layers do that."""
    alignment = rules.specs.alignment
    if rules.specs.groups[group, CHECKPOINT] == 0 or (end < prompt and not rules.dense):
        return 0
    block_tokens = rules.specs.groups[group, BLOCK]
    boundary = (end - 1) // alignment * alignment
    block = -(-end // block_tokens) - 2
    is_new = block > (start - 1) // block_tokens and start + alignment <= boundary
    return 1 if is_new and block >= 0 and start % alignment == 0 else 0


@jit
def _step_tokens(rules, prompt, junction, start):
    """Return the tokens of the step of a prompt that begins at ``start``."""
    end = min(prompt, start + rules.step_tokens)
    groups = rules.specs.groups
    for group in range(len(groups)):
        if groups[group, KIND] == STATE:
            return _end_at_a_state(rules, group, prompt, junction, start, end) - start
    return end - start


@jit
def _end_at_a_state(rules, group, prompt, junction, start, end):
    block_tokens = rules.specs.groups[group, BLOCK]
    if end < prompt:
        aligned = end // block_tokens * block_tokens
        if aligned > start or block_tokens <= rules.step_tokens:
            end = aligned
    if end < prompt or _extra_states(rules, group, prompt, start, end) == 0:
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


@jit
def _quiet_tokens(rules, done):
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

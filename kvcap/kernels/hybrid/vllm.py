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

from typing import TYPE_CHECKING

import numpy as np
from numba import prange

from kvcap.kernels._jit import inner_jit, parallel_jit
from kvcap.kernels.hybrid.lookup import BLOCK, CAP, KIND, STATE, Specs, cached_tokens, path_of
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
from kvcap.kernels.hybrid.vllm_steps import VllmRules, extra_states, quiet_tokens, step_tokens

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.segments import SegmentPaths


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


@inner_jit
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
        path = path_of(segments, segment_tokens, prompt, ends)
        # Every block may have to be cut off in front and behind.
        pool = with_rows(pool, 3 * len(groups) * ((prompt + generated) // finest + 1))
        hit_tokens[request] = _run(pool, path, table, rules, prompt, generated)


@inner_jit
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
        tokens = step_tokens(rules, prompt, junction, done) if done < prompt else 1
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
            tokens = min(quiet_tokens(rules, done), prompt + generated - done)
        done += tokens
        last_step = tokens if done <= prompt else 1
    for group in range(len(groups)):
        free_all(pool, table, group)
    return hit


@inner_jit
def _is_admitted(pool, rules, prompt, hit, junction):
    """Whether the prompt, and its first step, fit beside what is found."""
    specs = rules.specs
    first_end = hit + step_tokens(rules, prompt, junction, hit)
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
            new = min(new, 1 + extra_states(rules, group, prompt, hit, prompt))
            new_first = min(new_first, 1 + extra_states(rules, group, prompt, hit, first_end))
        whole += new + touched
        first += new_first + touched
    return max(whole, first) <= pool.counters[EMPTY] + pool.counters[QUEUED]


@inner_jit
def _allocate(pool, table, rules, prompt, start, end):
    """Take the blocks of tokens ``start`` to ``end``; return whether there are enough."""
    groups, total = rules.specs.groups, np.int64(0)
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


@inner_jit
def _new_blocks(table, rules, group, prompt, start, end):
    """Return the first and the end of the blocks that a step takes for a group: of states only the last."""
    length = table.marks[group, LENGTH]
    stop = max(length, -(-end // rules.specs.groups[group, BLOCK]))
    first = length
    if rules.specs.groups[group, KIND] == STATE:
        first = max(length, stop - 1 - extra_states(rules, group, prompt, start, end))
    return first, stop

"""How far a prompt is cached: the longest prefix that every group of layers can go on from.

A request's *path* is its segments with the tokens at which they end. A block belongs to the segment that
holds its last token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.pool import last_cached, stretch_end, stretch_start

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array

FULL, WINDOW, LOCAL, STATE = range(4)
"""Kinds of groups: every token, a sliding window, chunks of local attention, a state."""

_N_COLUMNS: Final = 7
KIND, BLOCK, SPAN, CHECKPOINT, NEEDED, PERIOD, CAP = range(_N_COLUMNS)
"""Columns of a group: kind; tokens of a block; tokens of a window or chunk; whether the last step of a prompt
writes the state before its end as well; blocks that a window or state is resumed from; blocks from one
resumable place to the next (0: only where prompts end and part); the most blocks that admission counts (-1:
no limit)."""


class Path(NamedTuple):
    """One request's way down the segments.

    Attributes
    ----------
    segments : int32 (n_steps,)
        From the root down.
    ends : int64 (n_steps + 1,)
        Tokens at which they begin and end: ``ends[0]`` is 0.
    """

    segments: Int32Array
    ends: Int64Array


class Specs(NamedTuple):
    """Groups of layers, and those that are alike.

    Attributes
    ----------
    groups : int64 (n_groups, 7)
        One row per group.
    members, offsets : int64 (n_groups,), int64 (n_specs + 1,)
        Spec s is shared by groups ``members[offsets[s]:offsets[s + 1]]``; full attention comes first.
    alignment : int
        Tokens whose multiples a hit ends at.
    """

    groups: Int64Array
    members: Int64Array
    offsets: Int64Array
    alignment: int


@inner_jit
def path_of(segments, segment_tokens, prompt_tokens, ends):
    """Return the path of a prompt, whose ids may go on beyond it; ``ends`` is overwritten."""
    for step in range(len(segments)):
        ends[step + 1] = min(prompt_tokens, ends[step] + segment_tokens[segments[step]])
    return Path(segments, ends[: len(segments) + 1])


@inner_jit
def step_of(path, token):
    """Return the step of a path that holds a token; the number of steps for a token behind its end."""
    low, high = 0, len(path.segments)
    while low < high:
        middle = (low + high) // 2
        if path.ends[middle + 1] <= token:
            low = middle + 1
        else:
            high = middle
    return low


@inner_jit
def _end_of_stretch(pool, path, group, block_tokens, block, limit):
    """Return where the cached blocks from a block on end, at most ``limit``."""
    while block < limit:
        step = step_of(path, (block + 1) * block_tokens - 1)
        if step == len(path.segments):
            return block
        end = min(limit, path.ends[step + 1] // block_tokens)
        reached = stretch_end(pool, group, path.segments[step], block, end)
        if reached < end:
            return reached
        block = reached
    return block


@inner_jit
def _start_of_stretch(pool, path, group, block_tokens, block):
    """Return where the cached blocks in front of a block begin."""
    while block > 0:
        step = step_of(path, block * block_tokens - 1)
        start = stretch_start(pool, group, path.segments[step], block)
        if start == block or start > path.ends[step] // block_tokens:
            return start
        block = start
    return block


@inner_jit
def _last_cached(pool, path, group, block_tokens, limit):
    """Return the end of the last cached block in front of ``limit``; 0 if there is none."""
    step = min(step_of(path, limit * block_tokens - 1), len(path.segments) - 1)
    while step >= 0:
        found = last_cached(pool, group, path.segments[step], limit)
        if found > 0:
            return found
        step -= 1
    return 0


@inner_jit
def _leading_blocks(pool, path, specs, spec, start, limit):
    """Return how far the blocks from ``start`` on are cached in all groups of a spec."""
    for member in range(specs.offsets[spec], specs.offsets[spec + 1]):
        group = specs.members[member]
        limit = _end_of_stretch(pool, path, group, specs.groups[group, BLOCK], start, limit)
    return limit


@inner_jit
def _last_resumable(pool, path, specs, spec, limit):
    """Return the last aligned end, in blocks, of what a window or state can be resumed from."""
    members = specs.members[specs.offsets[spec] : specs.offsets[spec + 1]]
    block_tokens = specs.groups[members[0], BLOCK]
    aligned = specs.alignment // block_tokens
    while limit > 0:
        end = limit
        agreeing = 0
        while agreeing < len(members) and end > 0:
            for group in members:
                found = _last_cached(pool, path, group, block_tokens, end)
                agreeing = agreeing + 1 if found == end else 1
                end = found
        start = 0
        for group in members:
            start = max(start, _start_of_stretch(pool, path, group, block_tokens, end))
        end = end // aligned * aligned
        if end > start and (start == 0 or end - start >= specs.groups[members[0], NEEDED]):
            return end
        limit = start
    return 0


@inner_jit
def _shortened(pool, path, specs, spec, tokens):
    """Return the longest prefix of so many tokens that the groups of a spec can go on from."""
    group = specs.groups[specs.members[specs.offsets[spec]]]
    block_tokens = group[BLOCK]
    limit = tokens // block_tokens
    if group[KIND] == FULL:
        blocks = _leading_blocks(pool, path, specs, spec, np.int64(0), limit)
        return blocks * block_tokens // specs.alignment * specs.alignment
    if group[KIND] == LOCAL:
        chunk_start = tokens // group[SPAN] * group[SPAN] // block_tokens
        return _leading_blocks(pool, path, specs, spec, chunk_start, limit) * block_tokens
    return _last_resumable(pool, path, specs, spec, limit) * block_tokens


@inner_jit
def cached_tokens(pool, path, specs, tokens):
    """Return the tokens of a prompt that hit, of at most so many, and the junction.

    The junction is the longest prefix that some group could have gone on from where that is longer than
    the hit, otherwise 0.
    """
    n_specs = len(specs.offsets) - 1
    one_round = n_specs == 2 and specs.groups[specs.members[0], KIND] == FULL
    hit, longest, rounds = tokens, 0, 0
    from_full = np.full(n_specs, tokens)
    while True:
        reached = hit
        for spec in range(n_specs):
            is_full = specs.groups[specs.members[specs.offsets[spec]], KIND] == FULL
            if is_full and rounds > 0:
                # Every prefix of what full attention has is there as well.
                reached = min(reached, from_full[spec])
                continue
            reached = _shortened(pool, path, specs, spec, reached)
            from_full[spec] = reached
            longest = max(longest, reached)
        rounds += 1
        settled = reached >= hit or one_round
        hit = min(hit, reached)
        if settled:
            return hit, longest if longest > hit else 0

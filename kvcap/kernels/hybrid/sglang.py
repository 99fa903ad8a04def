"""SGLang's prefix cache of hybrid models, simulated per set of pools over the nodes of its radix tree.

Full attention alone, beside sliding windows, or beside states. Requests run one at a time. A request

1. walks the tree as far as it goes, splitting the node in which it stops. Its hit ends at the deepest node on
   the way that can be resumed from: one with window content on a whole window before its end, or on all that
   is before it; one with a state. That node and its ancestors become the newest and are held;
2. is computed in steps. Each step takes its tokens from both pools: the oldest leaves go, then the oldest
   window content of any node, then the oldest states;
3. after each step gives the tree what it can name: up to where the tree went on beyond the hit, once, for
   windows; up to the last depth at which it left a state behind, for states. Window content that no later
   token sees is free again before that;
4. at its end lets go of everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numba import prange

from kvcap.kernels._jit import inner_jit, parallel_jit
from kvcap.kernels.hybrid.lookup import path_of
from kvcap.kernels.hybrid.sglang_request import compute, match
from kvcap.kernels.hybrid.sglang_rules import (
    COMPUTED,
    GONE,
    HELD,
    MOST_NEW_TOKENS,
    OWN,
    STATE_BRANCH,
    WINDOW_BRANCH,
    Request,
    SglangRules,
    round_up,
)
from kvcap.kernels.hybrid.tree import END, FREE, STATES_FREE, WINDOW_FREE, Paths, empty_tree, with_nodes
from kvcap.kernels.hybrid.tree_contents import lock_path, unlock_path

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.segments import SegmentPaths

_NODES_PER_STEP: Final = 6


def sglang_hybrid_hit_tokens(
    paths: SegmentPaths,
    segment_tokens: Int64Array,
    prompt_tokens: Int64Array,
    output_tokens: Int64Array,
    rules: SglangRules,
    pools: Int64Array,
) -> Int64Array:
    """Return the tokens that every request finds in SGLang's radix tree.

    Parameters
    ----------
    paths : SegmentPaths
        The ids of requests.
    segment_tokens : int64 (n_segments,)
        Tokens that each segment covers.
    prompt_tokens, output_tokens : int64 (n_requests,)
        Length of each prompt and of what is generated. Tokens that no id covers are private to the request;
        ids beyond the prompt do not count.
    rules : SglangRules
        How the model is run.
    pools : int64 (n_points, 3)
        Tokens of the full-attention pool, tokens of the window pool, states; what a model does not have is 0.

    Returns
    -------
    int64 (n_points, n_requests)
        Tokens; -1 for a request that does not fit.

    Notes
    -----
    O(nodes on paths) time, O(nodes in the tree + segments + requests) memory per point; points run in
    parallel.
    """
    hit_tokens = np.zeros((len(pools), len(prompt_tokens)), np.int64)
    _simulate(
        np.maximum(pools, 0, dtype=np.int64),
        paths.path_offsets,
        paths.path_segments,
        np.ascontiguousarray(segment_tokens, np.int64),
        np.ascontiguousarray(prompt_tokens, np.int64),
        np.ascontiguousarray(output_tokens, np.int64),
        *rules,
        hit_tokens,
    )
    return hit_tokens


@parallel_jit
def _simulate(
    pools,
    path_offsets,
    path_segments,
    segment_tokens,
    prompt_tokens,
    output_tokens,
    page_tokens,
    window_tokens,
    has_states,
    step_tokens,
    is_buffered,
    state_tokens,
    grid_tokens,
    track_tokens,
    slide_tokens,
    hit_tokens,
):
    # A parallel loop takes arrays and numbers, no tuples of them.
    for point in prange(len(pools)):
        rules = SglangRules(
            page_tokens,
            window_tokens,
            has_states,
            step_tokens,
            is_buffered,
            state_tokens,
            grid_tokens,
            track_tokens,
            slide_tokens,
        )
        _simulate_pools(
            pools[point],
            path_offsets,
            path_segments,
            segment_tokens,
            prompt_tokens,
            output_tokens,
            rules,
            hit_tokens[point],
        )


@inner_jit
def _simulate_pools(
    pools, path_offsets, path_segments, segment_tokens, prompt_tokens, output_tokens, rules, hit_tokens
):
    n_requests = len(prompt_tokens)
    most_steps = 0
    covered = np.zeros(n_requests, np.int64)
    for request in range(n_requests):
        most_steps = max(most_steps, path_offsets[request + 1] - path_offsets[request])
        for step in range(path_offsets[request], path_offsets[request + 1]):
            covered[request] += segment_tokens[path_segments[step]]
        covered[request] = min(covered[request], prompt_tokens[request])
    paths = Paths(path_offsets, path_segments, segment_tokens, covered)
    tree = empty_tree(pools[0], pools[1], pools[2], len(segment_tokens) + n_requests, rules.page_tokens)
    ends = np.zeros(most_steps + 1, np.int64)
    marks = np.zeros(8, np.int64)
    for request in range(n_requests):
        prompt, output = prompt_tokens[request], output_tokens[request]
        if prompt <= 0:
            continue
        if prompt + min(output, MOST_NEW_TOKENS) + rules.page_tokens >= pools[0]:
            hit_tokens[request] = -1
            continue
        segments = path_segments[path_offsets[request] : path_offsets[request + 1]]
        path = path_of(segments, segment_tokens, prompt, ends)
        tree = with_nodes(tree, _NODES_PER_STEP * (prompt // rules.step_tokens + 4))
        run = Request(request, path, prompt, output, marks)
        hit_tokens[request] = _run(tree, paths, rules, run, pools[1])


@inner_jit
def _run(tree, paths, rules, run, window_capacity):
    """Run one request; return the tokens that hit, or -1 if it does not fit."""
    marks, counters = run.marks, tree.counters
    for mark in range(len(marks)):
        marks[mark] = 0
    node, depth = match(tree, paths, rules, run)
    hit = tree.nodes[node, END]
    marks[OWN] = hit
    marks[COMPUTED] = hit
    if rules.window_tokens > 0 and depth > hit:
        marks[WINDOW_BRANCH] = depth
    on_grid = depth // rules.grid_tokens * rules.grid_tokens
    if rules.has_states and on_grid > hit:
        marks[STATE_BRANCH] = on_grid
    lock_path(tree, node, rules.window_tokens)
    fits = compute(tree, paths, rules, run, node, window_capacity)
    end = round_up(marks[COMPUTED], tree.page)
    counters[FREE] += end - marks[OWN]
    if rules.window_tokens > 0:
        counters[WINDOW_FREE] += max(0, end - max(marks[OWN], marks[GONE]))
    counters[STATES_FREE] += marks[HELD]
    unlock_path(tree)
    return hit if fits else -1

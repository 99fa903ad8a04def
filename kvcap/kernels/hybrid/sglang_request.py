"""How a request finds its prefix in SGLang's radix tree, and how it is computed."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.sglang_publish import publish, slide, take_states
from kvcap.kernels.hybrid.sglang_rules import (
    COMPUTED,
    GONE,
    HELD,
    IS_LAST,
    MOST_NEW_TOKENS,
    OWN,
    STATE_BRANCH,
    TRACKED,
    round_up,
)
from kvcap.kernels.hybrid.tree import (
    END,
    FREE,
    ROOT,
    START,
    STATE,
    WINDOW,
    WINDOW_FREE,
    find_child,
    shared_tokens,
    split_node,
    touch_path,
)
from kvcap.kernels.hybrid.tree_contents import (
    evict_leaves,
    evict_windows,
    locked_window_tokens,
    touch_state,
    touch_window,
)

_FAR: Final = 1 << 60


@inner_jit
def match(tree, paths, rules, run):
    """Walk the tree; return the deepest node that can be resumed from, and how far the tree goes on."""
    nodes = tree.nodes
    end = (run.prompt - 1) // tree.page * tree.page
    best, depth, covered = ROOT, np.int64(0), _FAR
    while depth < end:
        node = find_child(tree, paths, run.path, run.number, depth)
        if node == ROOT:
            break
        tokens = shared_tokens(tree, paths, run.path, run.number, node, end)
        is_cut = tokens < nodes[node, END] - nodes[node, START]
        if is_cut:
            node = split_node(tree, paths, node, tokens)
        depth += tokens
        covered = covered + tokens if nodes[node, WINDOW] != 0 else 0
        in_window = rules.window_tokens == 0 or covered >= rules.window_tokens
        if in_window and (nodes[node, STATE] != 0 or not rules.has_states):
            best = node
        if is_cut:
            break
    if rules.window_tokens > 0:
        touch_window(tree, best, rules.window_tokens + tree.page)
    if nodes[best, STATE] != 0:
        touch_state(tree, best)
    touch_path(tree, best)
    return best, depth


@inner_jit
def compute(tree, paths, rules, run, hit_node, window_capacity):
    """Compute a request; return whether it fits."""
    marks = run.marks
    if tree.nodes[hit_node, STATE] != 0:
        if not take_states(tree, np.int64(1)):
            return False
        marks[HELD] = 1
    step_tokens = _first_step_tokens(tree, rules, run, window_capacity)
    if step_tokens == 0:
        return False
    if rules.has_states:
        states = (1 if marks[HELD] == 0 else 0) + (2 if rules.is_buffered else 0)
        if not take_states(tree, states):
            return False
        marks[HELD] += states
    while marks[COMPUTED] < run.prompt:
        end = min(run.prompt, marks[COMPUTED] + step_tokens)
        step_tokens = rules.step_tokens
        if not _take(tree, rules, marks[COMPUTED], end, tree.page if tree.page > 1 else 0):
            return False
        if rules.has_states and rules.is_buffered:
            _track(tree, rules, marks, end)
        marks[COMPUTED] = end
        if (end < run.prompt or run.output > 1) and not publish(tree, paths, rules, run):
            return False
    if not _generate(tree, rules, run):
        return False
    marks[IS_LAST] = 1
    return publish(tree, paths, rules, run)


@inner_jit
def _make_room(tree, rules, tokens):
    """Evict until so many tokens are free in each pool, or nothing is left to go."""
    evict_leaves(tree, tokens)
    if rules.window_tokens > 0:
        evict_windows(tree, tokens)


@inner_jit
def _take(tree, rules, start, end, spare):
    """Take the tokens of a step; return whether there are enough."""
    counters = tree.counters
    _make_room(tree, rules, end - start + spare)
    tokens = round_up(end, tree.page) - round_up(start, tree.page)
    if tokens > counters[FREE] or (rules.window_tokens > 0 and tokens > counters[WINDOW_FREE]):
        return False
    counters[FREE] -= tokens
    if rules.window_tokens > 0:
        counters[WINDOW_FREE] -= tokens
    return True


@inner_jit
def _first_step_tokens(tree, rules, run, window_capacity):
    """Return the tokens of the first step, which is smaller where the window pool can never hold it; or 0."""
    if rules.window_tokens == 0:
        return rules.step_tokens
    rest = round_up(run.prompt - run.marks[OWN], tree.page)
    new = min(run.output, MOST_NEW_TOKENS)
    need = max(min(rest, rules.step_tokens) - rules.window_tokens, 0) + tree.page
    need += min(rest + new, rules.window_tokens)
    left = window_capacity - locked_window_tokens(tree)
    if need < left:
        return rules.step_tokens
    if need < window_capacity:
        return 0
    fitting = max(0, left - min(new, rules.window_tokens) - tree.page)
    return min(rules.step_tokens, fitting // tree.page * tree.page)


@inner_jit
def _track(tree, rules, marks, end):
    """Remember the depth at which a step leaves a state behind."""
    start, step, grid = marks[COMPUTED], rules.state_tokens, rules.grid_tokens
    if end - start < grid:
        return
    tracked = start + (end - start) // grid * grid
    seen = end if start + (end - start) // step * step == tracked else tracked + 1
    branch = marks[STATE_BRANCH]
    if start < branch < seen and (branch - start) % max(step, tree.page) == 0:
        tracked = branch
    marks[TRACKED] = tracked


@inner_jit
def _generate(tree, rules, run):
    """Take the tokens of the output but the last; return whether they fit. Quiet ones go many at a time."""
    marks, page, made = run.marks, tree.page, 1
    while made < run.output:
        place = run.prompt + made - 1
        tokens = run.output - made
        if rules.window_tokens > 0:
            if made == 1:
                tokens = 1
            else:
                if place - rules.window_tokens >= marks[GONE] + rules.slide_tokens:
                    slide(tree, rules, marks, place)
                until_slide = marks[GONE] + rules.slide_tokens + rules.window_tokens - place
                tokens = max(1, min(tokens, until_slide))
        if rules.has_states and rules.is_buffered:
            tokens = min(tokens, rules.track_tokens - place % rules.track_tokens)
        if page == 1:
            tokens = max(1, min(tokens, _free_tokens(tree, rules)))
            if not _take(tree, rules, place, place + tokens, page - 1):
                return False
        elif place % page == 0:
            tokens = 1
            if not _take(tree, rules, place, place + 1, page - 1):
                return False
            if made + 1 < run.output:
                _make_room(tree, rules, page)
        else:
            _make_room(tree, rules, page)
            tokens = min(tokens, page - place % page)
        made += tokens
        marks[COMPUTED] = place + tokens
        if rules.has_states and rules.is_buffered and marks[COMPUTED] % rules.track_tokens == 0:
            marks[TRACKED] = marks[COMPUTED]
    return True


@inner_jit
def _free_tokens(tree, rules):
    """Return the tokens that are free in every pool."""
    if rules.window_tokens > 0:
        return min(tree.counters[FREE], tree.counters[WINDOW_FREE])
    return tree.counters[FREE]

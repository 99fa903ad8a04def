"""What a running request gives to SGLang's radix tree, and what it frees for that."""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.sglang_rules import (
    COMPUTED,
    GONE,
    HELD,
    IS_LAST,
    OWN,
    TRACKED,
    WINDOW_BRANCH,
    round_up,
)
from kvcap.kernels.hybrid.tree import (
    END,
    FREE,
    ROOT,
    START,
    STATES_FREE,
    WINDOW,
    WINDOW_FREE,
    add_node,
    find_child,
    shared_tokens,
    split_node,
    touch_path,
)
from kvcap.kernels.hybrid.tree_contents import (
    evict_states,
    give_window,
    lock_path,
    touch_state,
    touch_window,
)


@inner_jit
def take_states(tree, states):
    """Take states, evicting the oldest; return whether there are enough."""
    evict_states(tree, states)
    if tree.counters[STATES_FREE] < states:
        return False
    tree.counters[STATES_FREE] -= states
    return True


@inner_jit
def slide(tree, rules, marks, tokens):
    """Free the window content that the token behind so many does not see."""
    if tokens - rules.window_tokens <= marks[GONE]:
        return
    before = max(marks[GONE], marks[OWN])
    gone = (
        max(before, tokens - round_up(max(rules.window_tokens, tree.page), tree.page))
        // tree.page
        * tree.page
    )
    tree.counters[WINDOW_FREE] += gone - before
    marks[GONE] = gone


@inner_jit
def publish(tree, paths, rules, run):
    """Give the tree what it can name of the tokens that are there; return whether states sufficed."""
    marks = run.marks
    is_last = marks[IS_LAST] != 0
    end, is_branch = marks[COMPUTED], False
    if marks[OWN] < marks[WINDOW_BRANCH] <= end:
        end, is_branch = marks[WINDOW_BRANCH], True
    if rules.has_states:
        at = marks[TRACKED] if rules.is_buffered else end
        marks[TRACKED] = 0
        if at == 0:
            return True
        end = min(end, at)
        if not is_last and not take_states(tree, np.int64(1)):
            return False
    if rules.window_tokens > 0 and not is_last:
        slide(tree, rules, marks, end - 1)
    end = end // tree.page * tree.page
    node = _insert(tree, paths, rules, run, end)
    had_state = False
    if rules.has_states and node != ROOT:
        had_state = touch_state(tree, node)
    elif rules.has_states:
        had_state = True
    if rules.window_tokens > 0:
        touch_window(tree, node, rules.window_tokens + tree.page)
    elif not rules.has_states and run.prompt // tree.page * tree.page < end:
        _insert(tree, paths, rules, run, run.prompt // tree.page * tree.page)
    if is_last and not had_state:
        marks[HELD] -= 1
    elif had_state and not is_last:
        tree.counters[STATES_FREE] += 1
    lock_path(tree, node, rules.window_tokens)
    marks[OWN] = end
    if is_branch:
        marks[WINDOW_BRANCH] = 0
        if not is_last:
            slide(tree, rules, marks, marks[COMPUTED] - 1)
    return True


@inner_jit
def _insert(tree, paths, rules, run, end):
    """Give the tree the first tokens of a request; return the node that ends there."""
    nodes = tree.nodes
    node, place = ROOT, np.int64(0)
    while place < end:
        child = find_child(tree, paths, run.path, run.number, place)
        if child == ROOT:
            break
        tokens = shared_tokens(tree, paths, run.path, run.number, child, end)
        node = child
        if tokens < nodes[child, END] - nodes[child, START]:
            node = split_node(tree, paths, child, tokens)
        _merge(tree, paths, rules, run.marks, node)
        place += tokens
    if place < end:
        node = add_node(tree, paths, run.number, place, end, node)
        if rules.window_tokens > 0:
            _begin_window(tree, paths, rules, run.marks, node)
    touch_path(tree, node)
    return node


@inner_jit
def _merge(tree, paths, rules, marks, node):
    """Free what was computed again; a node without window content takes over what the request has of it."""
    nodes, counters = tree.nodes, tree.counters
    start, end = nodes[node, START], nodes[node, END]
    if end <= marks[OWN]:
        return
    if rules.window_tokens > 0:
        taken = end
        live = max(start, marks[GONE])
        if nodes[node, WINDOW] == 0 and live < end:
            taken = live
            if live > start:
                split_node(tree, paths, node, live - start)
            give_window(tree, node)
        counters[WINDOW_FREE] += max(0, taken - max(marks[OWN], start, marks[GONE]))
    counters[FREE] += end - max(marks[OWN], start)


@inner_jit
def _begin_window(tree, paths, rules, marks, node):
    """Cut a new node where its window content begins, and a window before its end."""
    nodes = tree.nodes
    start, end = max(nodes[node, START], marks[GONE]), nodes[node, END]
    if start >= end:
        return
    if start > nodes[node, START]:
        split_node(tree, paths, node, start - nodes[node, START])
    tail = round_up(rules.window_tokens, tree.page)
    if end - start > tail:
        give_window(tree, split_node(tree, paths, node, end - start - tail))
    give_window(tree, node)

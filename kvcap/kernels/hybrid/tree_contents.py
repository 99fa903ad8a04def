"""What nodes of the radix tree have, what a running request holds, and what goes when room is needed."""

from __future__ import annotations

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.tree import (
    CHILDREN,
    END,
    FIRST_FREE,
    FREE,
    HOME_AFTER,
    LOCKED,
    LOCKED_AT,
    PARENT,
    ROOT,
    START,
    STATE,
    STATE_LOCKED,
    STATE_USE,
    STATES_FREE,
    USE,
    WINDOW,
    WINDOW_FREE,
    WINDOW_LOCKED,
    WINDOW_USE,
    leave_home,
    order_insert,
    order_remove,
)


@inner_jit
def give_window(tree, node):
    """Let a node have window content, the newest of all."""
    tree.nodes[node, WINDOW] = 1
    order_insert(tree.nodes, WINDOW_USE, ROOT, node)


@inner_jit
def touch_window(tree, node, tokens):
    """Make the window content of so many last tokens the newest, that of the node itself newest of all."""
    nodes = tree.nodes
    newer, covered = ROOT, 0
    while node != ROOT and covered < tokens:
        if nodes[node, WINDOW] != 0:
            order_remove(nodes, WINDOW_USE, node)
            order_insert(nodes, WINDOW_USE, newer, node)
            newer = node
        covered += nodes[node, END] - nodes[node, START]
        node = nodes[node, PARENT]


@inner_jit
def touch_state(tree, node):
    """Let a node have a state, the newest of all; return whether it had one."""
    had = tree.nodes[node, STATE] != 0
    if had:
        order_remove(tree.nodes, STATE_USE, node)
    tree.nodes[node, STATE] = 1
    order_insert(tree.nodes, STATE_USE, ROOT, node)
    return had


@inner_jit
def lock_path(tree, node, window_tokens):
    """Hold a node, its ancestors and what a window needs of them, and nothing else."""
    unlock_path(tree)
    nodes = tree.nodes
    tree.counters[LOCKED_AT] = node
    nodes[node, STATE_LOCKED] = 1
    covered = 0
    while node != ROOT:
        nodes[node, LOCKED] = 1
        nodes[node, WINDOW_LOCKED] = 1 if covered < window_tokens else 0
        covered += nodes[node, END] - nodes[node, START]
        node = nodes[node, PARENT]


@inner_jit
def unlock_path(tree):
    """Let go of what is held. A node that is held is never split, so that its path is still the same."""
    nodes = tree.nodes
    node = tree.counters[LOCKED_AT]
    nodes[node, STATE_LOCKED] = 0
    while node != ROOT:
        nodes[node, LOCKED] = 0
        nodes[node, WINDOW_LOCKED] = 0
        node = nodes[node, PARENT]
    tree.counters[LOCKED_AT] = ROOT


@inner_jit
def locked_window_tokens(tree):
    """Return the tokens of the window content that is held."""
    nodes = tree.nodes
    node, tokens = tree.counters[LOCKED_AT], 0
    while node != ROOT:
        if nodes[node, WINDOW_LOCKED] != 0 and nodes[node, WINDOW] != 0:
            tokens += nodes[node, END] - nodes[node, START]
        node = nodes[node, PARENT]
    return tokens


@inner_jit
def _drop_window(tree, node):
    tree.counters[WINDOW_FREE] += tree.nodes[node, END] - tree.nodes[node, START]
    tree.nodes[node, WINDOW] = 0
    order_remove(tree.nodes, WINDOW_USE, node)


@inner_jit
def _drop_state(tree, node):
    tree.counters[STATES_FREE] += 1
    tree.nodes[node, STATE] = 0
    order_remove(tree.nodes, STATE_USE, node)


@inner_jit
def _drop_leaf(tree, node):
    """Take a leaf out of the tree with all that it has."""
    nodes, counters = tree.nodes, tree.counters
    counters[FREE] += nodes[node, END] - nodes[node, START]
    if nodes[node, WINDOW] != 0:
        _drop_window(tree, node)
    if nodes[node, STATE] != 0:
        _drop_state(tree, node)
    order_remove(nodes, USE, node)
    leave_home(tree, node)
    nodes[nodes[node, PARENT], CHILDREN] -= 1
    nodes[node, HOME_AFTER] = counters[FIRST_FREE]
    counters[FIRST_FREE] = node


@inner_jit
def _is_free_leaf(tree, node):
    return tree.nodes[node, CHILDREN] == 0 and tree.nodes[node, LOCKED] == 0


@inner_jit
def evict_leaves(tree, wanted):
    """Drop the oldest leaves until so many tokens are free."""
    nodes, counters = tree.nodes, tree.counters
    while counters[FREE] < wanted:
        node = nodes[ROOT, USE + 1]
        while node != ROOT and not _is_free_leaf(tree, node):
            node = nodes[node, USE + 1]
        if node == ROOT:
            return
        _drop_leaf(tree, node)


@inner_jit
def evict_windows(tree, wanted):
    """Drop the oldest window content until so many window tokens are free; a leaf goes with it."""
    nodes, counters = tree.nodes, tree.counters
    while counters[WINDOW_FREE] < wanted:
        node = nodes[ROOT, WINDOW_USE + 1]
        while node != ROOT and nodes[node, WINDOW_LOCKED] != 0:
            node = nodes[node, WINDOW_USE + 1]
        if node == ROOT:
            return
        if _is_free_leaf(tree, node):
            _drop_leaf(tree, node)
        else:
            _drop_window(tree, node)


@inner_jit
def evict_states(tree, wanted):
    """Drop the oldest states until so many are free; a leaf goes with it."""
    nodes, counters = tree.nodes, tree.counters
    while counters[STATES_FREE] < wanted:
        node = nodes[ROOT, STATE_USE + 1]
        while node != ROOT and nodes[node, STATE_LOCKED] != 0:
            node = nodes[node, STATE_USE + 1]
        if node == ROOT:
            return
        if _is_free_leaf(tree, node):
            _drop_leaf(tree, node)
        else:
            _drop_state(tree, node)

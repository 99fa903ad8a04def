"""A path-compressed prefix tree over chained block keys.

A node is a span of consecutive keys in an arena; :mod:`kvcap.kernels.node_index` finds it by the key of its
first block. Keys are chained, so equal last keys prove two spans equal: a node is matched by one comparison,
and a mismatch is located by binary search. A node is split where a path leaves it, and merged with its only
child when one request touched both.
"""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.node_index import link_node, unlink_node
from kvcap.kernels.tree_state import (
    CHILDREN,
    FIRST_FREE,
    KEY,
    LENGTH,
    N_FREE,
    N_NODES,
    NEXT,
    PARENT,
    START,
    TOUCHER,
)


@jit
def matched_length(arena, start, own, longest):
    """Return how many keys agree at two places whose first keys do, at most ``longest``."""
    if arena[start + longest - 1] == arena[own + longest - 1]:
        return longest
    low, high = 0, longest - 1
    while high - low > 1:
        middle = (low + high) // 2
        if arena[start + middle] == arena[own + middle]:
            low = middle
        else:
            high = middle
    return high


@jit
def _new_node(state, start, length, children, toucher, parent):
    counters = state.counters
    if counters[N_FREE] > 0:
        node = counters[FIRST_FREE]
        counters[FIRST_FREE] = state.nodes[node, NEXT]
        counters[N_FREE] -= 1
    else:
        node = counters[N_NODES]
        counters[N_NODES] += 1
    state.nodes[node, START] = start
    state.nodes[node, LENGTH] = length
    state.nodes[node, CHILDREN] = children
    state.nodes[node, TOUCHER] = toucher
    state.nodes[node, PARENT] = parent
    state.nodes[node, KEY] = np.int64(state.arena[start])
    link_node(state, node)
    return node


@jit
def free_node(state, node):
    """Take a node out of the index and give its id back."""
    unlink_node(state, node)
    state.nodes[node, NEXT] = state.counters[FIRST_FREE]
    state.counters[FIRST_FREE] = node
    state.counters[N_FREE] += 1


@jit
def split_node(state, lower, matched, own, slot):
    """Cut a node after ``matched`` blocks and return the new upper part.

    The lower part keeps the node's id, so that its children keep their parent.
    """
    nodes = state.nodes
    unlink_node(state, lower)
    upper = _new_node(state, own, matched, 1, slot, nodes[lower, PARENT])
    nodes[lower, START] += matched
    nodes[lower, LENGTH] -= matched
    nodes[lower, PARENT] = upper
    nodes[lower, KEY] = np.int64(state.arena[nodes[lower, START]])
    link_node(state, lower)
    return upper


@jit
def merge_into_child(state, node, child):
    """Join a node to its only child, both just touched by the same request, under the child's id."""
    nodes = state.nodes
    unlink_node(state, child)
    nodes[child, START] = nodes[node, START]
    nodes[child, LENGTH] += nodes[node, LENGTH]
    nodes[child, PARENT] = nodes[node, PARENT]
    nodes[child, KEY] = nodes[node, KEY]
    free_node(state, node)
    link_node(state, child)


@jit
def append_tail(state, above, start, length, slot):
    """Hang blocks that were never seen below ``above`` (-1: the root); return the node that holds them."""
    if above >= 0:
        if state.nodes[above, CHILDREN] == 0:
            # The node was just pointed at this request's own keys, which go on right behind it.
            state.nodes[above, LENGTH] += length
            return above
        state.nodes[above, CHILDREN] += 1
    return _new_node(state, start, length, 0, slot, above)

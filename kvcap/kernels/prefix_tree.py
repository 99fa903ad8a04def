"""A path-compressed prefix tree over chained block keys: the state of the one-pass replay.

A node is a span of consecutive keys in an arena; a hash table maps the key of its first block to it. Keys
are chained, so equal last keys prove two spans equal: a node is matched by one comparison, and a mismatch is
located by binary search. A node is split where a path leaves it, and merged with its only child when one
request touched both.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array, UInt64Array
from kvcap.kernels.copying import copy_to

START, LENGTH, CHILDREN, TOUCHER, PARENT = range(5)
"""Columns of a node."""

N_NODES, N_FREE, N_SLOTS, N_REQUESTS, ARENA_USED, LIVE_BLOCKS, OLDEST_SLOT, FORGOTTEN = range(8)
"""Counters of a state."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


class TreeState(NamedTuple):
    """Everything that one pass remembers.

    Attributes
    ----------
    arena : uint64 (n_arena,)
        Block keys that spans point into.
    nodes : int64 (n_nodes, 5)
        Start in the arena, length (0 when free; ``start`` then links nothing), number of children, slot
        of the last toucher, parent node or -1.
    free_nodes : int64 (n_nodes,)
        Stack of node ids to use again.
    table_keys, table_nodes : uint64, int64 (2 ** table_bits,)
        Open addressing by the key of a node's first block; -1 marks an empty place.
    tree, weights, slot_requests, slot_leaves : int64 (n_slots + 1,), (n_slots,), (n_slots,), (n_slots,)
        Fenwick tree over slots, surviving blocks per slot, request number of a slot, node where its path
        ends (meaningless once nothing of it survives).
    counters : int64 (8,)
    """

    arena: UInt64Array
    nodes: Int64Array
    free_nodes: Int64Array
    table_keys: UInt64Array
    table_nodes: Int64Array
    tree: Int64Array
    weights: Int64Array
    slot_requests: Int64Array
    slot_leaves: Int64Array
    counters: Int64Array


@jit
def _home(key, table_bits):
    return np.int64((key * _GOLDEN) >> np.uint64(64 - table_bits))


@jit
def find_place(key, table_keys, table_nodes, table_bits):
    """Return the place of a key in the table, or of the empty place where it belongs."""
    mask = table_nodes.size - 1
    place = _home(key, table_bits)
    while table_nodes[place] >= 0 and table_keys[place] != key:
        place = (place + 1) & mask
    return place


@jit
def remove_place(place, table_keys, table_nodes, table_bits):
    """Empty a place, moving later entries of its cluster back so that none is cut off."""
    mask = table_nodes.size - 1
    hole = place
    probe = (hole + 1) & mask
    while table_nodes[probe] >= 0:
        home = _home(table_keys[probe], table_bits)
        if ((probe - home) & mask) >= ((probe - hole) & mask):
            table_keys[hole] = table_keys[probe]
            table_nodes[hole] = table_nodes[probe]
            hole = probe
        probe = (probe + 1) & mask
    table_nodes[hole] = -1


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
        counters[N_FREE] -= 1
        node = state.free_nodes[counters[N_FREE]]
    else:
        node = counters[N_NODES]
        counters[N_NODES] += 1
    state.nodes[node, START] = start
    state.nodes[node, LENGTH] = length
    state.nodes[node, CHILDREN] = children
    state.nodes[node, TOUCHER] = toucher
    state.nodes[node, PARENT] = parent
    return node


@jit
def free_node(state, node):
    """Give a node's id back; its table place must be empty already."""
    state.nodes[node, LENGTH] = 0
    state.free_nodes[state.counters[N_FREE]] = node
    state.counters[N_FREE] += 1


@jit
def split_node(state, place, matched, own, slot, table_bits):
    """Cut the node at a table place after ``matched`` blocks and return the new upper part.

    The lower part keeps the node's id, so that its children keep their parent.
    """
    nodes = state.nodes
    lower = state.table_nodes[place]
    upper = _new_node(state, own, matched, 1, slot, nodes[lower, PARENT])
    state.table_nodes[place] = upper
    nodes[lower, START] += matched
    nodes[lower, LENGTH] -= matched
    nodes[lower, PARENT] = upper
    key = state.arena[nodes[lower, START]]
    lower_place = find_place(key, state.table_keys, state.table_nodes, table_bits)
    state.table_keys[lower_place] = key
    state.table_nodes[lower_place] = lower
    return upper


@jit
def merge_into_child(state, node, child, table_bits):
    """Join a node to its only child, both just touched by the same request, under the child's id."""
    nodes, arena = state.nodes, state.arena
    place = find_place(arena[nodes[child, START]], state.table_keys, state.table_nodes, table_bits)
    remove_place(place, state.table_keys, state.table_nodes, table_bits)
    nodes[child, START] = nodes[node, START]
    nodes[child, LENGTH] += nodes[node, LENGTH]
    nodes[child, PARENT] = nodes[node, PARENT]
    place = find_place(arena[nodes[node, START]], state.table_keys, state.table_nodes, table_bits)
    state.table_nodes[place] = child
    free_node(state, node)


@jit
def append_tail(state, above, start, length, slot, table_bits):
    """Hang blocks that were never seen below ``above`` (-1: the root); return the node that holds them."""
    if above >= 0:
        if state.nodes[above, CHILDREN] == 0:
            # The node was just pointed at this request's own keys, which go on right behind it.
            state.nodes[above, LENGTH] += length
            return above
        state.nodes[above, CHILDREN] += 1
    node = _new_node(state, start, length, 0, slot, above)
    key = state.arena[start]
    place = find_place(key, state.table_keys, state.table_nodes, table_bits)
    state.table_keys[place] = key
    state.table_nodes[place] = node
    return node


@jit
def rebuild_table(state, table_bits):
    """Fill an empty table with the live nodes."""
    for node in range(state.counters[N_NODES]):
        if state.nodes[node, LENGTH] > 0:
            key = state.arena[state.nodes[node, START]]
            place = find_place(key, state.table_keys, state.table_nodes, table_bits)
            state.table_keys[place] = key
            state.table_nodes[place] = node


@jit
def copy_live_spans(nodes, n_nodes, arena, target):
    """Copy what nodes point at to the front of ``target`` and point them there; return its length."""
    used = 0
    for node in range(n_nodes):
        length = nodes[node, LENGTH]
        if length > 0:
            start = nodes[node, START]
            copy_to(target[used : used + length], arena[start : start + length])
            nodes[node, START] = used
            used += length
    return used

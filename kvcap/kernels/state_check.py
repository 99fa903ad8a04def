"""Whether a stored state of a scanner is one that a scanner can have made.

The kernels of a replay check no bound: what they are given has to be sound. A state from a file is looked
through once, in time linear in its size, before any of them sees it. Every index must lie in its array, every
chain must end, and counts must be those of what is there; then no later step can leave an array or run for
ever.
"""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.node_index import _bucket
from kvcap.kernels.tree_state import (
    ARENA_USED,
    BUCKET_MASK,
    CHILDREN,
    FIRST_FREE,
    KEPT_BLOCKS,
    KEPT_SLOTS,
    KEY,
    LENGTH,
    LIVE_BLOCKS,
    LIVE_SLOTS,
    N_BUCKETS,
    N_COLUMNS,
    N_COUNTERS,
    N_FREE,
    N_NODES,
    N_REQUESTS,
    N_SLOTS,
    NEXT,
    NEXT_SLOT,
    PARENT,
    START,
    TOUCHER,
    TreeState,
    array_rows,
)

_FREE, _INDEXED, _PLACED = 1, 2, 3
"""What has been found out about a node: it is free, it stands in its bucket, it lies on its slot's path."""


def state_is_sound(state: TreeState) -> bool:
    """Return whether a scanner may go on from a state, whose arrays hold what is filled and no more."""
    counters = state.counters
    if counters.dtype != np.int64 or counters.shape != (N_COUNTERS,) or counters.min() < 0:
        return False
    rows = array_rows(*(int(counters[n]) for n in (ARENA_USED, N_NODES, N_BUCKETS, N_SLOTS)))
    for name, array, n_rows in zip(state._fields, state, rows, strict=False):
        dtype = np.uint64 if name == "arena" else np.int64
        shape = (n_rows, N_COLUMNS) if name == "nodes" else (n_rows,)
        if array.dtype != dtype or array.shape != shape:
            return False
    mask = int(counters[BUCKET_MASK])
    n_buckets = int(counters[N_BUCKETS])
    if mask & (mask + 1) or not (mask >> 1) < max(1, n_buckets) <= mask + 1:
        return False
    contiguous = TreeState._make(np.ascontiguousarray(array) for array in state)
    return bool(_is_sound(contiguous, np.zeros(rows[1], np.int8)))


@jit
def _is_sound(state, found):
    return (
        _counters_fit(state.counters)
        and _free_nodes_end(state, found)
        and _nodes_fit(state, found)
        and _buckets_fit(state, found)
        and _slots_fit(state, found)
        and _sums_fit(state)
    )


@jit
def _counters_fit(counters):
    return (
        counters[N_FREE] <= counters[N_NODES]
        and counters[KEPT_SLOTS] <= counters[NEXT_SLOT] <= counters[N_SLOTS]
        and counters[KEPT_BLOCKS] <= counters[ARENA_USED]
        and (counters[N_BUCKETS] > 0 or counters[N_NODES] == 0)
    )


@jit
def _free_nodes_end(state, found):
    """Mark the free nodes; find as many in their list as are counted, each once."""
    node = state.counters[FIRST_FREE]
    for _ in range(state.counters[N_FREE]):
        if not 0 <= node < found.size or found[node] != 0:
            return False
        found[node] = _FREE
        node = state.nodes[node, NEXT]
    return True


@jit
def _nodes_fit(state, found):
    """Find every live node's span in the arena, its parent alive, and as many children as are counted."""
    nodes, counters = state.nodes, state.counters
    children = np.zeros(found.size, np.int64)
    for node in range(found.size):
        if found[node] == _FREE:
            continue
        start, length, parent = nodes[node, START], nodes[node, LENGTH], nodes[node, PARENT]
        # Compared so that no sum overflows.
        if not (0 <= start < counters[ARENA_USED] and 1 <= length <= counters[ARENA_USED] - start):
            return False
        if nodes[node, KEY] != np.int64(state.arena[start]):
            return False
        if not 0 <= nodes[node, TOUCHER] < counters[N_SLOTS]:
            return False
        if parent != -1:
            if not 0 <= parent < found.size or found[parent] == _FREE:
                return False
            # Whoever touches a node touches what is above it.
            if nodes[parent, TOUCHER] < nodes[node, TOUCHER]:
                return False
            children[parent] += 1
    for node in range(found.size):
        if found[node] != _FREE and children[node] != nodes[node, CHILDREN]:
            return False
    return True


@jit
def _buckets_fit(state, found):
    """Find every live node in the bucket of its key, once, and an end of every chain."""
    nodes, counters = state.nodes, state.counters
    n_indexed = 0
    for bucket in range(counters[N_BUCKETS]):
        node = state.buckets[bucket]
        while node >= 0:
            if node >= found.size or found[node] != 0:
                return False
            if _bucket(counters, np.uint64(nodes[node, KEY])) != bucket:
                return False
            found[node] = _INDEXED
            n_indexed += 1
            node = nodes[node, NEXT]
        if node != -1:
            return False
    return n_indexed == found.size - counters[N_FREE]


@jit
def _slots_fit(state, found):
    """Find that what survives of each slot is one stretch of the arena, and that they stand in order."""
    counters, weights = state.counters, state.weights
    n_placed, end = 0, np.int64(0)
    request = np.int64(-1)
    for slot in range(counters[N_SLOTS]):
        if weights[slot] < 0:
            return False
        if weights[slot] == 0:
            continue
        first = _first_of_path(state, found, slot)
        if first < end or not request < state.slot_requests[slot] < counters[N_REQUESTS]:
            return False
        end, request = first + weights[slot], state.slot_requests[slot]
        # A pass writes what it keeps from the front: never over what it has yet to read.
        if slot < counters[NEXT_SLOT]:
            if slot >= counters[KEPT_SLOTS] or end > counters[KEPT_BLOCKS]:
                return False
        elif first < counters[KEPT_BLOCKS]:
            return False
    for node in range(found.size):
        n_placed += found[node] == _PLACED
    return n_placed == found.size - counters[N_FREE]


@jit
def _first_of_path(state, found, slot):
    """Return where the stretch of a slot begins, or -1 if its nodes are no such stretch."""
    nodes = state.nodes
    node = state.slot_leaves[slot]
    if not 0 <= node < found.size or found[node] != _INDEXED or nodes[node, TOUCHER] != slot:
        return np.int64(-1)
    first = nodes[node, START] + nodes[node, LENGTH]
    left = state.weights[slot]
    while node >= 0 and nodes[node, TOUCHER] == slot:
        if found[node] != _INDEXED or nodes[node, START] + nodes[node, LENGTH] != first:
            return np.int64(-1)
        found[node] = _PLACED
        first = nodes[node, START]
        left -= nodes[node, LENGTH]
        node = nodes[node, PARENT]
    return first if left == 0 else np.int64(-1)


@jit
def _sums_fit(state):
    """Find that the totals and the Fenwick tree are those of the weights."""
    counters, weights = state.counters, state.weights
    blocks, slots = np.int64(0), np.int64(0)
    sums = np.zeros(counters[N_SLOTS] + 1, np.int64)
    for slot in range(counters[N_SLOTS]):
        blocks += weights[slot]
        slots += weights[slot] > 0
        sums[slot + 1] += weights[slot]
        above = slot + 1 + ((slot + 1) & -(slot + 1))
        if above <= counters[N_SLOTS]:
            sums[above] += sums[slot + 1]
    for i in range(1, counters[N_SLOTS] + 1):
        if sums[i] != state.tree[i]:
            return False
    return blocks == counters[LIVE_BLOCKS] and slots == counters[LIVE_SLOTS]

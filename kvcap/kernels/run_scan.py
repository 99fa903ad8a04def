"""The replay itself: every request finds its runs, takes its path over, and pushes the oldest out.

See :mod:`kvcap.kernels.reuse_runs` for what a run is and why its depths are sums over slots.
"""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.copying import with_free_row
from kvcap.kernels.fenwick import fenwick_add, fenwick_append, fenwick_first, fenwick_prefix
from kvcap.kernels.node_index import find_node
from kvcap.kernels.prefix_tree import append_tail, free_node, matched_length, merge_into_child, split_node
from kvcap.kernels.request_log import close_gaps
from kvcap.kernels.tree_state import (
    CHILDREN,
    FORGOTTEN,
    LENGTH,
    LIVE_BLOCKS,
    LIVE_SLOTS,
    N_REQUESTS,
    N_SLOTS,
    PARENT,
    START,
    TOUCHER,
)


@jit
def _begin_run(state, runs, n_runs, source, position):
    """Append an empty run, with the slot that its blocks were last touched by as its source."""
    runs = with_free_row(runs, n_runs)
    above = state.counters[LIVE_BLOCKS] - fenwick_prefix(state.tree, source)
    runs[n_runs, 0] = state.counters[N_REQUESTS]
    runs[n_runs, 1] = source
    runs[n_runs, 2] = position
    runs[n_runs, 3] = 0
    runs[n_runs, 4] = above
    runs[n_runs, 5] = above + state.weights[source] - 1
    return runs


@jit
def _touch_path(state, runs, n_runs, own, length, slot):
    """Append one request's runs to ``runs`` and make its whole path its own; return both."""
    nodes, arena = state.nodes, state.arena
    first_run = n_runs
    # Literals would be types of their own, and what they are passed to be compiled twice.
    position, above, source = np.int64(0), np.int64(-1), np.int64(-1)
    while position < length:
        node = find_node(state, arena[own + position])
        if node < 0:
            break
        node_length = nodes[node, LENGTH]
        longest = min(node_length, length - position)
        matched = matched_length(arena, nodes[node, START], own + position, longest)
        if nodes[node, TOUCHER] != source:
            source = nodes[node, TOUCHER]
            runs = _begin_run(state, runs, n_runs, source, position)
            n_runs += 1
        runs[n_runs - 1, 3] += matched
        if matched < node_length:
            node = split_node(state, node, matched, own + position, slot)
        nodes[node, START] = own + position
        nodes[node, TOUCHER] = slot
        # Both spans now lie end to end in the request's own keys and have the same toucher, so an only
        # child and its parent are one span. Left apart they would stay so for good: later requests would
        # pay for every fork that ever was on their path, not for those that are.
        if above >= 0 and nodes[above, CHILDREN] == 1:
            merge_into_child(state, above, node)
        above = node
        position += matched
        if matched < node_length:
            break
    for run in range(first_run, n_runs):
        source = runs[run, 1]
        _take_blocks(state, source, runs[run, 3])
        runs[run, 1] = state.slot_requests[source]
    if position < length:
        above = append_tail(state, above, own + position, length - position, slot)
    _fill_slot(state, slot, length, above)
    return runs, n_runs


@jit
def _take_blocks(state, slot, blocks):
    fenwick_add(state.tree, state.counters[N_SLOTS], slot, -blocks)
    state.weights[slot] -= blocks
    state.counters[LIVE_BLOCKS] -= blocks
    if state.weights[slot] == 0:
        state.counters[LIVE_SLOTS] -= 1


@jit
def _fill_slot(state, slot, blocks, leaf):
    """Make the request at hand the last slot, with all of its blocks."""
    counters = state.counters
    fenwick_append(state.tree, slot, blocks)
    state.weights[slot] = blocks
    state.slot_requests[slot] = counters[N_REQUESTS]
    state.slot_leaves[slot] = leaf
    counters[N_SLOTS] += 1
    counters[LIVE_SLOTS] += 1
    counters[LIVE_BLOCKS] += blocks


@jit
def scan(state, first_key, request_offsets, runs, max_depth, words):
    """Replay requests whose keys stand in the arena from ``first_key`` on; return runs and their number.

    What may be forgotten is forgotten between requests, so that chunks make no difference. In the end
    ``words`` of the log are searched for gaps.
    """
    counters = state.counters
    n_runs = np.int64(0)
    for r in range(request_offsets.size - 1):
        _forget(state, max_depth)
        length = request_offsets[r + 1] - request_offsets[r]
        if length > 0:
            own = first_key + request_offsets[r] - request_offsets[0]
            runs, n_runs = _touch_path(state, runs, n_runs, own, length, counters[N_SLOTS])
        counters[N_REQUESTS] += 1
    if words > 0:
        close_gaps(state, state.arena, words)
    return runs, n_runs


@jit
def _forget(state, max_depth):
    """Drop the oldest requests as long as all of their blocks lie at ``max_depth`` or deeper.

    A node's descendants were last touched no later than itself, so what survives of the oldest request is
    a chain of nodes with nothing below: from its leaf upwards, as long as it is the last toucher.
    """
    counters, nodes = state.counters, state.nodes
    while counters[LIVE_BLOCKS] > max_depth:
        slot = fenwick_first(state.tree, counters[N_SLOTS])
        weight = state.weights[slot]
        if counters[LIVE_BLOCKS] - weight < max_depth:
            return
        node = state.slot_leaves[slot]
        while node >= 0 and nodes[node, TOUCHER] == slot:
            free_node(state, node)
            node = nodes[node, PARENT]
        if node >= 0:
            nodes[node, CHILDREN] -= 1
        _take_blocks(state, slot, weight)
        counters[FORGOTTEN] += weight

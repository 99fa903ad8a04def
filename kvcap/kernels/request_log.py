"""The log of requests, slots and their keys in the arena, and how gaps in it are closed bit by bit.

What survives of the oldest requests slides to the front, a few at a time; the order of slots is that of
their requests all the while, so the replay may go on between any two steps. A pass ends when it has caught
up with the newest request: then the log ends where what was kept ends.

``NEXT_SLOT`` is the next slot to look at, 0 between passes. The first ``KEPT_SLOTS`` slots and
``KEPT_BLOCKS`` blocks of the arena are what the pass has kept; from there to the next slot nothing is live.
"""

from __future__ import annotations

from typing import Final

from kvcap.kernels._jit import jit
from kvcap.kernels.copying import copy_to
from kvcap.kernels.fenwick import fenwick_move
from kvcap.kernels.tree_state import (
    ARENA_USED,
    KEPT_BLOCKS,
    KEPT_SLOTS,
    LENGTH,
    N_SLOTS,
    NEXT_SLOT,
    PARENT,
    START,
    TOUCHER,
)

WORDS_PER_SLOT: Final = 4
"""What a slot counts for where a block of the arena counts for 1."""


@jit
def close_gaps(state, target, words):
    """Go on with the pass, or begin one, until about so many words were looked at or it ends.

    ``target`` is where keys are written: the arena itself, or another for a pass that is made at once.
    """
    counters = state.counters
    while words > 0 and counters[NEXT_SLOT] < counters[N_SLOTS]:
        slot = counters[NEXT_SLOT]
        weight = state.weights[slot]
        if weight > 0:
            _move_slot(state, target, slot, weight)
        counters[NEXT_SLOT] += 1
        words -= WORDS_PER_SLOT + weight
    if counters[NEXT_SLOT] == counters[N_SLOTS]:
        counters[N_SLOTS] = counters[KEPT_SLOTS]
        counters[ARENA_USED] = counters[KEPT_BLOCKS]
        counters[NEXT_SLOT] = counters[KEPT_SLOTS] = counters[KEPT_BLOCKS] = 0


@jit
def _move_slot(state, target, slot, weight):
    """Move a live slot and its blocks behind those that were kept."""
    nodes, counters = state.nodes, state.counters
    kept, first_kept = counters[KEPT_SLOTS], counters[KEPT_BLOCKS]
    leaf = state.slot_leaves[slot]
    first = nodes[leaf, START] + nodes[leaf, LENGTH] - weight
    copy_to(target[first_kept : first_kept + weight], state.arena[first : first + weight])
    counters[KEPT_SLOTS] += 1
    counters[KEPT_BLOCKS] += weight
    if kept == slot and first_kept == first:
        return
    node = leaf
    while node >= 0 and nodes[node, TOUCHER] == slot:
        nodes[node, START] -= first - first_kept
        nodes[node, TOUCHER] = kept
        node = nodes[node, PARENT]
    fenwick_move(state.tree, counters[N_SLOTS], slot, kept, weight)
    state.weights[slot] = 0
    state.weights[kept] = weight
    state.slot_requests[kept] = state.slot_requests[slot]
    state.slot_leaves[kept] = leaf

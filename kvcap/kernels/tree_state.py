"""What the one-pass replay remembers: a prefix tree of block keys, and who touched what last."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcap.kernels.arrays import Int64Array, UInt64Array

N_COLUMNS: Final = 7
N_COUNTERS: Final = 14

START, LENGTH, CHILDREN, TOUCHER, PARENT, KEY, NEXT = range(N_COLUMNS)
"""Columns of a node."""

(
    N_NODES,
    N_FREE,
    FIRST_FREE,
    N_BUCKETS,
    BUCKET_MASK,
    N_SLOTS,
    LIVE_SLOTS,
    N_REQUESTS,
    ARENA_USED,
    LIVE_BLOCKS,
    FORGOTTEN,
    NEXT_SLOT,
    KEPT_SLOTS,
    KEPT_BLOCKS,
) = range(N_COUNTERS)
"""Counters of a state; the last three are those of :mod:`kvcap.kernels.request_log`."""

_LEAST_ROWS: Final = 1 << 10
_LARGE: Final = 1 << 16
"""Rows of an array that takes a millisecond or two to copy."""


class TreeState(NamedTuple):
    """Everything that one pass remembers.

    A request that is not empty has a slot. Slots are numbered in replay order, and the keys of requests
    stand in the arena in the order of their slots. What survives of a request is a suffix of its path,
    which is thus one stretch of the arena that ends where its last node ends.

    Attributes
    ----------
    arena : uint64 (n_arena,)
        Block keys that spans point into.
    nodes : int64 (n_nodes, 7)
        Start in the arena, length, number of children, slot of the last toucher, parent node or -1, the bits
        of the key of the first block, next node of the same bucket or -1 (of a free node: the next free one).
    buckets : int64 (n_buckets,)
        First node of each bucket of the hash table by first keys, or -1.
    tree : int64 (n_slots + 1,)
        Fenwick tree over the weights.
    weights, slot_requests, slot_leaves : int64 (n_slots,)
        Surviving blocks per slot, request number of a slot, node where its path ends (meaningless once
        nothing of it survives).
    counters : int64 (14,)
        How far each array is filled, and totals.
    """

    arena: UInt64Array
    nodes: Int64Array
    buckets: Int64Array
    tree: Int64Array
    weights: Int64Array
    slot_requests: Int64Array
    slot_leaves: Int64Array
    counters: Int64Array


def empty_state() -> TreeState:
    """Return the state before the first request."""
    return TreeState(
        arena=np.empty(0, np.uint64),
        nodes=np.empty((0, N_COLUMNS), np.int64),
        buckets=np.empty(0, np.int64),
        tree=np.empty(1, np.int64),
        weights=np.empty(0, np.int64),
        slot_requests=np.empty(0, np.int64),
        slot_leaves=np.empty(0, np.int64),
        counters=np.zeros(N_COUNTERS, np.int64),
    )


def array_rows(n_blocks: int, n_nodes: int, n_buckets: int, n_slots: int) -> tuple[int, ...]:
    """Return how many rows that makes in each array, in the order of a state and without its counters."""
    return n_blocks, n_nodes, n_buckets, n_slots + 1, n_slots, n_slots, n_slots


def with_room(
    state: TreeState, filled: tuple[int, ...], wanted: tuple[int, ...], reserved: tuple[int, ...]
) -> TreeState:
    """Return a state whose arrays have the rows wanted, or more, and begin with those that are filled.

    An array that is large already gets all the rows that are reserved for it: there is nothing more to copy
    then, and what is never written costs no memory.
    """
    arrays = zip(state[:-1], filled, wanted, reserved, strict=True)
    return TreeState._make((*(_with_rows(*array) for array in arrays), state.counters))


def _with_rows(array: npt.NDArray[Any], filled: int, wanted: int, reserved: int) -> npt.NDArray[Any]:
    if wanted <= array.shape[0]:
        return array
    rows = max(_LEAST_ROWS, 2 * wanted)
    most_rows = rows if rows <= _LARGE else max(rows, reserved + _LARGE)
    try:
        larger = np.empty((most_rows, *array.shape[1:]), array.dtype)
    except (MemoryError, ValueError):
        larger = np.empty((rows, *array.shape[1:]), array.dtype)
    larger[:filled] = array[:filled]
    return larger

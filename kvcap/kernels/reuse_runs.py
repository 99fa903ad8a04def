"""Reuse runs of a request stream in one pass: LRU stack distances without per-block work.

A request touches the whole path from the root to its end, so the blocks whose last toucher is request q
are always a suffix of q's path and the LRU stack is a list of such suffixes, newest first. With ``w_q``
the length of what survives of q, a run of a later request's known prefix that was last touched by q has
the tail-first depth ``sum(w_p for p > q)`` (its i-th block: ``+ i``) and, for each of its blocks, the
head-first depth ``sum(w_p for p >= q) - 1``. A Fenwick tree over requests keeps the sums.

Runs are found on a prefix tree, see :mod:`kvcap.kernels.prefix_tree`.

Stack distances: Mattson et al. 1970. Fenwick trees for them: Bennett and Kruskal 1975, Olken 1981.

Nothing here raises; :class:`ReuseRunScanner` fixes dtypes and makes room before each call.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcap.kernels._jit import is_compiled, jit
from kvcap.kernels.arrays import Int64Array, UInt64Array
from kvcap.kernels.copying import with_room
from kvcap.kernels.fenwick import fenwick_add, fenwick_prefix
from kvcap.kernels.prefix_tree import (
    ARENA_USED,
    CHILDREN,
    FORGOTTEN,
    LENGTH,
    LIVE_BLOCKS,
    N_FREE,
    N_NODES,
    N_REQUESTS,
    N_SLOTS,
    OLDEST_SLOT,
    PARENT,
    START,
    TOUCHER,
    TreeState,
    append_tail,
    copy_live_spans,
    find_place,
    free_node,
    matched_length,
    merge_into_child,
    rebuild_table,
    remove_place,
    split_node,
)

_N_RUN_COLUMNS: Final = 6
_LEAST_SLOTS: Final = 1024
_LEAST_ARENA: Final = 1 << 14
"""Room that is always made at once, so that small chunks do not compact time and again."""


class ReuseRuns(NamedTuple):
    """Reuse runs, by request and then by position: int64 arrays of shape (n_runs,).

    ``depth`` is the tail-first depth of the run's first block, ``depth_head_first`` the head-first depth
    of each of its blocks; both in blocks, 0-based. Requests are numbered from 0 in replay order.
    """

    request: Int64Array
    source_request: Int64Array
    first_block: Int64Array
    blocks: Int64Array
    depth: Int64Array
    depth_head_first: Int64Array


@jit
def _touch_path(state, runs, n_runs, own, length, slot, table_bits):
    """Append one request's runs to ``runs`` and make its whole path its own; return both."""
    nodes, arena, counters = state.nodes, state.arena, state.counters
    first_run = n_runs
    position, above, source = 0, np.int64(-1), -1
    while position < length:
        key = arena[own + position]
        place = find_place(key, state.table_keys, state.table_nodes, table_bits)
        node = state.table_nodes[place]
        if node < 0:
            break
        node_length = nodes[node, LENGTH]
        longest = min(node_length, length - position)
        matched = matched_length(arena, nodes[node, START], own + position, longest)
        if nodes[node, TOUCHER] != source:
            source = nodes[node, TOUCHER]
            runs = with_room(runs, n_runs)
            above_blocks = counters[LIVE_BLOCKS] - fenwick_prefix(state.tree, source)
            runs[n_runs, 0] = counters[N_REQUESTS]
            runs[n_runs, 1] = source
            runs[n_runs, 2] = position
            runs[n_runs, 3] = 0
            runs[n_runs, 4] = above_blocks
            runs[n_runs, 5] = above_blocks + state.weights[source] - 1
            n_runs += 1
        runs[n_runs - 1, 3] += matched
        if matched < node_length:
            node = split_node(state, place, matched, own + position, slot, table_bits)
        nodes[node, START] = own + position
        nodes[node, TOUCHER] = slot
        if above >= 0 and nodes[above, CHILDREN] == 1:
            merge_into_child(state, above, node, table_bits)
        above = node
        position += matched
        if matched < node_length:
            break
    for run in range(first_run, n_runs):
        fenwick_add(state.tree, runs[run, 1], -runs[run, 3])
        state.weights[runs[run, 1]] -= runs[run, 3]
        runs[run, 1] = state.slot_requests[runs[run, 1]]
    if position < length:
        above = append_tail(state, above, own + position, length - position, slot, table_bits)
    state.slot_leaves[slot] = above
    counters[LIVE_BLOCKS] += length - position
    return runs, n_runs


@jit
def _scan(state, first_key, request_offsets, runs, table_bits, max_depth):
    """Replay requests whose keys stand in the arena from ``first_key`` on; return runs and their number.

    What may be forgotten is forgotten between requests, so that chunks make no difference.
    """
    counters = state.counters
    # A literal would be a type of its own, and _touch_path would be compiled twice.
    n_runs = np.int64(0)
    for r in range(request_offsets.size - 1):
        _forget(state, max_depth, table_bits)
        length = request_offsets[r + 1] - request_offsets[r]
        if length > 0:
            slot = counters[N_SLOTS]
            own = first_key + request_offsets[r] - request_offsets[0]
            runs, n_runs = _touch_path(state, runs, n_runs, own, length, slot, table_bits)
            state.slot_requests[slot] = counters[N_REQUESTS]
            state.weights[slot] = length
            fenwick_add(state.tree, slot, length)
            counters[N_SLOTS] += 1
        counters[N_REQUESTS] += 1
    return runs, n_runs


@jit
def _renumber_slots(state):
    """Move slots that still own blocks to the front, in order, and build their tree anew."""
    counters, tree, weights = state.counters, state.tree, state.weights
    kept = 0
    for slot in range(counters[N_SLOTS]):
        # The tree holds the new numbers until it is built.
        tree[slot] = kept
        if weights[slot] > 0:
            weights[kept] = weights[slot]
            state.slot_requests[kept] = state.slot_requests[slot]
            state.slot_leaves[kept] = state.slot_leaves[slot]
            kept += 1
    for node in range(counters[N_NODES]):
        if state.nodes[node, LENGTH] > 0:
            state.nodes[node, TOUCHER] = tree[state.nodes[node, TOUCHER]]
    weights[kept:] = 0
    tree[:] = 0
    for i in range(1, tree.size):
        tree[i] += weights[i - 1]
        parent = i + (i & -i)
        if parent < tree.size:
            tree[parent] += tree[i]
    counters[N_SLOTS] = kept
    counters[OLDEST_SLOT] = 0


@jit
def _forget(state, max_depth, table_bits):
    """Drop the oldest requests as long as all of their blocks lie at ``max_depth`` or deeper.

    A node's descendants were last touched no later than itself, so what survives of the oldest request is
    a chain of nodes with nothing below: from its leaf upwards, as long as it is the last toucher.
    """
    counters, nodes = state.counters, state.nodes
    while counters[OLDEST_SLOT] < counters[N_SLOTS]:
        slot = counters[OLDEST_SLOT]
        weight = state.weights[slot]
        if counters[LIVE_BLOCKS] - weight < max_depth:
            return
        counters[OLDEST_SLOT] += 1
        if weight == 0:
            continue
        node = state.slot_leaves[slot]
        while node >= 0 and nodes[node, TOUCHER] == slot:
            key = state.arena[nodes[node, START]]
            place = find_place(key, state.table_keys, state.table_nodes, table_bits)
            remove_place(place, state.table_keys, state.table_nodes, table_bits)
            free_node(state, node)
            node = nodes[node, PARENT]
        if node >= 0:
            nodes[node, CHILDREN] -= 1
        fenwick_add(state.tree, slot, -weight)
        state.weights[slot] = 0
        counters[LIVE_BLOCKS] -= weight
        counters[FORGOTTEN] += weight


def scanner_is_compiled() -> bool:
    """Whether the first call of a scanner is quick on this machine."""
    return is_compiled(_scan)


class ReuseRunScanner:
    """One LRU stack, fed requests in any chunking.

    Parameters
    ----------
    max_depth
        Depth from which blocks are forgotten, a request at a time: depths below it stay exact and memory
        stays bounded. Blocks come back as cold when they are accessed after being forgotten. None
        remembers all.
    """

    def __init__(self, max_depth: int | None = None) -> None:
        self._max_depth = np.iinfo(np.int64).max if max_depth is None else max_depth
        self._bounded = max_depth is not None
        # What a bounded stack copies into next: fresh memory would cost more than the copy.
        self._spare_arena = np.empty(0, np.uint64)
        self._table_bits = 10
        self._state = TreeState(
            arena=np.empty(0, np.uint64),
            nodes=np.zeros((256, 5), np.int64),
            free_nodes=np.empty(256, np.int64),
            table_keys=np.zeros(1 << self._table_bits, np.uint64),
            table_nodes=np.full(1 << self._table_bits, -1, np.int64),
            tree=np.zeros(257, np.int64),
            weights=np.zeros(256, np.int64),
            slot_requests=np.zeros(256, np.int64),
            slot_leaves=np.zeros(256, np.int64),
            counters=np.zeros(8, np.int64),
        )

    @property
    def n_requests(self) -> int:
        """Requests fed so far."""
        return int(self._state.counters[N_REQUESTS])

    @property
    def live_blocks(self) -> int:
        """Distinct blocks remembered."""
        return int(self._state.counters[LIVE_BLOCKS])

    @property
    def forgotten_blocks(self) -> int:
        """Blocks forgotten so far; one that came back and was forgotten again counts twice."""
        return int(self._state.counters[FORGOTTEN])

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the state's arrays."""
        return self._spare_arena.nbytes + sum(array.nbytes for array in self._state)

    def feed(self, block_keys: UInt64Array, request_offsets: Int64Array) -> ReuseRuns:
        """Replay more requests and return their reuse runs.

        Parameters
        ----------
        block_keys : uint64 (n_accesses,)
            Prefix-chained keys in replay order. Without a bound the first chunk may be kept without a
            copy, so it must not be changed afterwards.
        request_offsets : int64 (n_requests + 1,)
            Ascending; request r owns ``block_keys[request_offsets[r]:request_offsets[r + 1]]``.

        Returns
        -------
        ReuseRuns

        Notes
        -----
        O(nodes on the path * log span + runs * log requests) time a request; memory is 8 bytes per
        distinct block, twice that while compacting, and a few tens per node and remembered request.
        """
        keys = np.ascontiguousarray(block_keys, np.uint64)
        offsets = np.ascontiguousarray(request_offsets, np.int64)
        first_key = self._make_room(keys[offsets[0] : offsets[-1]], offsets.size - 1)
        runs = np.empty((max(64, 2 * (offsets.size - 1)), _N_RUN_COLUMNS), np.int64)
        runs, n_runs = _scan(self._state, first_key, offsets, runs, self._table_bits, self._max_depth)
        return ReuseRuns(*(np.ascontiguousarray(runs[:n_runs, column]) for column in range(_N_RUN_COLUMNS)))

    def export_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return what :meth:`from_state` needs to go on from here: views, good until the next call."""
        self._compact_arena(0)
        state = self._state
        n_nodes, n_free, n_slots = (int(state.counters[i]) for i in (N_NODES, N_FREE, N_SLOTS))
        return {
            "arena": state.arena[: state.counters[ARENA_USED]],
            "nodes": state.nodes[:n_nodes],
            "free_nodes": state.free_nodes[:n_free],
            "weights": state.weights[:n_slots],
            "slot_requests": state.slot_requests[:n_slots],
            "slot_leaves": state.slot_leaves[:n_slots],
            "counters": state.counters,
        }

    @classmethod
    def from_state(cls, arrays: dict[str, npt.NDArray[Any]], max_depth: int | None = None) -> ReuseRunScanner:
        """Return a scanner that takes ``arrays`` over and goes on where the one that exported them was."""
        scanner = cls(max_depth)
        free_nodes = np.zeros(arrays["nodes"].shape[0], np.int64)
        free_nodes[: arrays["free_nodes"].size] = arrays["free_nodes"]
        scanner._state = scanner._state._replace(
            **{**arrays, "free_nodes": free_nodes}, table_nodes=np.empty(0, np.int64)
        )
        scanner._make_room_for_nodes(0)
        scanner._make_room_for_slots(1)
        return scanner

    def _make_room(self, keys: UInt64Array, n_requests: int) -> int:
        """Append keys to the arena, grow or compact what is full; return where the keys begin."""
        self._make_room_for_nodes(2 * n_requests)
        self._make_room_for_slots(n_requests)
        state = self._state
        used = int(state.counters[ARENA_USED])
        if used == 0 and state.arena.size < keys.size and not self._bounded:
            writable = keys if keys.flags.writeable else keys.copy()
            self._state = state._replace(arena=writable)
        else:
            if used + keys.size > state.arena.size:
                used = self._compact_arena(keys.size)
            self._state.arena[used : used + keys.size] = keys
        self._state.counters[ARENA_USED] = used + keys.size
        return used

    def _compact_arena(self, extra: int) -> int:
        state = self._state
        wanted = self.live_blocks + extra
        target, self._spare_arena = self._spare_arena, state.arena
        if target.size < 2 * wanted:
            target = np.empty(max(_LEAST_ARENA, (3 if self._bounded else 2) * wanted), np.uint64)
        used = copy_live_spans(state.nodes, state.counters[N_NODES], state.arena, target)
        if not self._bounded:
            self._spare_arena = np.empty(0, np.uint64)
        self._state = state._replace(arena=target)
        state.counters[ARENA_USED] = used
        return int(used)

    def _make_room_for_nodes(self, extra: int) -> None:
        state = self._state
        n_nodes, n_free = int(state.counters[N_NODES]), int(state.counters[N_FREE])
        wanted = n_nodes - n_free + extra
        if wanted > state.nodes.shape[0]:
            nodes = np.zeros((2 * wanted, 5), np.int64)
            nodes[:n_nodes] = state.nodes[:n_nodes]
            free_nodes = np.empty(2 * wanted, np.int64)
            free_nodes[:n_free] = state.free_nodes[:n_free]
            self._state = state._replace(nodes=nodes, free_nodes=free_nodes)
        if 2 * wanted > state.table_nodes.size:
            self._table_bits = int(4 * wanted - 1).bit_length()
            size = 1 << self._table_bits
            self._state = self._state._replace(
                table_keys=np.zeros(size, np.uint64), table_nodes=np.full(size, -1, np.int64)
            )
            if n_nodes:
                rebuild_table(self._state, self._table_bits)

    def _make_room_for_slots(self, extra: int) -> None:
        state = self._state
        n_slots = int(state.counters[N_SLOTS])
        if n_slots + extra <= state.weights.size:
            return
        live_slots = int(np.count_nonzero(state.weights[:n_slots]))
        size = max(_LEAST_SLOTS, 2 * (live_slots + extra))
        if size > state.weights.size:
            # The tree is larger by one, whatever it was: it is built anew.
            self._state = state._replace(
                tree=np.zeros(size + 1, np.int64),
                weights=_resized(state.weights, size),
                slot_requests=_resized(state.slot_requests, size),
                slot_leaves=_resized(state.slot_leaves, size),
            )
        if n_slots:
            _renumber_slots(self._state)


def _resized(array: Int64Array, size: int) -> Int64Array:
    """Return a copy with zeros behind it."""
    larger = np.zeros(size, np.int64)
    larger[: array.size] = array
    return larger

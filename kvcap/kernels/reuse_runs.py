"""Reuse runs of a request stream in one pass: LRU stack distances without per-block work.

A request touches the whole path from the root to its end, so the blocks whose last toucher is request q
are always a suffix of q's path and the LRU stack is a list of such suffixes, newest first. With ``w_q``
the length of what survives of q, a run of a later request's known prefix that was last touched by q has
the tail-first depth ``sum(w_p for p > q)`` (its i-th block: ``+ i``) and, for each of its blocks, the
head-first depth ``sum(w_p for p >= q) - 1``. A Fenwick tree over requests keeps the sums.

Runs are found on a path-compressed prefix tree. A node is a span of consecutive block keys; a hash table
maps the key of its first block to it. Keys are chained, so equal last keys prove two spans equal: a node
is matched by one comparison, and a mismatch is located by binary search.

Stack distances: Mattson et al. 1970. Fenwick trees for them: Bennett and Kruskal 1975, Olken 1981.

Nothing here raises; :class:`ReuseRunScanner` fixes dtypes and makes room before each call.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcap.kernels._jit import jit

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_START, _LENGTH, _CHILDREN, _TOUCHER, _PARENT = range(5)
_N_NODES, _N_FREE, _N_SLOTS, _N_REQUESTS, _ARENA_USED, _LIVE_BLOCKS, _OLDEST_SLOT, _FORGOTTEN = range(8)
_N_RUN_COLUMNS: Final = 6
_LEAST_SLOTS: Final = 1024
_LEAST_ARENA: Final = 1 << 14
"""Room that is always made at once, so that small chunks do not compact time and again."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


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


class _State(NamedTuple):
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
def _find(key, table_keys, table_nodes, table_bits):
    """Return the place of a key in the table, or of the empty place where it belongs."""
    mask = table_nodes.size - 1
    place = _home(key, table_bits)
    while table_nodes[place] >= 0 and table_keys[place] != key:
        place = (place + 1) & mask
    return place


@jit
def _remove(place, table_keys, table_nodes, table_bits):
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
def _fenwick_add(tree, slot, amount):
    i = slot + 1
    while i < tree.size:
        tree[i] += amount
        i += i & -i


@jit
def _fenwick_prefix(tree, slot):
    """Return the sum over slots 0..slot."""
    total = 0
    i = slot + 1
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@jit
def _matched_length(arena, start, own, longest):
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
    if counters[_N_FREE] > 0:
        counters[_N_FREE] -= 1
        node = state.free_nodes[counters[_N_FREE]]
    else:
        node = counters[_N_NODES]
        counters[_N_NODES] += 1
    state.nodes[node, _START] = start
    state.nodes[node, _LENGTH] = length
    state.nodes[node, _CHILDREN] = children
    state.nodes[node, _TOUCHER] = toucher
    state.nodes[node, _PARENT] = parent
    return node


@jit
def _free_node(state, node):
    state.nodes[node, _LENGTH] = 0
    state.free_nodes[state.counters[_N_FREE]] = node
    state.counters[_N_FREE] += 1


@jit
def _split(state, place, matched, own, slot, table_bits):
    """Cut the node at a table place after ``matched`` blocks and return the new upper part.

    The lower part keeps the node's id, so that its children keep their parent.
    """
    nodes = state.nodes
    lower = state.table_nodes[place]
    upper = _new_node(state, own, matched, 1, slot, nodes[lower, _PARENT])
    state.table_nodes[place] = upper
    nodes[lower, _START] += matched
    nodes[lower, _LENGTH] -= matched
    nodes[lower, _PARENT] = upper
    key = state.arena[nodes[lower, _START]]
    lower_place = _find(key, state.table_keys, state.table_nodes, table_bits)
    state.table_keys[lower_place] = key
    state.table_nodes[lower_place] = lower
    return upper


@jit
def _merge_into_child(state, node, child, table_bits):
    """Join a node to its only child, both just touched by the same request, under the child's id."""
    nodes, arena = state.nodes, state.arena
    place = _find(arena[nodes[child, _START]], state.table_keys, state.table_nodes, table_bits)
    _remove(place, state.table_keys, state.table_nodes, table_bits)
    nodes[child, _START] = nodes[node, _START]
    nodes[child, _LENGTH] += nodes[node, _LENGTH]
    nodes[child, _PARENT] = nodes[node, _PARENT]
    place = _find(arena[nodes[node, _START]], state.table_keys, state.table_nodes, table_bits)
    state.table_nodes[place] = child
    _free_node(state, node)


@jit
def _grown(runs, n_runs):
    if n_runs < runs.shape[0]:
        return runs
    larger = np.empty((2 * runs.shape[0], runs.shape[1]), np.int64)
    larger[:n_runs] = runs[:n_runs]
    return larger


@jit
def _touch_path(state, runs, n_runs, own, length, slot, table_bits):
    """Append one request's runs to ``runs`` and make its whole path its own; return both."""
    nodes, arena, counters = state.nodes, state.arena, state.counters
    first_run = n_runs
    position, above, source = 0, -1, -1
    while position < length:
        key = arena[own + position]
        place = _find(key, state.table_keys, state.table_nodes, table_bits)
        node = state.table_nodes[place]
        if node < 0:
            break
        node_length = nodes[node, _LENGTH]
        longest = min(node_length, length - position)
        matched = _matched_length(arena, nodes[node, _START], own + position, longest)
        if nodes[node, _TOUCHER] != source:
            source = nodes[node, _TOUCHER]
            runs = _grown(runs, n_runs)
            above_blocks = counters[_LIVE_BLOCKS] - _fenwick_prefix(state.tree, source)
            runs[n_runs, 0] = counters[_N_REQUESTS]
            runs[n_runs, 1] = source
            runs[n_runs, 2] = position
            runs[n_runs, 3] = 0
            runs[n_runs, 4] = above_blocks
            runs[n_runs, 5] = above_blocks + state.weights[source] - 1
            n_runs += 1
        runs[n_runs - 1, 3] += matched
        if matched < node_length:
            node = _split(state, place, matched, own + position, slot, table_bits)
        nodes[node, _START] = own + position
        nodes[node, _TOUCHER] = slot
        if above >= 0 and nodes[above, _CHILDREN] == 1:
            _merge_into_child(state, above, node, table_bits)
        above = node
        position += matched
        if matched < node_length:
            break
    for run in range(first_run, n_runs):
        _fenwick_add(state.tree, runs[run, 1], -runs[run, 3])
        state.weights[runs[run, 1]] -= runs[run, 3]
        runs[run, 1] = state.slot_requests[runs[run, 1]]
    if position < length:
        above = _append_tail(state, above, own + position, length - position, slot, table_bits)
    state.slot_leaves[slot] = above
    counters[_LIVE_BLOCKS] += length - position
    return runs, n_runs


@jit
def _append_tail(state, above, start, length, slot, table_bits):
    """Hang blocks that were never seen below ``above`` (-1: the root); return the node that holds them."""
    if above >= 0:
        if state.nodes[above, _CHILDREN] == 0:
            # The node was just pointed at this request's own keys, which go on right behind it.
            state.nodes[above, _LENGTH] += length
            return above
        state.nodes[above, _CHILDREN] += 1
    node = _new_node(state, start, length, 0, slot, above)
    key = state.arena[start]
    place = _find(key, state.table_keys, state.table_nodes, table_bits)
    state.table_keys[place] = key
    state.table_nodes[place] = node
    return node


@jit
def _scan(state, first_key, request_offsets, runs, table_bits, max_depth):
    """Replay requests whose keys stand in the arena from ``first_key`` on; return runs and their number.

    What may be forgotten is forgotten between requests, so that chunks make no difference.
    """
    counters = state.counters
    n_runs = 0
    for r in range(request_offsets.size - 1):
        _forget(state, max_depth, table_bits)
        length = request_offsets[r + 1] - request_offsets[r]
        if length > 0:
            slot = counters[_N_SLOTS]
            own = first_key + request_offsets[r] - request_offsets[0]
            runs, n_runs = _touch_path(state, runs, n_runs, own, length, slot, table_bits)
            state.slot_requests[slot] = counters[_N_REQUESTS]
            state.weights[slot] = length
            _fenwick_add(state.tree, slot, length)
            counters[_N_SLOTS] += 1
        counters[_N_REQUESTS] += 1
    return runs, n_runs


@jit
def _rebuild_table(state, table_bits):
    """Fill an empty table with the live nodes."""
    for node in range(state.counters[_N_NODES]):
        if state.nodes[node, _LENGTH] > 0:
            key = state.arena[state.nodes[node, _START]]
            place = _find(key, state.table_keys, state.table_nodes, table_bits)
            state.table_keys[place] = key
            state.table_nodes[place] = node


@jit
def _copy_live_spans(nodes, n_nodes, arena, target):
    """Copy what nodes point at to the front of ``target`` and point them there; return its length."""
    used = 0
    for node in range(n_nodes):
        length = nodes[node, _LENGTH]
        if length > 0:
            start = nodes[node, _START]
            target[used : used + length] = arena[start : start + length]
            nodes[node, _START] = used
            used += length
    return used


@jit
def _renumber_slots(state, tree, weights, slot_requests, slot_leaves):
    """Move slots that still own blocks to the front of new arrays, in order; return their number."""
    n_slots = state.counters[_N_SLOTS]
    new_slot = np.empty(n_slots, np.int64)
    kept = 0
    for slot in range(n_slots):
        new_slot[slot] = kept
        if state.weights[slot] > 0:
            weights[kept] = state.weights[slot]
            slot_requests[kept] = state.slot_requests[slot]
            slot_leaves[kept] = state.slot_leaves[slot]
            kept += 1
    for node in range(state.counters[_N_NODES]):
        if state.nodes[node, _LENGTH] > 0:
            state.nodes[node, _TOUCHER] = new_slot[state.nodes[node, _TOUCHER]]
    for i in range(1, tree.size):
        tree[i] += weights[i - 1]
        parent = i + (i & -i)
        if parent < tree.size:
            tree[parent] += tree[i]
    return kept


@jit
def _forget(state, max_depth, table_bits):
    """Drop the oldest requests as long as all of their blocks lie at ``max_depth`` or deeper.

    A node's descendants were last touched no later than itself, so what survives of the oldest request is
    a chain of nodes with nothing below: from its leaf upwards, as long as it is the last toucher.
    """
    counters, nodes = state.counters, state.nodes
    while counters[_OLDEST_SLOT] < counters[_N_SLOTS]:
        slot = counters[_OLDEST_SLOT]
        weight = state.weights[slot]
        if counters[_LIVE_BLOCKS] - weight < max_depth:
            return
        counters[_OLDEST_SLOT] += 1
        if weight == 0:
            continue
        node = state.slot_leaves[slot]
        while node >= 0 and nodes[node, _TOUCHER] == slot:
            key = state.arena[nodes[node, _START]]
            place = _find(key, state.table_keys, state.table_nodes, table_bits)
            _remove(place, state.table_keys, state.table_nodes, table_bits)
            _free_node(state, node)
            node = nodes[node, _PARENT]
        if node >= 0:
            nodes[node, _CHILDREN] -= 1
        _fenwick_add(state.tree, slot, -weight)
        state.weights[slot] = 0
        counters[_LIVE_BLOCKS] -= weight
        counters[_FORGOTTEN] += weight


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
        self._table_bits = 10
        self._state = _State(
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
        return int(self._state.counters[_N_REQUESTS])

    @property
    def live_blocks(self) -> int:
        """Distinct blocks remembered."""
        return int(self._state.counters[_LIVE_BLOCKS])

    @property
    def forgotten_blocks(self) -> int:
        """Blocks forgotten so far; one that came back and was forgotten again counts twice."""
        return int(self._state.counters[_FORGOTTEN])

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the state's arrays."""
        return sum(array.nbytes for array in self._state)

    def feed(self, block_keys: UInt64Array, request_offsets: Int64Array) -> ReuseRuns:
        """Replay more requests and return their reuse runs.

        Parameters
        ----------
        block_keys : uint64 (n_accesses,)
            Prefix-chained keys in replay order. The first chunk may be kept without a copy, so it must
            not be changed afterwards.
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
        n_nodes, n_free, n_slots = (int(state.counters[i]) for i in (_N_NODES, _N_FREE, _N_SLOTS))
        return {
            "arena": state.arena[: state.counters[_ARENA_USED]],
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
        used = int(state.counters[_ARENA_USED])
        if used == 0 and state.arena.size < keys.size:
            writable = keys if keys.flags.writeable else keys.copy()
            self._state = state._replace(arena=writable)
        else:
            if used + keys.size > state.arena.size:
                used = self._compact_arena(keys.size)
            self._state.arena[used : used + keys.size] = keys
        self._state.counters[_ARENA_USED] = used + keys.size
        return used

    def _compact_arena(self, extra: int) -> int:
        state = self._state
        target = np.empty(max(_LEAST_ARENA, 2 * self.live_blocks + 2 * extra), np.uint64)
        used = _copy_live_spans(state.nodes, state.counters[_N_NODES], state.arena, target)
        self._state = state._replace(arena=target)
        state.counters[_ARENA_USED] = used
        return int(used)

    def _make_room_for_nodes(self, extra: int) -> None:
        state = self._state
        n_nodes, n_free = int(state.counters[_N_NODES]), int(state.counters[_N_FREE])
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
                _rebuild_table(self._state, self._table_bits)

    def _make_room_for_slots(self, extra: int) -> None:
        state = self._state
        n_slots = int(state.counters[_N_SLOTS])
        if n_slots + extra <= state.weights.size:
            return
        live_slots = int(np.count_nonzero(state.weights[:n_slots]))
        size = max(_LEAST_SLOTS, 2 * (live_slots + extra))
        tree = np.zeros(size + 1, np.int64)
        weights, requests, leaves = (np.zeros(size, np.int64) for _ in range(3))
        kept = _renumber_slots(state, tree, weights, requests, leaves) if n_slots else 0
        self._state = state._replace(tree=tree, weights=weights, slot_requests=requests, slot_leaves=leaves)
        self._state.counters[_N_SLOTS] = kept
        self._state.counters[_OLDEST_SLOT] = 0

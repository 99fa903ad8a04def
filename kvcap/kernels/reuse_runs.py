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

from kvcap.kernels._jit import is_compiled, is_kept
from kvcap.kernels.arrays import Int64Array, UInt64Array
from kvcap.kernels.node_index import add_buckets
from kvcap.kernels.request_log import WORDS_PER_SLOT, close_gaps
from kvcap.kernels.run_scan import scan
from kvcap.kernels.tree_state import (
    ARENA_USED,
    FORGOTTEN,
    LIVE_BLOCKS,
    LIVE_SLOTS,
    N_BUCKETS,
    N_COUNTERS,
    N_FREE,
    N_NODES,
    N_REQUESTS,
    N_SLOTS,
    NEXT_SLOT,
    TreeState,
    array_rows,
    empty_state,
    with_room,
)

_N_RUN_COLUMNS: Final = 6
_ALL: Final = np.iinfo(np.int64).max

_PACE: Final = 4
"""How much of the log is searched for gaps, for as much that is added to it."""

_LEAST_GAPS: Final = 1 << 12
"""Blocks and slots that may be missing before a search is worth it."""

_SPARE_BUCKETS: Final = 256
"""Buckets that are added before they are needed, so that small chunks rarely have to."""

_COUNTED_ROWS: Final = 1 << 16
"""Memory is counted in steps of so many rows."""


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


def scanner_is_compiled() -> bool:
    """Whether the first call of a scanner is quick on this machine."""
    return is_compiled(scan)


def scanner_is_kept() -> bool:
    """Whether a scanner that was compiled once is there for later runs."""
    return is_kept(scan)


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
        self._bounded = max_depth is not None
        self._max_depth = _ALL if max_depth is None else max_depth
        self._owns_arena = False
        self._most_blocks = self._most_slots = 0
        self._state = empty_state()

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
        """Bytes held by the state's arrays, without what is only set aside."""
        filled = self._filled_rows(self._most_blocks, self._most_slots)
        return sum(
            min(array.nbytes, -(-rows // _COUNTED_ROWS) * _COUNTED_ROWS * array.strides[0])
            for array, rows in zip(self._state[:-1], filled, strict=True)
        )

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
        distinct block, up to three times that with the gaps that reuse leaves, and a few tens per node and
        remembered request. Without a bound all gaps are closed when the arena is full; with one, each call
        closes some of them, in proportion to what it adds, so that none takes long.
        """
        keys = np.ascontiguousarray(block_keys, np.uint64)
        offsets = np.ascontiguousarray(request_offsets, np.int64)
        new_keys = keys[offsets[0] : offsets[-1]]
        first_key = self._append(new_keys, offsets.size - 1)
        words = self._words_to_search(new_keys.size + WORDS_PER_SLOT * (offsets.size - 1))
        runs = np.empty((max(64, 2 * (offsets.size - 1)), _N_RUN_COLUMNS), np.int64)
        runs, n_runs = scan(self._state, first_key, offsets, runs, self._max_depth, words)
        return ReuseRuns(*(np.ascontiguousarray(runs[:n_runs, column]) for column in range(_N_RUN_COLUMNS)))

    def export_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return what :meth:`from_state` needs to go on from here: views, good until the next call."""
        state = self._state
        filled = self._filled_rows(int(state.counters[ARENA_USED]), int(state.counters[N_SLOTS]))
        arrays = zip(state._fields, state, (*filled, N_COUNTERS), strict=True)
        return {name: array[:rows] for name, array, rows in arrays}

    @classmethod
    def from_state(cls, arrays: dict[str, npt.NDArray[Any]], max_depth: int | None = None) -> ReuseRunScanner:
        """Return a scanner that takes ``arrays`` over and goes on where the one that exported them was."""
        scanner = cls(max_depth)
        scanner._state = TreeState(**arrays)
        scanner._most_blocks, scanner._most_slots = arrays["arena"].size, arrays["weights"].size
        close_gaps(scanner._state, scanner._state.arena, _ALL)
        scanner._make_room(tuple(array.shape[0] + 1 for array in scanner._state[:-1]))
        return scanner

    def _append(self, keys: UInt64Array, n_requests: int) -> int:
        """Append keys to the arena, and make room for their requests; return where the keys begin."""
        if not self._bounded and self._state.counters[ARENA_USED] + keys.size > self._state.arena.size:
            self._change_arena(keys)
        # As plain integers: a call with one request takes microseconds.
        counters: list[int] = self._state.counters.tolist()
        first_key = counters[ARENA_USED]
        n_blocks = first_key + keys.size
        n_slots = counters[N_SLOTS] + n_requests
        n_nodes = counters[N_NODES] - counters[N_FREE] + 2 * n_requests
        n_buckets = 2 * n_nodes + _SPARE_BUCKETS
        self._make_room(array_rows(n_blocks, n_nodes, n_buckets, n_slots))
        self._most_blocks = max(self._most_blocks, n_blocks)
        self._most_slots = max(self._most_slots, n_slots)
        if counters[N_BUCKETS] < 2 * n_nodes:
            add_buckets(self._state, n_buckets)
        if self._state.arena is not keys:
            self._state.arena[first_key:n_blocks] = keys
        self._state.counters[ARENA_USED] = n_blocks
        return first_key

    def _words_to_search(self, new_words: int) -> int:
        """Return how much of the log to search for gaps: none, unless gaps are half of it or more."""
        if not self._bounded:
            return 0
        counters: list[int] = self._state.counters.tolist()
        in_arena = counters[ARENA_USED] > 2 * counters[LIVE_BLOCKS] + _LEAST_GAPS
        in_slots = counters[N_SLOTS] > 2 * counters[LIVE_SLOTS] + _LEAST_GAPS
        return _PACE * new_words if counters[NEXT_SLOT] > 0 or in_arena or in_slots else 0

    def _change_arena(self, keys: UInt64Array) -> None:
        """Make room for keys: in an arena of theirs if they are the first, or by closing all gaps."""
        arena = self._state.arena
        wanted = self.live_blocks + keys.size
        if self._state.counters[ARENA_USED] == 0:
            arena = keys if keys.flags.writeable else keys.copy()
            self._owns_arena = False
        else:
            # Memory that was written before is quicker than fresh memory; a caller's keys stay as they are.
            if not self._owns_arena or 3 * wanted > 2 * arena.size:
                arena = np.empty(2 * wanted, np.uint64)
                self._owns_arena = True
            close_gaps(self._state, arena, _ALL)
        self._state = self._state._replace(arena=arena)

    def _make_room(self, wanted: tuple[int, ...]) -> None:
        state = self._state
        for array, rows in zip(state, wanted, strict=False):
            if len(array) < rows:
                break
        else:
            return
        filled = self._filled_rows(int(state.counters[ARENA_USED]), int(state.counters[N_SLOTS]))
        most = self._max_depth if self._bounded else 0
        # A log is up to three times as long as what is live, and longer where slots are most of it.
        self._state = with_room(state, filled, wanted, array_rows(4 * most, most, 2 * most, 3 * most))

    def _filled_rows(self, n_blocks: int, n_slots: int) -> tuple[int, ...]:
        counters = self._state.counters
        return array_rows(n_blocks, int(counters[N_NODES]), int(counters[N_BUCKETS]), n_slots)

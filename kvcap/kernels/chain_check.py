"""See in one pass whether ids are keys of whole prefixes.

Ids are chained when none of them ever follows two different ids, the start of a request counting as one: then
an id stands for everything before it, too. Ids of real traces mostly count up, so an id is *regular* where
it follows the number before it. One bit in a page of 64 ids says that an id was seen, another that it is
irregular, and only irregular ids are kept with what they follow: 94 M ids of which 3.5 M are different take
3 MB.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcap.kernels._jit import jit

_FIRST_BITS: Final = 10
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio (Knuth)
_FREE: Final = np.uint8(0)
_FOLLOWS: Final = np.uint8(1)
_BEGINS: Final = np.uint8(2)


class ChainCheck:
    """Whether the ids seen so far are chained.

    Parameters
    ----------
    max_entries
        How many pages and irregular ids may be kept; with more the answer is no, which is always safe.

    Attributes
    ----------
    is_chained
        Whether each id has followed one id only.
    """

    def __init__(self, max_entries: int) -> None:
        self.is_chained = True
        self._max_entries = max_entries
        # Numbers of pages and of irregular ids.
        self._counts = np.zeros(2, dtype=np.int64)
        self._pages = _new_pages(_FIRST_BITS)
        self._irregular = _new_irregular(_FIRST_BITS)

    def add(self, ids: NDArray[np.uint64], request_offsets: NDArray[np.int64]) -> None:
        """Look at the ids of some requests.

        Parameters
        ----------
        ids : uint64 (n,)
            Ids of the requests, one after the other.
        request_offsets : int64 (n_requests + 1,)
            Request r owns ``ids[request_offsets[r]:request_offsets[r + 1]]``.
        """
        values, offsets = read_only(ids), np.ascontiguousarray(request_offsets, dtype=np.int64)
        position, request = 0, 0
        while self.is_chained and position < ids.size:
            position, request, self.is_chained = _check(
                values, offsets, position, request, *self._pages, *self._irregular, self._counts
            )
            if position < ids.size:
                self._make_room()

    def _make_room(self) -> None:
        if self._counts.sum() > self._max_entries:
            self.is_chained = False
            return
        if 2 * (self._counts[0] + 1) > self._pages[0].size:
            old, self._pages = self._pages, _new_pages(self._pages[0].size.bit_length())
            _move_pages(*old, *self._pages)
        if 2 * (self._counts[1] + 1) > self._irregular[0].size:
            olds, self._irregular = self._irregular, _new_irregular(self._irregular[0].size.bit_length())
            _move_irregular(*olds, *self._irregular)


def read_only(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the array as one that cannot be written, as those from Arrow are: one kernel fits all."""
    view = np.ascontiguousarray(values, dtype=np.uint64).view()
    view.flags.writeable = False
    return view


def _new_pages(bits: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return page numbers, bits of ids seen (none of a free slot), bits of irregular ones."""
    size = 1 << bits
    return np.empty(size, np.uint64), np.zeros(size, np.uint64), np.zeros(size, np.uint64)


def _new_irregular(bits: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
    """Return ids, what they follow, and whether they follow anything (0 for a free slot)."""
    size = 1 << bits
    return np.empty(size, np.uint64), np.empty(size, np.uint64), np.zeros(size, np.uint8)


@jit
def _slot(value, size):
    return np.int64((value * _MULTIPLIER) >> np.uint64(32)) & (size - 1)


@jit
def _check(ids, offsets, position, request, pages, seen, odd, irregular, before, state, counts):
    """Look at ids until a table is half full; return (position, request, chained)."""
    one = np.uint64(1)
    last_page = np.uint64(0)
    slot = np.int64(-1)
    while position < ids.size:
        while offsets[request + 1] <= position:
            request += 1
        if 2 * (counts[0] + 1) > pages.size or 2 * (counts[1] + 1) > irregular.size:
            return position, request, True
        value = ids[position]
        begins = position == offsets[request]
        previous = np.uint64(0) if begins else ids[position - 1]
        page = value >> np.uint64(6)
        if slot < 0 or page != last_page:
            last_page = page
            slot = _slot(page, pages.size)
            while seen[slot] != 0 and pages[slot] != page:
                slot = (slot + 1) & (pages.size - 1)
        bit = one << (value & np.uint64(63))
        is_odd = begins or previous != value - one
        if seen[slot] & bit == 0:
            if seen[slot] == 0:
                pages[slot] = page
                counts[0] += 1
            seen[slot] |= bit
            if is_odd:
                odd[slot] |= bit
        elif is_odd != (odd[slot] & bit != 0):
            return position, request, False
        if is_odd:
            place = _slot(value, irregular.size)
            while state[place] != _FREE and irregular[place] != value:
                place = (place + 1) & (irregular.size - 1)
            what = _BEGINS if begins else _FOLLOWS
            if state[place] == _FREE:
                irregular[place] = value
                before[place] = previous
                state[place] = what
                counts[1] += 1
            elif state[place] != what or before[place] != previous:
                return position, request, False
        position += 1
    return position, request, True


@jit
def _move_pages(old_pages, old_seen, old_odd, pages, seen, odd):
    for old in range(old_pages.size):
        if old_seen[old] != 0:
            slot = _slot(old_pages[old], pages.size)
            while seen[slot] != 0:
                slot = (slot + 1) & (pages.size - 1)
            pages[slot] = old_pages[old]
            seen[slot] = old_seen[old]
            odd[slot] = old_odd[old]


@jit
def _move_irregular(old_ids, old_before, old_state, ids, before, state):
    for old in range(old_ids.size):
        if old_state[old] != _FREE:
            place = _slot(old_ids[old], ids.size)
            while state[place] != _FREE:
                place = (place + 1) & (ids.size - 1)
            ids[place] = old_ids[old]
            before[place] = old_before[old]
            state[place] = old_state[old]

"""Number ids in the order of their first appearance, and see whether they are keys of whole prefixes.

Ids are chained when none of them ever follows two different ids, the start of a request counting as one:
then an id stands for everything before it, too. One pass over the ids decides it with a hash table. Ids of
real traces mostly count up, so neighbours are kept in one page of it: three times as fast as scattering them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcap.kernels._jit import jit

_FIRST_BITS: Final = 12
_GROUP_BITS: Final = 8
_GROUP: Final = 1 << _GROUP_BITS
# On to the next group; odd, so that it comes to every slot.
_STEP: Final = _GROUP + 1
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio (Knuth)


class IdTable:
    """Ids seen so far, by number.

    Attributes
    ----------
    count
        How many different ids there are.
    is_chained
        Whether each of them has followed one id only.
    """

    def __init__(self) -> None:
        self.count = 0
        self.is_chained = True
        self._allocate(_FIRST_BITS)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._ids = np.empty(1 << bits, dtype=np.uint64)
        # Numbers from 1; 0 marks a free slot, and the start of a request as a predecessor.
        self._numbers = np.zeros(1 << bits, dtype=np.uint32)
        self._before = np.empty(1 << bits, dtype=np.uint32)

    def add(self, ids: NDArray[np.uint64], request_offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the number of every id, counted from 0 over all calls.

        Parameters
        ----------
        ids : uint64 (n,), C-contiguous
            Ids of the requests, one after the other.
        request_offsets : int64 (n_requests + 1,)
            Request r owns ``ids[request_offsets[r]:request_offsets[r + 1]]``.
        """
        numbers = np.empty(ids.size, dtype=np.uint64)
        offsets = np.ascontiguousarray(request_offsets, dtype=np.int64)
        values = np.ascontiguousarray(ids, dtype=np.uint64)
        values = values.copy() if not values.flags.writeable else values
        request = 0
        while request < offsets.size - 1:
            request, self.count, chained = _add(
                values,
                offsets,
                request,
                self._ids,
                self._numbers,
                self._before,
                self._bits,
                self.count,
                numbers,
            )
            self.is_chained = self.is_chained and bool(chained)
            if request < offsets.size - 1:
                self._grow(int(offsets[request + 1] - offsets[request]))
        return numbers

    def _grow(self, more: int) -> None:
        old = self._ids, self._numbers, self._before
        bits = self._bits + 1
        while (1 << bits) < 2 * (self.count + more):
            bits += 1
        self._allocate(bits)
        _move(*old, self._ids, self._numbers, self._before, bits)


@jit
def _slot(value, bits):
    """Return where to look for an id first: neighbours share a group of slots, in an order of its own."""
    group = (value >> np.uint64(_GROUP_BITS)) * _MULTIPLIER >> np.uint64(64 - bits + _GROUP_BITS)
    return np.int64(group << np.uint64(_GROUP_BITS) | (value ^ group) & np.uint64(_GROUP - 1))


@jit
def _add(values, offsets, request, ids, numbers, before, bits, count, out):
    """Add requests until the table might be more than half full; return (next request, count, chained)."""
    mask = ids.size - 1
    chained = True
    while request < offsets.size - 1:
        if 2 * (count + offsets[request + 1] - offsets[request]) > ids.size:
            break
        previous = np.uint32(0)
        for i in range(offsets[request], offsets[request + 1]):
            value = values[i]
            slot = _slot(value, bits)
            while numbers[slot] != 0 and ids[slot] != value:
                slot = (slot + _STEP) & mask
            if numbers[slot] == 0:
                count += 1
                ids[slot] = value
                numbers[slot] = np.uint32(count)
                before[slot] = previous
            elif before[slot] != previous:
                chained = False
            previous = numbers[slot]
            out[i] = np.uint64(previous - np.uint32(1))
        request += 1
    return request, count, chained


@jit
def _move(old_ids, old_numbers, old_before, ids, numbers, before, bits):
    mask = ids.size - 1
    for old in range(old_ids.size):
        if old_numbers[old] != 0:
            slot = _slot(old_ids[old], bits)
            while numbers[slot] != 0:
                slot = (slot + _STEP) & mask
            ids[slot] = old_ids[old]
            numbers[slot] = old_numbers[old]
            before[slot] = old_before[old]

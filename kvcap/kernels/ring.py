"""Entries in an order of their own, oldest first: a doubly linked list, closed to a ring by one more place.

``older`` and ``newer`` have a place for every entry and a last one, for the ring, which stands before the
oldest entry and behind the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcap.kernels._jit import jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array


@jit
def ring_remove(entry: int, older: Int32Array, newer: Int32Array) -> None:
    """Take an entry out."""
    newer[older[entry]] = newer[entry]
    older[newer[entry]] = older[entry]


@jit
def ring_append(entry: int, older: Int32Array, newer: Int32Array) -> None:
    """Put an entry at the newest end."""
    ring = len(older) - 1
    older[entry] = older[ring]
    newer[entry] = ring
    newer[older[ring]] = entry
    older[ring] = entry

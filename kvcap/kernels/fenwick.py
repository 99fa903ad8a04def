"""A Fenwick tree: prefix sums under updates, both in logarithmic time (Fenwick 1994)."""

from __future__ import annotations

from kvcap.kernels._jit import jit


@jit
def fenwick_add(tree, slot, amount):
    """Add to one slot."""
    i = slot + 1
    while i < tree.size:
        tree[i] += amount
        i += i & -i


@jit
def fenwick_prefix(tree, slot):
    """Return the sum over slots 0..slot."""
    total = 0
    i = slot + 1
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total

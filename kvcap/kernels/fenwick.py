"""A Fenwick tree: prefix sums under updates, both in logarithmic time (Fenwick 1994).

``tree[i]`` is the sum over the slots ``i - (i & -i)`` to ``i - 1``; ``tree[0]`` is not used. Only the places
of the first ``size`` slots mean anything, so that a tree grows and shrinks at its end without more ado.
"""

from __future__ import annotations

from kvcap.kernels._jit import jit


@jit
def fenwick_add(tree, size, slot, amount):
    """Add to one slot."""
    i = slot + 1
    while i <= size:
        tree[i] += amount
        i += i & -i


@jit
def fenwick_append(tree, size, amount):
    """Set the slot behind the last one."""
    i = size + 1
    total = amount
    below = size
    while below > i - (i & -i):
        total += tree[below]
        below -= below & -below
    tree[i] = total


@jit
def fenwick_move(tree, size, slot, target, amount):
    """Move an amount to an earlier slot, up to where the two have their sums in common."""
    i, j = target + 1, slot + 1
    while i != j and min(i, j) <= size:
        if i < j:
            tree[i] += amount
            i += i & -i
        else:
            tree[j] -= amount
            j += j & -j


@jit
def fenwick_prefix(tree, slot):
    """Return the sum over slots 0..slot."""
    total = 0
    i = slot + 1
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@jit
def fenwick_first(tree, size):
    """Return the first slot that is not 0, or ``size``; no slot is negative."""
    step = 1
    while 2 * step <= size:
        step *= 2
    slot = 0
    while step > 0:
        if slot + step <= size and tree[slot + step] == 0:
            slot += step
        step //= 2
    return slot

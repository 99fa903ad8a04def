"""Copies within kernels. Assigned slices would do, but the message they may raise takes 4 s to compile."""

from __future__ import annotations

import numpy as np

from kvcap.kernels._jit import jit


@jit
def copy_to(target, source):
    """Write ``source`` to the front of ``target``: any (at least n,), any (n,).

    Front to back, so that values may slide towards the front of their own array.
    """
    for i in range(source.size):
        target[i] = source[i]


@jit
def with_free_row(rows, n_rows):
    """Return rows of which ``n_rows`` are used, or twice as many if those are all: int64 (n, n_columns)."""
    if n_rows < rows.shape[0]:
        return rows
    larger = np.empty((2 * n_rows, rows.shape[1]), np.int64)
    for row in range(n_rows):
        for column in range(rows.shape[1]):
            larger[row, column] = rows[row, column]
    return larger

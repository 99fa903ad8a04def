"""The latest requests, and the sums over all of them."""

from __future__ import annotations

import numpy as np

from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.observations import TIMESTAMP_US


class Window:
    """A ring of the latest rows.

    Parameters
    ----------
    n_rows, n_columns
        Its size: rows of :mod:`kvcap.kernels.observations`.
    """

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self._rows = np.zeros((n_rows, n_columns), np.int64)
        self._n_seen = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self._rows.nbytes

    def append(self, rows: Int64Array) -> None:
        """Add rows, oldest first: int64 (n, n_columns)."""
        size = self._rows.shape[0]
        kept = rows[-size:]
        start = (self._n_seen + rows.shape[0] - kept.shape[0]) % size
        until_wrap = min(size - start, kept.shape[0])
        self._rows[start : start + until_wrap] = kept[:until_wrap]
        self._rows[: kept.shape[0] - until_wrap] = kept[until_wrap:]
        self._n_seen += rows.shape[0]

    def latest(self, not_before_us: int | None = None) -> Int64Array:
        """Return a copy of the rows, oldest first, without those that arrived before a time."""
        size = self._rows.shape[0]
        if self._n_seen <= size:
            rows = self._rows[: self._n_seen].copy()
        else:
            rows = np.roll(self._rows, -(self._n_seen % size), axis=0)
        if not_before_us is None:
            return rows
        return rows[rows[:, TIMESTAMP_US] >= not_before_us]

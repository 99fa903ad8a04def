"""Names for the arrays that kernels take and give, and what is asked of sorted ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]


def offsets_of(lengths: npt.NDArray[np.integer]) -> Int64Array:
    """Return where each of n consecutive parts begins, and where the last ends: int64 (n + 1,)."""
    offsets: Int64Array = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return offsets


def nearest_rank(ascending: npt.NDArray[np.generic], share: Fraction) -> int:
    """Return ``ascending[ceil(share * n) - 1]``, its first value for a share of 0; 0 of nothing."""
    if ascending.size == 0:
        return 0
    rank = -(-ascending.size * share.numerator // share.denominator)
    return int(ascending[max(1, rank) - 1])

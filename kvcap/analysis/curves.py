"""The exact curve of every pool, as arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kvcap.kernels.curve import Curve

if TYPE_CHECKING:
    from kvcap.queries import Results


def curves_by_pool(results: Results) -> dict[str | None, Curve]:
    """Return hits over capacity of all pools together (None), and of each pool."""
    table = results.table("curve")
    columns = [table[name].to_numpy() for name in Curve._fields]
    if table["pool"].null_count == table.num_rows:
        return {None: Curve(*columns)}
    pools = table["pool"].to_numpy()
    starts = [0, *(np.flatnonzero(pools[1:] != pools[:-1]) + 1).tolist(), pools.size]
    return {
        pools[start]: Curve(*(column[start:stop] for column in columns)) for start, stop in pairwise(starts)
    }

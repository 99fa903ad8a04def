"""When a cache's capacity changed: binary segmentation of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.kernels.observed.limits import split_errors

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.observed.limits import CapacityEnds
    from kvcap.kernels.observed.pieces import ObservedPieces

_LEVELS: Final = 2
_FEWEST_REQUESTS: Final = 40
"""That miss, in what is split."""
_MARGIN: Final = 10
_COARSE, _FINE = 64, 40


def period_starts(
    pieces: ObservedPieces, ends: CapacityEnds, states: npt.NDArray[np.int8], least_gain: float
) -> list[int]:
    """Return the first requests of periods with capacities of their own, the very first one included.

    Parameters
    ----------
    pieces, ends, states
        Of one cache; see :mod:`kvcap.kernels.observed.limits`.
    least_gain
        Tokens that a split has to get right beyond what one capacity does.

    Notes
    -----
    Each stretch is split where the two capacities together get the fewest tokens wrong, as long as that
    gains enough: among some 64 of its requests, and then 40 around the best. At most four periods.
    """

    def starts(begin: int, end: int, levels: int) -> list[int]:
        def errors(splits: Int64Array) -> Int64Array:
            return split_errors(pieces, ends, states, begin, splits, end)

        inside = (pieces.request >= begin) & (pieces.request < end)
        requests = np.unique(pieces.request[inside & (states > 0)])
        missing = np.unique(pieces.request[inside & (states > 0) & (pieces.missed_from < pieces.blocks)])
        error = int(errors(np.array([end], np.int64))[0])
        if levels == 0 or error < least_gain or missing.size < _FEWEST_REQUESTS:
            return [begin]
        coarse = _spread(_MARGIN, requests.size - _MARGIN, _COARSE)
        best = int(np.argmin(errors(requests[coarse])))
        fine = _spread(coarse[max(best - 1, 0)], coarse[min(best + 1, coarse.size - 1)], _FINE)
        found = errors(requests[fine])
        best = int(np.argmin(found))
        if error - int(found[best]) < least_gain:
            return [begin]
        split = int(requests[fine[best]])
        return starts(begin, split, levels - 1) + starts(split, end, levels - 1)

    return starts(0, int(pieces.request.max()) + 1, _LEVELS)


def _spread(first: int, last: int, count: int) -> Int64Array:
    return np.unique(np.linspace(first, last, count).astype(np.int64))

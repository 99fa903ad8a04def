"""What becomes of blocks in a cache, by the time since their last use and by their depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from kvcap.analysis.explain.fitting import Fitting
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.kernels.arrays import Int64Array

AGES_SECONDS: Final = (30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
"""Where the classes of age part."""


@dataclass(frozen=True)
class SurvivalRow:
    """Blocks of one class of age and of depth, in ``[from, to)``; ages are None without times or a bound."""

    age_from_seconds: float | None
    age_to_seconds: float | None
    depth_from_blocks: int
    depth_to_blocks: int
    requests: int
    known_tokens: int
    hit_tokens: int

    @property
    def share(self) -> float:
        """How much of it was hit."""
        return self.hit_tokens / self.known_tokens


def survival(log: ObservedLog, fitting: Fitting, *, by_depth: bool) -> tuple[SurvivalRow, ...]:
    """Return what was left of blocks that were used before on the same cache.

    Blocks whose source was still running are left out. Depth parts at powers of two, a stretch of blocks
    belonging where its first one does; without ``by_depth``, all depths are one class.
    """
    pieces = fitting.pieces
    used = log.observed[pieces.request] & ~pieces.running & (pieces.blocks > 0)
    request, weight = pieces.request[used], pieces.tokens_per_block[used]
    known, hit = pieces.blocks[used] * weight, pieces.hit_blocks[used] * weight
    bounds = np.array(AGES_SECONDS, np.int64) * 1_000_000
    ages = (
        np.searchsorted(bounds, pieces.age_us[used], side="right") if log.has_time else np.zeros_like(known)
    )
    depths = np.zeros_like(known)
    if by_depth:
        depths = np.ceil(np.log2(pieces.depth[used] + 1.0)).astype(np.int64)
    rows = []
    for age, depth in np.unique(np.stack([ages, depths]), axis=1).T.tolist():
        mine = (ages == age) & (depths == depth)
        rows.append(
            SurvivalRow(
                *_age_class(age, has_time=log.has_time),
                depth_from_blocks=(1 << depth) // 2 if by_depth else 0,
                depth_to_blocks=1 << depth if by_depth else _above(pieces.depth[used]),
                requests=np.unique(request[mine]).size,
                known_tokens=int(known[mine].sum()),
                hit_tokens=int(hit[mine].sum()),
            )
        )
    return tuple(rows)


def _age_class(number: int, *, has_time: bool) -> tuple[float | None, float | None]:
    if not has_time:
        return None, None
    return (
        float(AGES_SECONDS[number - 1]) if number else 0.0,
        float(AGES_SECONDS[number]) if number < len(AGES_SECONDS) else None,
    )


def _above(depth: Int64Array) -> int:
    return int(depth.max()) + 1

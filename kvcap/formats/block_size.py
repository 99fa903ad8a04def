"""Tokens per block, from what ids and lengths say of each other.

A request of L tokens with n block ids has ``ceil(L / b) = n`` where ids cover an incomplete last block, or
``floor(L / b) = n`` where they do not: each says between which sizes b lies, and over a trace these bounds
meet, as a rule at one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcap.errors import UsageError
from kvcap.formats.rows import Ids, Row
from kvcap.kernels.arrays import BoolArray, Int64Array

_LARGEST: Final = 2**31 - 1
_MIN_SHARE: Final = 0.9
"""Share of the requests that must agree on a size for it to be believed."""
_FIRST_REQUESTS: Final = 64
"""So many are asked first, since one that agrees with what the user says is enough."""
_MIN_REFUSED: Final = 2
"""One request alone may be odd; so many refuse what the user says."""


@dataclass(frozen=True)
class FittingSizes:
    """Block sizes that fit ids and lengths of ``fitting`` among ``requests``.

    ``stretches`` are the first and the last of each run of sizes, ascending.
    """

    stretches: tuple[tuple[int, int], ...]
    fitting: int
    requests: int

    @property
    def is_sure(self) -> bool:
        """Whether enough requests agree."""
        return self.fitting >= max(1, _MIN_SHARE * self.requests)

    @property
    def is_one(self) -> bool:
        """Whether one size alone fits."""
        return len(self.stretches) == 1 and self.stretches[0][0] == self.stretches[0][1]

    def choice(self, usual: int | None) -> int | None:
        """Return the only size, else the usual one, else the only power of two; None where that is open."""
        if self.is_one:
            return self.stretches[0][0]
        if usual is not None and usual in self:
            return usual
        powers = [2**n for n in range(31) if 2**n in self]
        return powers[0] if len(powers) == 1 else None

    def __contains__(self, size: int) -> bool:
        return any(least <= size <= most for least, most in self.stretches)

    def __str__(self) -> str:
        return " or ".join(
            f"{least:,}" if least == most else f"{least:,} to {most:,}" for least, most in self.stretches
        )


def fitting_sizes(rows: Iterable[Row]) -> FittingSizes | None:
    """Return the sizes that fit most of some requests, None where none of them says anything."""
    n, length = _counts_and_lengths(rows)
    if n.size == 0:
        return None
    # Incomplete last blocks have an id in all requests or in none.
    up = _most_common(-(-length // np.maximum(n, 1)), _below(length, n - 1), n > 0)
    down = _most_common(length // (n + 1) + 1, _at_most(length, n), length > 0)
    fitting = max(up[1], down[1])
    stretches = sorted(stretch for stretch, count in (up, down) if count == fitting)
    if len(stretches) == 2 and stretches[1][0] <= stretches[0][1] + 1:
        stretches = [(stretches[0][0], max(most for _, most in stretches))]
    return FittingSizes(tuple(stretches), fitting, n.size) if fitting else None


def _counts_and_lengths(rows: Iterable[Row]) -> tuple[Int64Array, Int64Array]:
    """Return numbers of ids and tokens; explicit weights count as full blocks and the rest of one."""
    pairs = []
    for row in rows:
        count = row.ids.values.size if isinstance(row.ids, Ids) else len(row.ids or ())
        if row.input_length is None or (count == 0 and row.input_length == 0) or row.block_tokens is not None:
            continue
        pairs.append((count, min(row.input_length, _LARGEST)))
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _below(length: Int64Array, n: Int64Array) -> Int64Array:
    """Return the largest size of which n blocks are less than ``length``."""
    return np.where(n > 0, -(-length // np.maximum(n, 1)) - 1, _LARGEST)


def _at_most(length: Int64Array, n: Int64Array) -> Int64Array:
    """Return the largest size of which n blocks are at most ``length``."""
    return np.where(n > 0, length // np.maximum(n, 1), _LARGEST)


def _most_common(least: Int64Array, most: Int64Array, says: BoolArray) -> tuple[tuple[int, int], int]:
    """Return the first stretch of sizes that lies within most of the bounds, and within how many."""
    least = np.maximum(least, 1)
    kept = says & (least <= most)
    if not kept.any():
        return (1, _LARGEST), 0
    points = np.concatenate([least[kept], most[kept] + 1])
    steps = np.repeat(np.array([1, -1]), int(kept.sum()))
    sizes, place = np.unique(points, return_inverse=True)
    within = np.cumsum(np.bincount(place, weights=steps).astype(np.int64))
    best = int(np.argmax(within))
    return (int(sizes[best]), int(sizes[best + 1]) - 1), int(within[best])


@dataclass(frozen=True)
class InferredSize:
    """A block size that the log does not declare, and why it is taken."""

    size: int
    reason: str


def infer_block_size(rows: Sequence[Row], usual: int | None) -> InferredSize | None:
    """Return the block size of a log that declares none, or None where nothing tells.

    Parameters
    ----------
    rows
        The first requests.
    usual
        Of published traces of this kind.
    """
    fitting = fitting_sizes(rows)
    as_published = "as published traces of this kind have"
    if fitting is None:
        return (
            None if usual is None else InferredSize(usual, f"{as_published}; --block-size says it otherwise")
        )
    size = fitting.choice(usual) if fitting.is_sure else None
    if size is None:
        return None
    if fitting.is_one:
        return InferredSize(size, "as ids and lengths of {} show")
    why = as_published if size == usual else "the only power of two"
    return InferredSize(size, f"{why} among the {fitting} that ids and lengths of {{}} allow")


def check_block_size(rows: Sequence[Row], block_size: int, usual: int | None) -> None:
    """Refuse a size that every request contradicts.

    Raises
    ------
    UsageError
        With the size that fits; where none does, each request is counted as odd later.
    """
    for some in (rows[:_FIRST_REQUESTS], rows):
        counts, lengths = _counts_and_lengths(some)
        if np.any((counts == lengths // block_size) | (counts == -(-lengths // block_size))):
            return
    fitting = fitting_sizes(rows)
    size = None if fitting is None else fitting.choice(usual)
    if fitting is None or size is None or not fitting.is_sure or fitting.requests < _MIN_REFUSED:
        return
    raise UsageError(
        f"--block-size {block_size} contradicts ids and lengths of all of the first {fitting.requests:,} "
        f"requests: --block-size {size} fits"
    )

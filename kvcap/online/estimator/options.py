"""What an estimator is told."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from kvcap.errors import UsageError

if TYPE_CHECKING:
    from kvcap.blocks import PartialBlock

TouchOrder = Literal["tail-first", "head-first"]


@dataclass(frozen=True)
class EstimatorOptions:
    """What an estimator is told.

    Parameters
    ----------
    capacities_blocks
        Capacities of each pool whose hits are counted.
    max_capacity_blocks
        The bound: depths below it stay exact for ever. Twice as many blocks are remembered, so that what
        came back from just beyond the bound is told from what is new.
    block_size
        Tokens of a full block.
    block_bytes
        Bytes of a full block; None gives answers in blocks alone.
    target
        Share of its own ceiling that a request must reach, 0 < target <= 1.
    touch_order
        ``tail-first`` evicts leaves first; ``head-first`` is plain LRU front to back.
    partial_block
        Whether an incomplete last block counts; None drops it for token ids, keeps it for hash ids.
    window_requests
        How many of the latest requests the window holds at most.
    window_seconds
        How old they may be; None leaves age out of it.
    max_pools
        Pools that are told apart, each with a cache of its own.

    Raises
    ------
    UsageError
        If a number is out of its range, or a capacity above the bound.
    """

    capacities_blocks: tuple[int, ...]
    max_capacity_blocks: int
    block_size: int = 64
    block_bytes: int | None = None
    target: Fraction = Fraction(99, 100)
    touch_order: TouchOrder = "tail-first"
    partial_block: PartialBlock | None = None
    window_requests: int = 3000
    window_seconds: float | None = None
    max_pools: int = 64

    def __post_init__(self) -> None:
        for name in ("max_capacity_blocks", "block_size", "window_requests", "max_pools"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, expected 1 or more")
        for capacity in self.capacities_blocks:
            if not 0 <= capacity <= self.max_capacity_blocks:
                raise UsageError(
                    f"a capacity is {capacity} blocks, expected 0 to the bound of "
                    f"{self.max_capacity_blocks} blocks"
                )
        if not 0 < self.target <= 1:
            raise UsageError(f"target is {self.target}, expected above 0 to 1")
        if self.window_seconds is not None and not self.window_seconds > 0:
            raise UsageError(f"window_seconds is {self.window_seconds}, expected above 0")

    @property
    def remembered_depth(self) -> int:
        """Depth in blocks from which requests are forgotten."""
        return 2 * self.max_capacity_blocks

    def identity(self) -> dict[str, object]:
        """Return what must be the same for counts to go on, as JSON would have it."""
        return {
            "capacities_blocks": list(self.capacities_blocks),
            "max_capacity_blocks": self.max_capacity_blocks,
            "block_size": self.block_size,
            "target": str(self.target),
            "touch_order": self.touch_order,
            "partial_block": self.partial_block,
        }

    @property
    def tail_first(self) -> bool:
        """Whether blocks are touched last to first."""
        return self.touch_order == "tail-first"

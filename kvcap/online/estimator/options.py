"""What an estimator is told."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kvcap.blocks.options import DEFAULT_TOKEN_BLOCK_SIZE, DEFAULT_TOUCH_ORDER, BlockOptions, TouchOrder
from kvcap.errors import UsageError
from kvcap.options import DEFAULT_TARGET

DEFAULT_BLOCKS: Final = BlockOptions(DEFAULT_TOKEN_BLOCK_SIZE)


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
    blocks
        What a block is: its size, and whether an incomplete last one counts.
    block_bytes
        Bytes of a full block; None gives answers in blocks alone.
    target
        Share of its own ceiling that a request must reach, 0 < target <= 1.
    touch_order
        ``tail-first`` evicts leaves first; ``head-first`` is plain LRU front to back.
    window_requests
        How many of the latest requests the window holds at most.
    window_seconds
        How old they may be; None leaves age out of it.
    max_pools
        Pools that are told apart, each with a cache of its own.
    namespace
        What makes the namespace of a request, for the record: whoever feeds the estimator names it.

    Raises
    ------
    UsageError
        If a number is out of its range, a capacity above the bound, or blocks are to become others.
    """

    capacities_blocks: tuple[int, ...]
    max_capacity_blocks: int
    blocks: BlockOptions = DEFAULT_BLOCKS
    block_bytes: int | None = None
    target: Fraction = DEFAULT_TARGET
    touch_order: TouchOrder = DEFAULT_TOUCH_ORDER
    window_requests: int = 3000
    window_seconds: float | None = None
    max_pools: int = 64
    namespace: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("max_capacity_blocks", "window_requests", "max_pools"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if self.block_size < 1:
            raise UsageError(f"block_size is {self.block_size}, expected 1 or more")
        if self.blocks != BlockOptions(self.block_size, partial_block=self.blocks.partial_block):
            raise UsageError(
                "the estimator takes blocks as they come, expected a size and partial_block alone"
            )
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
    def block_size(self) -> int:
        """Tokens of a full block."""
        return self.blocks.block_size or self.blocks.token_block_size

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
            "partial_block": self.blocks.partial_block,
            "namespace": None if self.namespace is None else list(self.namespace),
        }

    @property
    def tail_first(self) -> bool:
        """Whether blocks are touched last to first."""
        return self.touch_order == "tail-first"

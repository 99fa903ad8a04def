"""Capacities as the user wrote them, in blocks of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kvcap.engines.rules import DEFAULT_CAPACITIES
from kvcap.errors import UsageError
from kvcap.units import Capacity, format_size, parse_capacity

if TYPE_CHECKING:
    from kvcap.queries.run_info import HybridInfo

POWERS_OF_TWO: Final = "pow2"
"""Stands for 1 GiB, 2 GiB, ... 16 TiB."""

_POWERS_OF_TWO_GIB: Final = tuple(1 << power for power in range(15))
_GRID_ROWS: Final = 12


class HasBlocks(Protocol):
    """What capacities are resolved with: a run, or what stands for one."""

    @property
    def block_size(self) -> int:
        """Tokens of a full block."""

    @property
    def block_bytes(self) -> int | None:
        """Bytes of a full block; None when unknown."""

    @property
    def distinct_blocks(self) -> int:
        """How many different blocks there are."""

    @property
    def bound_blocks(self) -> int | None:
        """Capacity beyond which nothing is known; None without a bound."""

    @property
    def hybrid(self) -> HybridInfo | None:
        """The pool of an engine, where that is simulated."""


@dataclass(frozen=True)
class ResolvedCapacity:
    """One capacity of an answer: what to call it, whole blocks, and bytes where they are known.

    ``pool_blocks`` are those of the engine's own pool that hold data, where that is simulated.
    """

    label: str
    blocks: int
    size_bytes: int | None
    pool_blocks: int | None = None


def resolve_capacities(text: str | None, run: HasBlocks) -> tuple[ResolvedCapacity, ...]:
    """Return the capacities of a comma list, in the order given, without repeats.

    Parameters
    ----------
    text
        Such as ``640GiB,2TiB``, ``5000blocks``, ``2.5Mtokens`` or ``pow2``; None takes
        ``DEFAULT_CAPACITIES``, or for a run without bytes per token a power-of-two grid in blocks that
        ends above its distinct blocks.
    run
        The run whose blocks are meant.

    Raises
    ------
    UsageError
        If a size does not parse, is in bytes for a run that does not know its bytes per token, or is above
        the bound of the run.
    """
    if text is None and run.block_bytes is None:
        return _within(_block_grid(run.distinct_blocks), run)
    if text == POWERS_OF_TWO:
        text = ",".join(f"{size}GiB" for size in _POWERS_OF_TWO_GIB)
    parts = [part for part in (text or DEFAULT_CAPACITIES).split(",") if part.strip()]
    if not parts:
        raise UsageError("--capacities is empty, expected sizes such as 640GiB,2TiB")
    resolved = tuple({part.strip(): _resolve(part, run) for part in parts}.values())
    within = _within(resolved, run)
    if text is not None and len(within) < len(resolved):
        above = next(capacity for capacity in resolved if capacity not in within)
        require_within_bound(run, above.blocks, f"--capacities {above.label}")
    return within


def largest_capacity(run: HasBlocks) -> ResolvedCapacity:
    """Return unlimited storage, or what a run is bounded to where something lies beyond that."""
    bound = run.bound_blocks
    if bound is None:
        return ResolvedCapacity("unlimited", run.distinct_blocks, None)
    if run.block_bytes is None:
        return ResolvedCapacity(f"{bound:,} blocks", bound, None)
    return ResolvedCapacity(format_size(bound * run.block_bytes), bound, bound * run.block_bytes)


def require_within_bound(run: HasBlocks, blocks: int, what: str) -> None:
    """Refuse a capacity beyond which a bounded run knows nothing.

    Raises
    ------
    UsageError
        If it is above the bound; ``what`` names it in the message.
    """
    if run.bound_blocks is not None and blocks > run.bound_blocks:
        raise UsageError(
            f"{what} is above the --max-capacity of this run, {largest_capacity(run).label}, "
            "beyond which nothing is known"
        )


def _within(capacities: tuple[ResolvedCapacity, ...], run: HasBlocks) -> tuple[ResolvedCapacity, ...]:
    bound = run.bound_blocks
    return tuple(capacity for capacity in capacities if bound is None or capacity.blocks <= bound)


def _resolve(text: str, run: HasBlocks) -> ResolvedCapacity:
    capacity = parse_capacity(text, "--capacities")
    if run.hybrid is not None:
        return _of_a_pool(capacity, run, run.hybrid)
    blocks = in_blocks(capacity, run)
    if capacity.unit == "bytes":
        return ResolvedCapacity(capacity_label(capacity), blocks, int(capacity.amount))
    size_bytes = None if run.block_bytes is None else blocks * run.block_bytes
    return ResolvedCapacity(capacity_label(capacity), blocks, size_bytes)


def _of_a_pool(capacity: Capacity, run: HasBlocks, hybrid: HybridInfo) -> ResolvedCapacity:
    """Return a capacity of the engine's pool, whose blocks are meant, and its bytes in blocks of a run."""
    if capacity.unit == "blocks":
        size_bytes = hybrid.size_bytes(int(capacity.amount))
    elif capacity.unit == "bytes":
        size_bytes = int(capacity.amount)
    else:
        size_bytes = in_blocks(capacity, run) * (run.block_bytes or 0)
    blocks = size_bytes // (run.block_bytes or 1)
    return ResolvedCapacity(capacity_label(capacity), blocks, size_bytes, hybrid.usable_blocks(size_bytes))


def capacity_label(capacity: Capacity) -> str:
    """Return what to call a capacity, in the unit that it was given in."""
    if capacity.unit == "bytes":
        return format_size(int(capacity.amount))
    return f"{int(capacity.amount):,} {capacity.unit}"


def in_blocks(capacity: Capacity, run: HasBlocks) -> int:
    """Return the whole blocks of a run that a capacity holds.

    Raises
    ------
    UsageError
        If it is in bytes and the run does not know its bytes per token.
    """
    return capacity.in_blocks("a capacity", run.block_size, run.block_bytes)


def _block_grid(distinct_blocks: int) -> tuple[ResolvedCapacity, ...]:
    top = max(1, distinct_blocks - 1).bit_length()
    powers = range(max(0, top - _GRID_ROWS + 1), top + 1)
    return tuple(ResolvedCapacity(f"{1 << power:,} blocks", 1 << power, None) for power in powers)

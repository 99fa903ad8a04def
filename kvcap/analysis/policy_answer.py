"""What policies make of each capacity that was simulated, and what that says beside each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kvcap.engines import POLICIES
from kvcap.queries import resolve_capacities

if TYPE_CHECKING:
    from kvcap.queries import Results


@dataclass(frozen=True)
class PolicyRow:
    """Hits of one policy at one capacity, under the rules of the run; rates are None where nothing was asked.

    Attributes
    ----------
    ideal_prefill_speedup
        Over computing every prompt token, at most 1000.
    filled
        Whether the warm-up requests, or without a warm-up all of them, fill the capacity.
    dropped_requests
        Measured requests that were left out because they are larger than the cache.
    unreserved_hit_blocks, unreserved_hit_tokens, unreserved_token_hit_rate
        The bound with nothing reserved; the same where the rules reserve nothing.
    """

    policy: str
    label: str
    capacity_blocks: int
    capacity_bytes: int | None
    hit_blocks: int
    hit_tokens: int
    block_hit_rate: float | None
    token_hit_rate: float | None
    ideal_prefill_speedup: float | None
    filled: bool
    dropped_requests: int
    unreserved_hit_blocks: int
    unreserved_hit_tokens: int
    unreserved_token_hit_rate: float | None


@dataclass(frozen=True)
class Headroom:
    """How far LRU stays below the optimal policy at one capacity, in points of the token hit rate."""

    label: str
    capacity_blocks: int
    points: float


@dataclass(frozen=True)
class FifoFall:
    """A larger capacity at which FIFO hits less than at a smaller one."""

    smaller: str
    larger: str
    lost_hit_tokens: int


def policy_rows(results: Results, *, omit_underfilled: bool) -> dict[str | None, tuple[PolicyRow, ...]]:
    """Return the rows of every pool, policy by policy, each in the order of the capacities."""
    run = results.run
    if not run.rules.policies:
        return {}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in results.query("policy_hit_rates").to_pylist():
        found[row["pool"], row["policy"], row["capacity_blocks"], row["reserved_blocks"]] = row
    capacities = resolve_capacities(run.rules.capacities, run)
    rows: dict[str | None, list[PolicyRow]] = defaultdict(list)
    for pool in dict.fromkeys(key[0] for key in found):
        for policy in run.rules.policies:
            for capacity in capacities:
                blocks = capacity.pool_blocks if POLICIES[policy].is_hybrid else capacity.blocks
                row = found[pool, policy, blocks, run.rules.reserve_blocks]
                bound = found[pool, policy, blocks, 0]
                if omit_underfilled and not row["filled"]:
                    continue
                values = {
                    name: value for name, value in row.items() if name not in ("pool", "reserved_blocks")
                }
                rows[pool].append(
                    PolicyRow(
                        **values,
                        label=capacity.label,
                        capacity_bytes=capacity.size_bytes,
                        unreserved_hit_blocks=bound["hit_blocks"],
                        unreserved_hit_tokens=bound["hit_tokens"],
                        unreserved_token_hit_rate=bound["token_hit_rate"],
                    )
                )
    return {pool: tuple(values) for pool, values in rows.items()}


def headroom(rows: tuple[PolicyRow, ...]) -> tuple[Headroom, ...]:
    """Return how far LRU stays below optimal, where both were simulated."""
    optimal = {row.label: row for row in rows if row.policy == "optimal"}
    return tuple(
        Headroom(row.label, row.capacity_blocks, 100 * (best.token_hit_rate - row.token_hit_rate))
        for row in rows
        if row.policy == "lru"
        and (best := optimal.get(row.label)) is not None
        and best.token_hit_rate is not None
        and row.token_hit_rate is not None
    )


def fifo_falls(rows: tuple[PolicyRow, ...]) -> tuple[FifoFall, ...]:
    """Return where FIFO hits less with more capacity (Belady's anomaly)."""
    fifo = sorted((row for row in rows if row.policy == "fifo"), key=lambda row: row.capacity_blocks)
    return tuple(
        FifoFall(smaller.label, larger.label, smaller.hit_tokens - larger.hit_tokens)
        for smaller, larger in pairwise(fifo)
        if larger.hit_tokens < smaller.hit_tokens
    )

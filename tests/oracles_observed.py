"""What a cache was seen to do, block by block and token by token. Imports nothing of kvcap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

CLASSES = (
    "never_seen",
    "partial_block",
    "last_token",
    "other_instance",
    "capacity_and_ttl",
    "capacity",
    "ttl",
    "restart",
    "source_running",
    "below_minimum",
    "expected",
)
HIT_BEYOND = 3
HIT_ACROSS = 20
INFINITY = 1 << 62


@dataclass(frozen=True)
class Asked:
    """One request: blocks by prefix, prompt tokens, times, the hit that was seen (None: unknown), its cache.

    ``capacity`` and ``epoch`` are the limits of that cache when it came: blocks, and restarts so far.
    """

    path: Sequence[int]
    tokens: int
    arrival: int
    ready: int
    observed: int | None
    cache: int
    capacity: int = INFINITY
    epoch: int = 0


def classified(
    requests: Sequence[Asked], block_size: int, lifetime: int = INFINITY, step: int = 0, least: int = 0
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Hit and missed tokens by class of every request, from stacks that are lists and one class a token."""
    stacks: dict[int, list[int]] = defaultdict(list)
    users: dict[tuple[int, int], Asked] = {}
    ready_at: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    result = []
    for r in requests:
        stack = stacks[r.cache]
        limit = max(0, r.tokens - 1) // block_size
        kinds = [_kind(r, i, limit, stack, users, ready_at, seen, lifetime) for i in range(len(r.path))]
        leading = next((i for i, kind in enumerate(kinds) if kind != "expected"), len(kinds))
        hit_tokens = leading * block_size if r.observed is None else r.observed
        result.append(_cells(r, kinds, block_size, step, least))
        for i, block in enumerate(r.path):
            at = (r.cache, block)
            if (i + 1) * block_size <= hit_tokens:
                ready_at[at] = -1
            elif kinds[i] == "source_running" or (
                i < limit and block in stack and ready_at[at] > r.arrival and users[at].epoch == r.epoch
            ):
                ready_at[at] = min(ready_at[at], r.ready)
            else:
                ready_at[at] = r.ready
            users[at] = r
        stacks[r.cache] = [*r.path, *(block for block in stack if block not in r.path)]
        seen.update(r.path)
    return result


def _kind(r, i, limit, stack, users, ready_at, seen, lifetime):
    block = r.path[i]
    if block not in seen:
        return "never_seen"
    if i >= limit:
        return "last_token"
    if block not in stack:
        return "other_instance"
    user = users[r.cache, block]
    deep = stack.index(block) >= r.capacity
    old = r.arrival - user.arrival > lifetime
    if deep or old:
        return "capacity_and_ttl" if deep and old else "capacity" if deep else "ttl"
    if user.epoch != r.epoch:
        return "restart"
    return "source_running" if ready_at[r.cache, block] > r.arrival else "expected"


def _cells(r, kinds, block_size, step, least):
    hit, missed = dict.fromkeys(CLASSES, 0), dict.fromkeys(CLASSES, 0)
    if r.observed is None:
        return hit, missed
    of_token = [
        kinds[t // block_size] if t // block_size < len(kinds) else "partial_block" for t in range(r.tokens)
    ]
    for token, kind in enumerate(of_token):
        (hit if token < r.observed else missed)[kind] += 1
    if r.observed < r.tokens and of_token[r.observed] == "source_running":
        missed["source_running"] += missed["expected"]
        missed["expected"] = 0
    if step or least:
        predicted = of_token.count("expected")
        reported = predicted - predicted % step if step else predicted
        reported = 0 if reported < least else reported
        cut = max(0, min(missed["expected"], predicted - max(r.observed, reported)))
        missed["expected"] -= cut
        missed["below_minimum"] += cut
    return hit, missed


@dataclass(frozen=True)
class Piece:
    """Blocks ``[0, hit)`` of a run were hit, ``[missed_from, blocks)`` were missed."""

    depth: int
    age: int
    blocks: int
    hit: int
    missed_from: int
    weight: int = 1


def wrong_tokens(pieces: Sequence[Piece], capacity: int, lifetime: int) -> int:
    """Tokens that limits get wrong, block by block."""
    wrong = 0
    for piece in pieces:
        for i in range(piece.blocks):
            kept = piece.depth + i < capacity and piece.age <= lifetime
            if i < piece.hit and not kept:
                wrong += HIT_BEYOND * piece.weight
            elif i >= piece.missed_from and kept:
                wrong += piece.weight
    return wrong


def best_capacity(pieces: Sequence[Piece], lifetime: int) -> tuple[int, int, int | None]:
    """Least error, and the smallest and largest capacity that has it (None: all above have it)."""
    top = max((piece.depth + piece.blocks for piece in pieces), default=0)
    errors = [wrong_tokens(pieces, capacity, lifetime) for capacity in range(top + 2)]
    best = [capacity for capacity, error in enumerate(errors) if error == min(errors)]
    return min(errors), best[0], None if best[-1] > top else best[-1]


def least_joint_error(pieces_by_group: Sequence[Sequence[Piece]]) -> int:
    """Least error of one lifetime and a capacity for each group, by trying all."""
    ages = sorted({piece.age for pieces in pieces_by_group for piece in pieces})
    lifetimes = [ages[0] - 1, *ages] if ages else [0]
    return min(
        sum(best_capacity(pieces, lifetime)[0] for pieces in pieces_by_group) for lifetime in lifetimes
    )


def best_restart(spans: Sequence[tuple[int, int, int, int]], n_requests: int) -> int:
    """Most that one restart explains: spans are (source, request, missed tokens, hit tokens)."""
    return max(
        (
            sum(
                missed - HIT_ACROSS * hit for source, request, missed, hit in spans if source <= gap < request
            )
            for gap in range(n_requests - 1)
        ),
        default=0,
    )

"""What the named queries mean, simulated directly. Imports nothing of kvcap."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

ALL = "all together"
Together = str | None


class Logged(NamedTuple):
    """One request: chained blocks with their tokens, and where it came from."""

    path: list[int]
    weights: list[int]
    input_tokens: int
    timestamp_us: int | None
    pool: str | None
    session_id: str | None
    model: str | None
    measured: bool


class Cache:
    """An LRU cache that forgets what was not used for longer than a TTL."""

    def __init__(self, capacity: int | None = None, ttl_us: int | None = None) -> None:
        self.capacity = capacity
        self.ttl_us = ttl_us
        self.used: OrderedDict[int, int] = OrderedDict()

    def expire(self, now_us: int) -> None:
        while self.ttl_us is not None and self.used:
            oldest = next(iter(self.used))
            if now_us - self.used[oldest] <= self.ttl_us:
                return
            del self.used[oldest]

    def touch(self, block: int, now_us: int) -> None:
        self.used[block] = now_us
        self.used.move_to_end(block)
        if self.capacity is not None and len(self.used) > self.capacity:
            self.used.popitem(last=False)


def replay(
    log: Sequence[Logged], order: str, make: Callable[[], object], see: Callable, touch: Callable
) -> None:
    """Show every block of every request to the cache of its pool: looked up, then touched.

    ``see(cache, request number, position)`` and ``touch(cache, request number, block)`` are called in the
    order that the touch order says.
    """
    caches: dict[str | None, object] = {}
    for r, request in enumerate(log):
        cache = caches.setdefault(request.pool, make())
        if order == "tail-first":
            for i in range(len(request.path)):
                see(cache, r, i)
            for block in reversed(request.path):
                touch(cache, r, block)
        else:
            for i, block in enumerate(request.path):
                see(cache, r, i)
                touch(cache, r, block)


def hit_positions(
    log: Sequence[Logged], order: str, capacity: int | None = None, ttl_us: int | None = None
) -> list[set[int]]:
    """The positions that hit in each request, simulated with one cache per pool."""
    hits: list[set[int]] = [set() for _ in log]

    def see(cache: Cache, r: int, i: int) -> None:
        if ttl_us is not None:
            cache.expire(log[r].timestamp_us)
        if log[r].path[i] in cache.used:
            hits[r].add(i)

    def touch(cache: Cache, r: int, block: int) -> None:
        cache.touch(block, log[r].timestamp_us if ttl_us is not None else 0)

    replay(log, order, lambda: Cache(capacity, ttl_us), see, touch)
    return hits


def tokens_at(request: Logged, positions: set[int]) -> int:
    return sum(request.weights[i] for i in positions)


def last_users(log: Sequence[Logged]) -> list[list[int | None]]:
    """For each block of each request, the request that used it last, in the same pool."""
    users: dict[tuple[str | None, int], int] = {}
    result = []
    for r, request in enumerate(log):
        result.append([users.get((request.pool, block)) for block in request.path])
        for block in request.path:
            users[request.pool, block] = r
    return result


def pools_of(log: Sequence[Logged]) -> list[str | None]:
    """All together, then each pool that has measured requests, as queries list them."""
    return [None, *sorted({r.pool for r in log if r.measured and r.pool is not None})]


def in_pool(log: Sequence[Logged], pool: str | None) -> Iterator[tuple[int, Logged]]:
    """The measured requests of a pool, or of all together, with their numbers."""
    for r, request in enumerate(log):
        if request.measured and (pool is None or request.pool == pool):
            yield r, request


def summed_hits(log: Sequence[Logged], hits: list[set[int]], pool: str | None = None) -> tuple[int, int]:
    """Hit blocks and hit tokens of the measured requests of a pool."""
    chosen = list(in_pool(log, pool))
    return sum(len(hits[r]) for r, _ in chosen), sum(tokens_at(request, hits[r]) for r, request in chosen)


def nearest_rank(values: Sequence[int], percent: Fraction | int) -> int:
    return sorted(values)[max(1, ceil(Fraction(percent) / 100 * len(values))) - 1]


def tier_hits(
    log: Sequence[Logged], order: str, capacities: Sequence[int], *, exclusive: bool
) -> list[dict[int, int]]:
    """For each request, the tier (from 0) that serves each hit position.

    Exclusive tiers push what they evict down to the top of the next one; inclusive ones all see every
    touch. A block is served by the fastest tier that has it.
    """
    served: list[dict[int, int]] = [{} for _ in log]

    def make() -> list[OrderedDict[int, None]]:
        return [OrderedDict() for _ in capacities]

    def see(tiers: list[OrderedDict[int, None]], r: int, i: int) -> None:
        for t, tier in enumerate(tiers):
            if log[r].path[i] in tier:
                served[r][i] = t
                return

    def touch(tiers: list[OrderedDict[int, None]], _: int, block: int) -> None:
        if exclusive:
            for tier in tiers:
                tier.pop(block, None)
        moving: int | None = block
        for tier, capacity in zip(tiers, capacities, strict=True):
            if moving is None:
                return
            tier[moving] = None
            tier.move_to_end(moving)
            evicted = tier.popitem(last=False)[0] if len(tier) > capacity else None
            moving = evicted if exclusive else block

    replay(log, order, make, see, touch)
    return served


def counts_per_window(times_us: Sequence[int], counts: Sequence[int], window_us: int) -> list[int]:
    """Sums over all windows from the first time to the last, idle ones included."""
    sums: Counter[int] = Counter()
    for time_us, count in zip(times_us, counts, strict=True):
        sums[time_us // window_us] += count
    return [sums[window] for window in range(min(sums), max(sums) + 1)] if sums else []


def miss_reasons(
    log: Sequence[Logged], order: str, capacity: int, ttl_us: int | None, pool: str | None
) -> dict[str, tuple[int, int]]:
    """Missed blocks and tokens by reason, from caches that have one of the limits each."""
    within = hit_positions(log, order, capacity)
    live = hit_positions(log, order, None, ttl_us)
    known = hit_positions(log, order)
    blocks: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for r, request in in_pool(log, pool):
        for i, weight in enumerate(request.weights):
            if i not in known[r]:
                reason = "first seen"
            elif i in within[r] and i in live[r]:
                continue
            elif i in live[r]:
                reason = "capacity"
            else:
                reason = "ttl" if i in within[r] else "capacity and ttl"
            blocks[reason] += 1
            tokens[reason] += weight
        rest = request.input_tokens - sum(request.weights)
        tokens["partial block" if rest > 0 else "beyond input_length"] += rest
    names = ("first seen", "capacity", "ttl", "capacity and ttl", "partial block", "beyond input_length")
    return {name: (blocks[name], tokens[name]) for name in names}


def held_blocks(
    log: Sequence[Logged], order: str, capacity: int, moments: Sequence[int]
) -> Counter[str | None]:
    """Blocks in the caches that each session used last, summed over the moments (after those requests)."""
    caches: dict[str | None, Cache] = defaultdict(lambda: Cache(capacity))
    users: dict[tuple[str | None, int], str | None] = {}
    held: Counter[str | None] = Counter()
    for r, request in enumerate(log):
        for block in reversed(request.path) if order == "tail-first" else request.path:
            caches[request.pool].touch(block, 0)
            users[request.pool, block] = request.session_id
        if r in moments:
            held.update(users[pool, block] for pool, cache in caches.items() for block in cache.used)
    return held


def segments(log: Sequence[Logged]) -> dict[tuple[str | None, int, int], tuple[int, int]]:
    """Shared prefixes cut where known prefixes ended.

    Keyed by pool, the request that brought the segment's last block, and where it ends; the values are its
    blocks, and the measured requests that found it.
    """
    first: dict[tuple[str | None, int], int] = {}
    reuses: Counter[tuple[str | None, int]] = Counter()
    ends: dict[tuple[str | None, int], list[int]] = {}
    for r, request in enumerate(log):
        known = [block for block in request.path if (request.pool, block) in first]
        for block in known:
            reuses[request.pool, block] += request.measured
        if known:
            ends[request.pool, known[-1]] = known
        for block in request.path:
            first.setdefault((request.pool, block), r)
    found = {}
    for (pool, block), prefix in ends.items():
        inner = [i for i, other in enumerate(prefix[:-1]) if (pool, other) in ends]
        start = inner[-1] + 1 if inner else 0
        found[pool, first[pool, block], len(prefix)] = (len(prefix) - start, reuses[pool, block])
    return found


def coarse(log: Sequence[Logged], factor: int) -> list[Logged]:
    """The log in blocks of ``factor`` blocks each; an incomplete last one is no block."""
    return [
        request._replace(
            path=request.path[factor - 1 :: factor],
            weights=[
                sum(request.weights[i : i + factor])
                for i in range(0, len(request.weights) - factor + 1, factor)
            ],
        )
        for request in log
    ]

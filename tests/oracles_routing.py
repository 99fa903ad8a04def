"""Routing as plainly as Python can put it. Imports nothing of kvcap."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

Request = Sequence[int]


class LruCache:
    """One instance's cache of chained blocks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def touch(self, block: int) -> None:
        self.blocks[block] = None
        self.blocks.move_to_end(block)
        if len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)

    def serve(self, request: Request, order: str) -> int:
        """Look a request up, leave it in the cache, and return its leading hits."""
        leading, unbroken = 0, True
        if order == "tail-first":
            for block in request:
                unbroken = unbroken and block in self.blocks
                leading += unbroken
            for block in reversed(request):
                self.touch(block)
        else:
            for block in request:
                unbroken = unbroken and block in self.blocks
                leading += unbroken
                self.touch(block)
        return leading

    def would_hit(self, request: Request, order: str) -> int:
        """Return the leading hits that a request would have."""
        trial = LruCache(self.capacity)
        trial.blocks = OrderedDict(self.blocks)
        return trial.serve(request, order)


def loads_before(
    request: int,
    instances: Sequence[int],
    weights: Sequence[int],
    times: Sequence[int] | None,
    window: int,
    n: int,
) -> list[int]:
    """What each instance was dealt in the window before a request; no times: since the beginning."""
    loads = [0] * n
    for earlier in range(request):
        if times is None or times[earlier] > times[request] - window:
            loads[instances[earlier]] += weights[earlier]
    return loads


def least_loaded(weights: Sequence[int], times: Sequence[int] | None, window: int, n: int) -> list[int]:
    instances: list[int] = []
    for request in range(len(weights)):
        loads = loads_before(request, instances, weights, times, window, n)
        instances.append(loads.index(min(loads)))
    return instances


def longest_prefix(
    requests: Sequence[Request],
    weights: Sequence[int],
    times: Sequence[int] | None,
    window: int,
    n: int,
    capacity: int,
    max_load_percent: int,
    order: str,
) -> tuple[list[int], list[int]]:
    """Return the instance and the leading hits of every chained request."""
    caches = [LruCache(capacity) for _ in range(n)]
    instances: list[int] = []
    hits: list[int] = []
    for r, request in enumerate(requests):
        loads = loads_before(r, instances, weights, times, window, n)
        allowed = [i for i in range(n) if 100 * n * loads[i] <= max_load_percent * sum(loads)]
        best = min(allowed, key=lambda i: (-caches[i].would_hit(request, order), loads[i], i))
        instances.append(best)
        hits.append(caches[best].serve(request, order))
    return instances, hits


def held(requests: Sequence[Request], instances: Sequence[int], capacity: int, order: str) -> tuple[int, int]:
    """Blocks in all caches after the last request, and how many of them differ."""
    caches = {instance: LruCache(capacity) for instance in instances}
    for request, instance in zip(requests, instances, strict=True):
        caches[instance].serve(request, order)
    return (
        sum(len(cache.blocks) for cache in caches.values()),
        len({block for cache in caches.values() for block in cache.blocks}),
    )

"""A fleet of prefix caches and its traffic, simulated plainly; what a log of it says, and what is true.

Every instance is a real LRU (an ordered dict, touched last block first) with a capacity, a lifetime since the
last use, or both; it restarts, and its blocks can be hit only once they are computed. Nothing here knows of
stack distances. Imports nothing of kvcap.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

EPOCH = 1_764_500_000.0


@dataclass
class Request:
    """One prompt of full ``path`` blocks and a tail; the last four fields are what the fleet made of it."""

    arrival: float
    path: list[int]
    tokens: int
    generated: int
    session: str
    instance: int = 0
    cached: int = 0
    ttft: float = 0.0
    duration: float = 0.0


@dataclass(frozen=True)
class Fleet:
    """Instances with one capacity each (None: unlimited), a lifetime, a router and restarts."""

    capacities: Sequence[int | None]
    lifetime: float | None = None
    router: str = "round-robin"
    strays: float = 0.0
    restarts: Sequence[tuple[float, int]] = ()
    prefill_tokens_per_second: float = 8000.0
    decode_tokens_per_second: float = 60.0
    step: int = 1
    least: int = 0
    seed: int = 0


class Instance:
    """One cache, block to time of last use, the least recent first."""

    def __init__(self, capacity: int | None, lifetime: float | None) -> None:
        self.capacity, self.lifetime = capacity, lifetime
        self.used: OrderedDict[int, float] = OrderedDict()
        self.ready: dict[int, float] = {}

    def restart(self) -> None:
        self.used.clear()
        self.ready.clear()

    def expire(self, now: float) -> None:
        while self.used and self.lifetime is not None:
            block, last = next(iter(self.used.items()))
            if now - last <= self.lifetime:
                break
            del self.used[block]

    def leading(self, path: Sequence[int], now: float | None = None) -> int:
        """Leading blocks that are there, and (with a time) computed."""
        for i, block in enumerate(path):
            if block not in self.used or (now is not None and self.ready[block] > now):
                return i
        return len(path)

    def touch(self, path: Sequence[int], hits: int, now: float, ready: float) -> None:
        for block in path[hits:]:
            self.ready[block] = min(ready, self.ready[block]) if block in self.used else ready
        for block in reversed(path):
            self.used[block] = now
            self.used.move_to_end(block)
        while self.capacity is not None and len(self.used) > self.capacity:
            self.used.popitem(last=False)


def serve(requests: Sequence[Request], fleet: Fleet, block_size: int) -> None:
    """Let a fleet answer requests in order of arrival."""
    draws = random.Random(fleet.seed)
    instances = [Instance(capacity, fleet.lifetime) for capacity in fleet.capacities]
    homes: dict[str, int] = {}
    restarts = sorted(fleet.restarts)
    for number, r in enumerate(requests):
        while restarts and restarts[0][0] <= r.arrival:
            instances[restarts.pop(0)[1]].restart()
        r.instance = _routed(r, number, fleet, instances, homes, draws)
        instance = instances[r.instance]
        instance.expire(r.arrival)
        hits = instance.leading(r.path[: (r.tokens - 1) // block_size], r.arrival)
        r.cached = hits * block_size // fleet.step * fleet.step
        if r.cached < fleet.least:
            r.cached = 0
        r.ttft = 0.02 + (r.tokens - hits * block_size) / fleet.prefill_tokens_per_second
        r.duration = r.ttft + r.generated / fleet.decode_tokens_per_second
        instance.touch(r.path, hits, r.arrival, r.arrival + r.ttft)


def _routed(r, number, fleet, instances, homes, draws):
    n = len(instances)
    if fleet.router == "round-robin":
        return number % n
    if fleet.router == "sticky":
        home = homes.setdefault(r.session, draws.randrange(n))
        return draws.randrange(n) if draws.random() < fleet.strays else home
    if fleet.router == "prefix":
        found = [(instance.leading(r.path), draws.random(), i) for i, instance in enumerate(instances)]
        best = max(found)
        return best[2] if 2 * best[0] > len(r.path) else draws.randrange(n)
    return draws.randrange(n)


def traffic(
    sessions: int,
    seconds: float,
    block_size: int,
    seed: int,
    *,
    turns: int = 12,
    think_seconds: float = 45.0,
    systems: int = 3,
) -> list[Request]:
    """Chats with shared system prompts that grow turn by turn, after think times that vary widely."""
    draws = random.Random(seed)
    numbers: dict[tuple[int, object], int] = {}
    system_tokens = [draws.randint(800, 4000) for _ in range(systems)]
    requests = []
    for session in range(sessions):
        system = min(int(draws.expovariate(1.0)), systems - 1)
        arrival = draws.uniform(0, seconds)
        tokens = system_tokens[system] + draws.randint(50, 2500)
        path: list[int] = []
        for _ in range(1 + min(int(draws.expovariate(1 / turns)), 6 * turns)):
            while len(path) < tokens // block_size:
                shared = (len(path) + 1) * block_size <= system_tokens[system]
                content = ("system", system) if shared else ("session", session)
                path.append(numbers.setdefault((path[-1] if path else -1, content), len(numbers)))
            generated = draws.randint(30, 700)
            requests.append(Request(arrival, list(path), tokens, generated, f"s{session}"))
            tokens += generated + draws.randint(100, 1800)
            arrival += generated / 60 + think_seconds * draws.lognormvariate(0, 1.3)
            if arrival > seconds * 1.05:
                break
    return sorted(requests, key=lambda r: r.arrival)


@dataclass(frozen=True)
class Logging:
    """How faithfully a log tells of it: shares of wrong and of missing values, share cut off at its front."""

    noise: float = 0.0
    missing: float = 0.0
    cut: float = 0.0
    seed: int = 1
    fields: Sequence[str] = field(default=("instance", "ttft_us", "duration_us"))


def logged(requests: Sequence[Request], block_size: int, logging: Logging) -> list[dict[str, object]]:
    """Rows of a trace."""
    draws = random.Random(logging.seed)
    start = requests[0].arrival + logging.cut * (requests[-1].arrival - requests[0].arrival)
    rows = []
    for r in requests:
        if r.arrival < start:
            continue
        observed: int | None = r.cached
        if draws.random() < logging.missing:
            observed = None
        elif draws.random() < logging.noise:
            observed = draws.randrange(0, r.tokens // block_size + 1) * block_size
        row = {
            "timestamp": round((EPOCH + r.arrival) * 1e6),
            "session_id": r.session,
            "instance": f"i{r.instance}",
            "ttft_us": round(r.ttft * 1e6),
            "duration_us": round(r.duration * 1e6),
            "input_length": r.tokens,
            "output_length": r.generated,
            "block_size": block_size,
            "hash_ids": r.path,
            "observed_cached_tokens": observed,
        }
        rows.append({k: v for k, v in row.items() if not k.endswith("_us") or k in logging.fields})
        if "instance" not in logging.fields:
            del rows[-1]["instance"]
    return rows

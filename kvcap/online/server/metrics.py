"""What Prometheus reads. Counters count since the process began; gauges are of the moment of the scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kvcap.kernels.observations import (
    BLOCKS,
    CEILING_BLOCKS,
    FIRST_CAPACITY,
    REQUIRED_BLOCKS,
    WITHIN_BOUND_BLOCKS,
)
from kvcap.online.estimator.snapshot import PERCENTILES
from kvcap.units import format_size

if TYPE_CHECKING:
    from kvcap.online.estimator import ObservedBatch, Snapshot
    from kvcap.online.server.options import ServeOptions

Status = Literal["observed", "refused", "overloaded", "dropped", "failed"]

_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_REQUIRED_BYTES: Final = tuple(float(1 << power) for power in range(28, 45))


class Metrics:
    """All metrics of one service, in a registry of their own.

    Parameters
    ----------
    options
        What the service is told; its capacities are labels.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.registry = CollectorRegistry()
        self._block_bytes = options.block_bytes
        labels = [(format_size(size), str(size)) for size in options.capacities_bytes]
        self._requests = self._counter("requests", "Requests by what became of them.", ["status"])
        for status in ("observed", "refused", "overloaded", "dropped", "failed"):
            self._requests.labels(status)
        self._dropped = self._counter("dropped", "Shadow requests dropped because the queue was full.")
        self._pending = self._gauge("pending_requests", "Bodies that wait for their answer.")
        self.tokenize_seconds = self._histogram("tokenize_seconds", "Time to tokenize one body.", _SECONDS)
        self.simulate_seconds = self._histogram("simulate_seconds", "Time to observe one batch.", _SECONDS)
        self.total_seconds = self._histogram("total_seconds", "Time from arrival to answer.", _SECONDS)
        self._blocks = self._counter("block_accesses", "Blocks looked up.")
        self._reusable = self._counter("reusable_block_accesses", "Blocks looked up that were remembered.")
        self._beyond = self._counter("beyond_bound_block_accesses", "Those of them deeper than the bound.")
        self._required = self._histogram(
            "required_capacity_bytes", "Capacity at which a request reaches its target.", _REQUIRED_BYTES
        )
        names = ["capacity", "capacity_bytes"]
        hits = self._counter("prefix_hit_blocks", "Leading blocks that a capacity would have held.", names)
        rate = self._gauge("prefix_hit_rate", "The same over blocks looked up, in the window.", names)
        self._hits = [hits.labels(*pair) for pair in labels]
        self._rates = [rate.labels(*pair) for pair in labels]
        self._ceiling = self._gauge("ceiling_hit_rate", "Hit rate with unlimited capacity, in the window.")
        self._quantiles = self._gauge(
            "window_required_capacity_bytes", "Nearest-rank quantiles of the window's requests.", ["quantile"]
        )
        self._window_requests = self._gauge("window_requests", "Requests in the window.")
        self._window_size = self._gauge("window_size_requests", "Requests that the window holds at most.")
        self._window_size.set(options.window_requests)
        self._tracked = self._gauge("tracked_blocks", "Distinct blocks remembered.")
        self._forgotten = self._gauge("forgotten_blocks", "Blocks forgotten because deeper than the bound.")
        self._memory = self._gauge("memory_bytes", "Bytes that the estimator holds.")

    def count(self, status: Status) -> None:
        """Count a body that was not observed."""
        self._requests.labels(status).inc()
        if status == "dropped":
            self._dropped.inc()

    def observed(self, batch: ObservedBatch) -> None:
        """Count observed requests."""
        sums = batch.rows.sum(axis=0).tolist()
        self._requests.labels("observed").inc(len(batch))
        self._blocks.inc(sums[BLOCKS])
        self._reusable.inc(sums[CEILING_BLOCKS])
        self._beyond.inc(sums[CEILING_BLOCKS] - sums[WITHIN_BOUND_BLOCKS])
        for capacity, hits in enumerate(self._hits):
            hits.inc(sums[FIRST_CAPACITY + capacity])
        values, counts = np.unique(batch.rows[:, REQUIRED_BLOCKS], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            for _ in range(count):
                self._required.observe(value * self._block_bytes)

    def render(self, snapshot: Snapshot, pending: int) -> bytes:
        """Return the text that Prometheus reads."""
        self._pending.set(pending)
        window = snapshot.window
        for gauge, row in zip(self._rates, window.capacities, strict=True):
            gauge.set(_rate(row.block_hit_rate))
        self._ceiling.set(_rate(window.ceiling_rate))
        for name, value in (snapshot.samples.required_bytes or {}).items():
            self._quantiles.labels(str(float(PERCENTILES[name]))).set(value)
        self._window_requests.set(window.requests)
        self._tracked.set(snapshot.tracked_blocks)
        self._forgotten.set(snapshot.forgotten_blocks)
        self._memory.set(snapshot.memory_bytes)
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"kvcap_{name}", text, labels or (), registry=self.registry)

    def _gauge(self, name: str, text: str, labels: list[str] | None = None) -> Gauge:
        return Gauge(f"kvcap_{name}", text, labels or (), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"kvcap_{name}", text, buckets=buckets, registry=self.registry)


def _rate(rate: float | None) -> float:
    return float("nan") if rate is None else rate

"""What Prometheus reads: counters since the process began, and what the estimator knows at the scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcap.kernels.observations import REQUIRED_BLOCKS
from kvcap.online.estimator.snapshot import PERCENTILES
from kvcap.units import format_size

if TYPE_CHECKING:
    from kvcap.online.estimator import ObservedBatch, Snapshot
    from kvcap.online.server.options import ServeOptions

Status = Literal["observed", "refused", "overloaded", "dropped", "failed"]

_STATUSES: Final[tuple[Status, ...]] = ("observed", "refused", "overloaded", "dropped", "failed")
_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_REQUIRED_BYTES: Final = np.array([1 << power for power in range(28, 45)], np.int64)


class Metrics:
    """All metrics of one service, in a registry of their own.

    Parameters
    ----------
    options
        What the service is told; its capacities are labels.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._registry = CollectorRegistry()
        self._block_bytes = options.block_bytes
        self._requests = Counter(
            "kvcap_requests", "Requests by what became of them.", ["status"], registry=self._registry
        )
        self._by_status = {status: self._requests.labels(status) for status in _STATUSES}
        self._dropped = Counter(
            "kvcap_dropped", "Shadows dropped because the queue was full.", registry=self._registry
        )
        self.future_timestamps = Counter(
            "kvcap_future_timestamps",
            "Requests whose time lay in the future and was replaced by that of their arrival.",
            registry=self._registry,
        )
        self.tokenize_seconds = self._histogram("tokenize", "Time to tokenize one body.")
        self.simulate_seconds = self._histogram("simulate", "Time to observe what was ready at once.")
        self.total_seconds = self._histogram("total", "Time from arrival to answer.")
        self._required_counts = np.zeros(_REQUIRED_BYTES.size + 1, np.int64)
        self._required_sum = 0
        self._estimates = _Estimates(options)
        self._registry.register(self._estimates)

    def count(self, status: Status) -> None:
        """Count a body that was not observed."""
        self._by_status[status].inc()
        if status == "dropped":
            self._dropped.inc()

    def observed(self, batch: ObservedBatch) -> None:
        """Count observed requests."""
        self._by_status["observed"].inc(len(batch))
        required = batch.rows[:, REQUIRED_BLOCKS] * self._block_bytes
        np.add.at(self._required_counts, np.searchsorted(_REQUIRED_BYTES, required), 1)
        self._required_sum += int(required.sum())

    def render(self, snapshot: Snapshot, pending: int) -> bytes:
        """Return the text that Prometheus reads."""
        self._estimates.moment = (snapshot, pending, self._required())
        return generate_latest(self._registry)

    def collect(self, snapshot: Snapshot, pending: int) -> Iterator[Metric]:
        """Yield the same for another registry."""
        self._estimates.moment = (snapshot, pending, self._required())
        yield from self._registry.collect()

    def _required(self) -> Metric:
        upper = [*(str(float(bound)) for bound in _REQUIRED_BYTES), "+Inf"]
        counts = np.cumsum(self._required_counts).tolist()
        return HistogramMetricFamily(
            "kvcap_required_capacity_bytes",
            "Capacity at which a request reaches its target.",
            buckets=list(zip(upper, counts, strict=True)),
            sum_value=self._required_sum,
        )

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"kvcap_{name}_seconds", text, buckets=_SECONDS, registry=self._registry)


class _Estimates(Collector):
    """What the estimator knew at a moment."""

    def __init__(self, options: ServeOptions) -> None:
        self._labels = [(format_size(size), str(size)) for size in options.capacities_bytes]
        self._window_size = options.window_requests
        self.moment: tuple[Snapshot, int, Metric] | None = None

    def collect(self) -> Iterator[Metric]:
        if self.moment is None:
            return
        snapshot, pending, required = self.moment
        totals, window = snapshot.totals, snapshot.window
        yield required
        yield _counter("block_accesses", "Blocks looked up.", totals.blocks)
        yield _counter(
            "reusable_block_accesses", "Those of them that were remembered.", totals.ceiling_blocks
        )
        yield _counter(
            "beyond_bound_block_accesses", "Those of them deeper than the bound.", totals.beyond_bound_blocks
        )
        yield _counter("forgotten_blocks", "Blocks forgotten as too deep.", snapshot.forgotten_blocks)
        names = ("capacity", "capacity_bytes")
        hits = CounterMetricFamily(
            "kvcap_prefix_hit_blocks", "Leading blocks that a capacity would have held.", labels=names
        )
        rates = GaugeMetricFamily(
            "kvcap_prefix_hit_rate", "The same over blocks looked up, in the window.", labels=names
        )
        for labels, total, recent in zip(self._labels, totals.capacities, window.capacities, strict=True):
            hits.add_metric(labels, total.hit_blocks)
            rates.add_metric(labels, _rate(recent.block_hit_rate))
        quantiles = GaugeMetricFamily(
            "kvcap_window_required_capacity_bytes",
            "Nearest-rank quantiles over the window's requests.",
            labels=("quantile",),
        )
        for name, value in (snapshot.samples.required_bytes or {}).items():
            quantiles.add_metric((str(float(PERCENTILES[name])),), value)
        yield from (hits, rates, quantiles)
        yield _gauge(
            "ceiling_hit_rate", "Hit rate of unlimited capacity, in the window.", _rate(window.ceiling_rate)
        )
        yield _gauge("window_requests", "Requests in the window.", window.requests)
        yield _gauge("window_size_requests", "Requests that the window holds at most.", self._window_size)
        yield _gauge("tracked_blocks", "Distinct blocks remembered.", snapshot.tracked_blocks)
        yield _gauge("memory_bytes", "Bytes that the estimator holds.", snapshot.memory_bytes)
        yield _gauge("pending_requests", "Bodies that wait for their answer.", pending)


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(f"kvcap_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"kvcap_{name}", text, value=value)


def _rate(rate: float | None) -> float:
    return float("nan") if rate is None else rate

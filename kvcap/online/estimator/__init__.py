"""An estimator of cache capacity that is fed the request stream: no I/O, no clock, bounded memory."""

from __future__ import annotations

from kvcap.online.estimator.estimator import Estimator
from kvcap.online.estimator.options import EstimatorOptions
from kvcap.online.estimator.requests import Observation, ObservedBatch, RequestBatch
from kvcap.online.estimator.snapshot import CapacityHits, RequiredCapacity, Snapshot, Traffic

__all__ = [
    "CapacityHits",
    "Estimator",
    "EstimatorOptions",
    "Observation",
    "ObservedBatch",
    "RequestBatch",
    "RequiredCapacity",
    "Snapshot",
    "Traffic",
]

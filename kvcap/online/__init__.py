"""The same numbers while traffic flows.

:class:`Estimator` is fed requests and knows at any moment how much cache the recent ones needed; it does
no I/O. :mod:`kvcap.online.server` is the service around it.
"""

from __future__ import annotations

from kvcap.online.estimator import (
    CapacityHits,
    Estimator,
    EstimatorOptions,
    Observation,
    ObservedBatch,
    RequestBatch,
    RequiredCapacity,
    Snapshot,
    Traffic,
)

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

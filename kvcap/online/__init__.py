"""The same numbers while traffic flows.

:class:`Estimator` is fed requests and knows at any moment how much cache the recent ones needed; it does
no I/O. :mod:`kvcap.online.server` is the service around it, :mod:`kvcap.online.vllm_plugin` feeds it inside
an engine, :mod:`kvcap.online.mirror` sends an engine's requests to the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Import the estimator when it is first asked for: an engine's workers load the plugin without it."""
    if name in __all__:
        import kvcap.online.estimator

        return getattr(kvcap.online.estimator, name)
    raise AttributeError(f"module 'kvcap.online' has no attribute {name!r}")

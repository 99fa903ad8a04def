"""What people ask of a replay, answered from its results."""

from kvcap.analysis.answer import Answer, CapacityPercentiles, CapacityRow, PoolAnswer, ShareRow, answer
from kvcap.analysis.capacities import DEFAULT_CAPACITIES, resolve_capacities

__all__ = [
    "DEFAULT_CAPACITIES",
    "Answer",
    "CapacityPercentiles",
    "CapacityRow",
    "PoolAnswer",
    "ShareRow",
    "answer",
    "resolve_capacities",
]

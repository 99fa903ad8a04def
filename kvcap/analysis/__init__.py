"""What people ask of a replay, answered from its results."""

from kvcap.analysis.answer import Answer, CapacityPercentiles, CapacityRow, PoolAnswer, ShareRow, answer

__all__ = [
    "Answer",
    "CapacityPercentiles",
    "CapacityRow",
    "PoolAnswer",
    "ShareRow",
    "answer",
]

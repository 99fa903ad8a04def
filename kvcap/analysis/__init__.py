"""What people ask of a replay, answered from its results."""

from kvcap.analysis.answer import Answer, CapacityPercentiles, CapacityRow, PoolAnswer, ShareRow, answer
from kvcap.analysis.policy_answer import FifoFall, Headroom, PolicyRow

__all__ = [
    "Answer",
    "CapacityPercentiles",
    "CapacityRow",
    "FifoFall",
    "Headroom",
    "PolicyRow",
    "PoolAnswer",
    "ShareRow",
    "answer",
]

"""Deterministic transformations of a trace: more sessions, longer contexts, faster turns, two logs in one.

A trace is a :class:`~kvcap.growth.trace.PathTrace`: arrays of prefixes, sessions and times. Everything here
may import blocks, formats and kernels; what growth costs is asked in :mod:`kvcap.analysis.grow`.
"""

from kvcap.growth.copies import grow, has_long_sessions
from kvcap.growth.longer import longer
from kvcap.growth.samples import SessionSample, sampled_sessions, with_sessions_of_paths
from kvcap.growth.times import beginning_with, clocks_overlap, faster, joined
from kvcap.growth.trace import PathTrace, canonical, in_time_order
from kvcap.growth.turns import more_turns

__all__ = [
    "PathTrace",
    "SessionSample",
    "beginning_with",
    "canonical",
    "clocks_overlap",
    "faster",
    "grow",
    "has_long_sessions",
    "in_time_order",
    "joined",
    "longer",
    "more_turns",
    "sampled_sessions",
    "with_sessions_of_paths",
]

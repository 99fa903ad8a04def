"""Deterministic transformations of a trace: more sessions, longer contexts, faster turns, two logs in one.

A trace is a :class:`~kvcap.growth.trace.PathTrace`: arrays of prefixes, sessions and times. Everything here
may import blocks, formats and kernels; what growth costs is asked in :mod:`kvcap.analysis.grow`.
"""

from kvcap.growth.copies import grow
from kvcap.growth.longer import longer
from kvcap.growth.samples import sampled_sessions, with_sessions_of_paths
from kvcap.growth.times import faster, joined
from kvcap.growth.trace import PathTrace, canonical
from kvcap.growth.turns import more_turns

__all__ = [
    "PathTrace",
    "canonical",
    "faster",
    "grow",
    "joined",
    "longer",
    "more_turns",
    "sampled_sessions",
    "with_sessions_of_paths",
]

"""Contexts so many times as long."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from kvcap.growth.trace import PathTrace, canonical, with_paths
from kvcap.kernels.arrays import offsets_of
from kvcap.kernels.growth.paths import repeated_paths, stretched_nodes


def longer(trace: PathTrace, factor: Fraction) -> PathTrace:
    """Return the same requests with the own parts of sessions so many times as long; what is shared stays.

    Below 1 they become shorter.
    """
    trace = canonical(trace)
    tree = trace.tree()
    copies = stretched_nodes(
        tree.parent, tree.sessions, np.int64(factor.numerator), np.int64(factor.denominator)
    )
    nodes, offsets = repeated_paths(trace.nodes, trace.offsets, copies, offsets_of(copies)[:-1])
    return canonical(with_paths(trace, nodes, offsets))

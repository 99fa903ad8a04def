"""Small random streams for hybrid models, and their way into the kernels' arrays."""

from __future__ import annotations

from math import lcm

import numpy as np
from hypothesis import strategies as st
from oracles_hybrid import Group, Prompt

from kvcap.kernels.hybrid.lookup import FULL, LOCAL, STATE, WINDOW
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths

KINDS = {"full": FULL, "window": WINDOW, "local": LOCAL, "state": STATE}


@st.composite
def streams(draw, most_requests=16):
    """Tokens per id, and prompts that often go on where earlier ones ended or parted, inside ids as well."""
    id_tokens = draw(st.integers(1, 5))
    prompts = []
    for _ in range(draw(st.integers(1, most_requests))):
        ids = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
        if prompts and draw(st.integers(0, 3)):
            earlier = draw(st.sampled_from(prompts)).ids
            ids = [*earlier[: draw(st.integers(0, len(earlier)))], *ids]
        uncovered = draw(st.sampled_from([0, 0, 0, 3]))
        tokens = len(ids) * id_tokens + uncovered - draw(st.integers(0, id_tokens - 1))
        prompts.append(Prompt(tuple(ids), tokens, draw(st.sampled_from([0, 0, 1, 4, 9]))))
    return id_tokens, prompts


@st.composite
def models(draw):
    """Groups of layers, and what hits are multiples of."""
    unit = draw(st.integers(1, 4))
    window = draw(st.integers(2, 10))
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["full", "full", "window", "window", "local", "state"]))
        block = unit * draw(st.sampled_from([1, 1, 2]))
        span = {"full": 0, "state": 0, "local": block * 2, "window": draw(st.sampled_from([window, 3]))}[kind]
        if kind == "state":
            block = 2 * unit
        groups.append(Group(kind, block, span, kind == "state" and draw(st.booleans())))
    return groups, lcm(*(group.block for group in groups))


def group_rows(groups):
    """Return groups as the kernel takes them."""
    return np.array([(KINDS[group.kind], *group[1:]) for group in groups], np.int64)


def id_paths(prompts):
    """Return the segments of the ids of prompts."""
    numbers = {}
    keys = [
        numbers.setdefault(prompt.ids[: end + 1], len(numbers))
        for prompt in prompts
        for end in range(len(prompt.ids))
    ]
    lengths = np.array([len(prompt.ids) for prompt in prompts], np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return segment_paths(ReuseRunScanner().feed(np.array(keys, np.uint64), offsets), lengths)

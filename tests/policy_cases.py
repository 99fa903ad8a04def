"""Small random traces, and their way into the kernels' arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from oracles_policies import blocks_of

from kvcap.kernels.reuse_runs import ReuseRunScanner

BLOCK_SIZE = 4


def prompts(most_requests=14, most_blocks=7):
    """Lists of prompts over so few contents that prefixes meet often."""
    prompt = st.lists(st.integers(0, 1), max_size=most_blocks).map(tuple)
    return st.lists(prompt, min_size=1, max_size=most_requests)


def keyed(trace):
    """Return ``block_keys`` and ``request_offsets`` of a list of prompts."""
    numbers = {}
    keys = [numbers.setdefault(block, len(numbers)) for prompt in trace for block in blocks_of(prompt)]
    offsets = np.concatenate(([0], np.cumsum([len(prompt) for prompt in trace])))
    return np.array(keys, np.uint64), offsets.astype(np.int64)


def scanned(trace):
    """Return the reuse runs of a list of prompts, and the blocks of each."""
    keys, offsets = keyed(trace)
    return ReuseRunScanner().feed(keys, offsets), np.diff(offsets)

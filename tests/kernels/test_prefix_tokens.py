from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcap.kernels.prefix_tokens import prefix_tokens

OFFSETS = np.array([0, 3, 3, 7])


@given(st.integers(0, 200), st.integers(1, 20), st.integers(0, 12))
def test_a_block_weighs_what_is_left_of_the_prompt_but_at_least_one_token(tokens, block_size, blocks):
    expected = sum(max(1, min(block_size, tokens - i * block_size)) for i in range(blocks))
    offsets = np.array([0, 12])
    assert prefix_tokens(np.array([[blocks]]), offsets, np.array([tokens]), block_size).tolist() == [
        [expected]
    ]


def test_explicit_weights_are_summed_per_request():
    weights = np.array([5, 6, 7, 1, 2, 3, 4], np.int32)
    leading = np.array([[2, 0, 4], [0, 0, 1]])
    covered = np.zeros(3, np.int64)
    assert prefix_tokens(leading, OFFSETS, covered, 8, weights).tolist() == [[11, 0, 10], [0, 0, 1]]

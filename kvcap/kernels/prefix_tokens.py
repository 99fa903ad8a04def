"""Tokens in the leading blocks of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvcap.kernels.reuse_runs import Int64Array


def prefix_tokens(
    leading_blocks: Int64Array,
    request_offsets: Int64Array,
    covered_tokens: Int64Array,
    block_size: int,
    block_tokens: npt.NDArray[np.int32] | None = None,
) -> Int64Array:
    """Return the tokens of every request's first blocks.

    Parameters
    ----------
    leading_blocks : int64 (..., n_requests)
        How many, at most all that the request has.
    request_offsets : int64 (n_requests + 1,)
        Where each request's blocks begin among all accesses.
    covered_tokens : int64 (n_requests,)
        Tokens of the prompt that its blocks cover: block i weighs ``covered_tokens - i * block_size``, at
        least 1 and at most ``block_size``.
    block_size
        Tokens of a full block.
    block_tokens : int32 (n_accesses,), optional
        Explicit weights, which then count instead.

    Returns
    -------
    int64 (..., n_requests)
    """
    if block_tokens is not None:
        until = np.concatenate((np.zeros(1, np.int64), np.cumsum(block_tokens, dtype=np.int64)))
        first = request_offsets[:-1]
        explicit: Int64Array = until[first + leading_blocks] - until[first]
        return explicit
    full_blocks = np.minimum(leading_blocks, covered_tokens // block_size)
    beyond = leading_blocks - full_blocks
    first_beyond = np.maximum(1, covered_tokens - full_blocks * block_size)
    tokens: Int64Array = full_blocks * block_size + np.where(beyond > 0, first_beyond + beyond - 1, 0)
    return tokens

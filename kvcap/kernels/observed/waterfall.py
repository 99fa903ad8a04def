"""Every prompt token in one class, hit or missed, by its position: the first class that applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.observed.pieces import NOT_OBSERVED

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.observed.pieces import Limits, Lookups, ObservedPieces

CLASSES: Final = (
    "never_seen",
    "partial_block",
    "last_token",
    "other_instance",
    "capacity_and_ttl",
    "capacity",
    "ttl",
    "restart",
    "source_running",
    "below_minimum",
    "expected",
)
"""What a token is: the columns of a waterfall. Missed tokens of the last one are unexplained."""

(
    _NEVER_SEEN,
    _PARTIAL,
    _LAST_TOKEN,
    _OTHER,
    _BOTH,
    _CAPACITY,
    _TTL,
    _RESTART,
    _RUNNING,
    _MINIMUM,
    _EXPECTED,
) = range(len(CLASSES))


class Prompts(NamedTuple):
    """How far each prompt was known: int64 (n_requests,), in tokens from its first one.

    Attributes
    ----------
    input_tokens, cacheable_tokens
        All of it, and what its blocks hold.
    known_tokens
        What requests before it left in any cache.
    own_tokens, pooled_tokens
        What of that may hit, since one token has to be computed: if it stands in this cache, and in any.
    """

    input_tokens: Int64Array
    cacheable_tokens: Int64Array
    known_tokens: Int64Array
    own_tokens: Int64Array
    pooled_tokens: Int64Array


class Waterfall(NamedTuple):
    """Tokens by request and class of ``CLASSES``: int64 (n_requests, n_classes).

    They are 0 where nothing was observed; otherwise a row of ``hit`` and ``missed`` together sums up to the
    prompt. ``predicted`` int64 (n_requests,) are the tokens that are expected to hit in every request.
    """

    hit: Int64Array
    missed: Int64Array
    predicted: Int64Array


def waterfall(
    pieces: ObservedPieces,
    lookups: Lookups,
    limits: Limits,
    prompts: Prompts,
    step_tokens: int = 0,
    least_tokens: int = 0,
) -> Waterfall:
    """Put every token of every observed request into a class.

    Parameters
    ----------
    pieces, lookups, limits
        See :mod:`kvcap.kernels.observed.pieces`.
    prompts
        The requests.
    step_tokens, least_tokens
        Observed hits were cut down to multiples of a step, and to 0 below a least hit; 0 for neither.

    Notes
    -----
    O(pieces + requests). A hit is a prefix, so what is expected behind a block that was missed because its
    source was running is charged to that as well.
    """
    n_requests = prompts.input_tokens.size
    hit, missed = (np.zeros((n_requests, len(CLASSES)), np.int64) for _ in range(2))
    predicted = np.zeros(n_requests, np.int64)
    _put_pieces(
        pieces.request,
        pieces.source_request,
        pieces.first_token,
        pieces.tokens_per_block,
        pieces.blocks,
        pieces.depth,
        pieces.age_us,
        pieces.running,
        lookups.observed_tokens,
        limits.capacity_blocks,
        np.int64(limits.lifetime_us),
        limits.epochs,
        hit,
        missed,
        predicted,
    )
    _put_rest(*prompts, lookups.observed_tokens, step_tokens, least_tokens, hit, missed, predicted)
    return Waterfall(hit, missed, predicted)


@jit
def _put(tokens, request, first, end, observed, hit, missed):
    """Add tokens ``[first, end)`` of a prompt to one class, in which a request has a cell of either array."""
    if end > first and observed != NOT_OBSERVED:
        hits = max(0, min(observed, end) - first)
        hit[request, tokens] += hits
        missed[request, tokens] += end - first - hits


@jit
def _put_pieces(
    request,
    source,
    first_token,
    tokens_per_block,
    blocks,
    depth,
    age_us,
    running,
    observed_tokens,
    capacity_blocks,
    lifetime_us,
    epochs,
    hit,
    missed,
    predicted,
):
    miss_is_running = np.zeros(observed_tokens.size, np.bool_)
    for i in range(request.size):
        r = request[i]
        observed = observed_tokens[r]
        first, end = first_token[i], first_token[i] + blocks[i] * tokens_per_block[i]
        within = max(0, min(blocks[i], capacity_blocks[r] - depth[i]))
        kept_end = first + within * tokens_per_block[i]
        if age_us[i] > lifetime_us:
            _put(_TTL, r, first, kept_end, observed, hit, missed)
            _put(_BOTH, r, kept_end, end, observed, hit, missed)
            continue
        _put(_CAPACITY, r, kept_end, end, observed, hit, missed)
        if epochs[source[i]] != epochs[r]:
            _put(_RESTART, r, first, kept_end, observed, hit, missed)
        elif running[i]:
            _put(_RUNNING, r, first, kept_end, observed, hit, missed)
            if first <= observed < kept_end:
                miss_is_running[r] = True
        else:
            _put(_EXPECTED, r, first, kept_end, observed, hit, missed)
            predicted[r] += kept_end - first
    for r in range(observed_tokens.size):
        if miss_is_running[r]:
            missed[r, _RUNNING] += missed[r, _EXPECTED]
            missed[r, _EXPECTED] = 0


@jit
def _put_rest(
    input_tokens,
    cacheable_tokens,
    known_tokens,
    own_tokens,
    pooled_tokens,
    observed_tokens,
    step,
    least,
    hit,
    missed,
    predicted,
):
    for r in range(input_tokens.size):
        observed = observed_tokens[r]
        own, pooled, known = own_tokens[r], pooled_tokens[r], known_tokens[r]
        full = max(known, cacheable_tokens[r])
        _put(_OTHER, r, own, pooled, observed, hit, missed)
        _put(_LAST_TOKEN, r, pooled, known, observed, hit, missed)
        _put(_NEVER_SEEN, r, known, full, observed, hit, missed)
        _put(_PARTIAL, r, full, input_tokens[r], observed, hit, missed)
        if step > 0 or least > 0:
            reported = predicted[r] // max(step, 1) * max(step, 1)
            if reported < least:
                reported = 0
            cut = max(0, min(missed[r, _EXPECTED], predicted[r] - max(observed, reported)))
            missed[r, _EXPECTED] -= cut
            missed[r, _MINIMUM] += cut
            predicted[r] = reported

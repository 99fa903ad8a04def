"""Reuse runs with the observed hit laid over them: which blocks were hit, and which were missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.copying import with_free_row

if TYPE_CHECKING:
    from kvcap.kernels.arrays import BoolArray, Int64Array
    from kvcap.kernels.run_tables import WeightedRuns

NO_LIMIT: Final = np.iinfo(np.int64).max
"""Stands for a capacity or a lifetime without bounds."""
NOT_OBSERVED: Final = -1
"""Stands for a hit that the log does not tell."""


class Lookups(NamedTuple):
    """What is known of every request, by its number: arrays of shape (n_requests,).

    Attributes
    ----------
    blocks : int64
        Of its prompt.
    arrival_us, ready_us : int64
        When it came, and when what it computed can be hit: the first token, or the end.
    observed_tokens : int64
        Leading tokens that were hit, at most its prompt; ``NOT_OBSERVED`` where the log does not say.
    """

    blocks: Int64Array
    arrival_us: Int64Array
    ready_us: Int64Array
    observed_tokens: Int64Array


class Limits(NamedTuple):
    """What a cache keeps: it still has block i of a run iff ``depth + i < capacity``, ``age <= lifetime``.

    Attributes
    ----------
    capacity_blocks : int64 (n_requests,)
        Of the cache that each request comes to; ``NO_LIMIT`` for none.
    lifetime_us : int
        Since the last use; ``NO_LIMIT`` for none.
    epochs : int64 (n_requests,)
        Restarts of that cache before each request.
    """

    capacity_blocks: Int64Array
    lifetime_us: int
    epochs: Int64Array


class ObservedPieces(NamedTuple):
    """Stretches of equal fate, by request and position: arrays of shape (n_pieces,).

    Attributes
    ----------
    request, source_request : int64
        Who asks, and who used the blocks last before.
    first_token, tokens_per_block, blocks, depth : int64
        Where the piece begins in the prompt, what a block weighs, how many there are, and the tail-first
        depth of the first one.
    age_us : int64
        From the source's arrival to the request's.
    running : bool
        The source was not ready when the request came, so that its blocks may hit or not.
    hit_blocks, missed_from : int64
        Blocks ``[0, hit_blocks)`` were hit and ``[missed_from, blocks)`` were missed; what lies between,
        the log leaves open.
    """

    request: Int64Array
    source_request: Int64Array
    first_token: Int64Array
    tokens_per_block: Int64Array
    blocks: Int64Array
    depth: Int64Array
    age_us: Int64Array
    running: BoolArray
    hit_blocks: Int64Array
    missed_from: Int64Array


def observed_pieces(
    runs: WeightedRuns,
    lookups: Lookups,
    limits: Limits,
    block_size: int,
    step_tokens: int = 0,
    least_tokens: int = 0,
) -> ObservedPieces:
    """Cut runs where the readiness of their blocks changes, and lay the observed hits over them.

    Parameters
    ----------
    runs : WeightedRuns
        By request, then position, of what may hit; they cover the known prefix of each request.
    lookups
        The requests.
    limits
        What tells the hits of requests that were not observed, of which the readiness of later ones depends.
    block_size
        Tokens of a full block.
    step_tokens, least_tokens
        Observed hits were cut down to multiples of a step, and to 0 below a least hit; 0 for neither.

    Returns
    -------
    ObservedPieces
        With ``hit_blocks`` 0 and ``missed_from`` ``blocks`` where nothing was observed.

    Notes
    -----
    Block b of request r is ready at ``min(ready_us[r], ready(source of b))``, and at once where r hit it. One
    pass in order; only blocks still to come are remembered. O(pieces).
    """
    first_tokens = _first_tokens(runs.request, runs.blocks, runs.tokens_per_block)
    offsets = np.searchsorted(runs.request, np.arange(lookups.blocks.size + 1)).astype(np.int64)
    age_us = lookups.arrival_us[runs.request] - lookups.arrival_us[runs.source_request]
    cuts = _cut(
        offsets,
        runs.source_request,
        runs.first_block,
        runs.blocks,
        runs.tokens_per_block,
        runs.depth,
        first_tokens,
        age_us,
        lookups.blocks,
        lookups.arrival_us,
        lookups.ready_us,
        lookups.observed_tokens,
        limits.capacity_blocks,
        np.int64(limits.lifetime_us),
        limits.epochs,
        np.int64(block_size),
    )
    run, begin, blocks = cuts[:, 0], cuts[:, 1], np.ascontiguousarray(cuts[:, 2])
    request, weight = runs.request[run], runs.tokens_per_block[run]
    first_token = first_tokens[run] + begin * weight
    hit_blocks, missed_from = _seen(
        lookups.observed_tokens[request] - first_token, blocks, weight, first_token, step_tokens, least_tokens
    )
    return ObservedPieces(
        request=request,
        source_request=runs.source_request[run],
        first_token=first_token,
        tokens_per_block=weight,
        blocks=blocks,
        depth=runs.depth[run] + begin,
        age_us=age_us[run],
        running=cuts[:, 3] != 0,
        hit_blocks=np.where(lookups.observed_tokens[request] == NOT_OBSERVED, 0, hit_blocks),
        missed_from=np.where(lookups.observed_tokens[request] == NOT_OBSERVED, blocks, missed_from),
    )


def _seen(
    hit_tokens: Int64Array,
    blocks: Int64Array,
    weight: Int64Array,
    first_token: Int64Array,
    step_tokens: int,
    least_tokens: int,
) -> tuple[Int64Array, Int64Array]:
    """Return how many blocks were hit, and from which on they were missed; ``hit_tokens`` from the first."""
    hit_blocks = np.clip(hit_tokens // weight, 0, blocks)
    missed_from = np.clip(-(-hit_tokens // weight), 0, blocks)
    if step_tokens or least_tokens:
        observed = hit_tokens + first_token
        open_end = np.maximum(observed + step_tokens, np.where(observed < least_tokens, least_tokens, 0))
        whole_blocks_below = -(-(open_end - first_token) // weight) - 1
        missed_from = np.maximum(missed_from, np.clip(whole_blocks_below, 0, blocks))
    return hit_blocks, missed_from


@jit
def _first_tokens(request, blocks, tokens_per_block):
    """Return the tokens of each request before each of its runs, which cover its known prefix."""
    first = np.zeros(request.size, np.int64)
    for run in range(1, request.size):
        if request[run] == request[run - 1]:
            first[run] = first[run - 1] + blocks[run - 1] * tokens_per_block[run - 1]
    return first


@jit
def _blocks_before(token, first_token, weight, blocks):
    """Return how many blocks of a stretch end before a token."""
    return max(0, min(blocks, (token - first_token) // weight))


@jit
def _cut(
    offsets,
    source,
    first_block,
    blocks,
    tokens_per_block,
    depth,
    first_token,
    age_us,
    request_blocks,
    arrival_us,
    ready_us,
    observed_tokens,
    capacity_blocks,
    lifetime_us,
    epochs,
    block_size,
):
    """Return rows of run, first block in it, blocks and whether its source is running."""
    n_requests = request_blocks.size
    pieces = np.empty((source.size + 64, 4), np.int64)
    n = 0
    # Rows of first block, end and time of readiness, of all that is not ready at its request's arrival.
    late = np.empty((64, 3), np.int64)
    late_offsets = np.zeros(n_requests + 1, np.int64)
    n_late = 0
    for r in range(n_requests):
        arrival, ready = arrival_us[r], ready_us[r]
        observed = observed_tokens[r] != NOT_OBSERVED
        # Without a value: until the first piece that the limits say is missed.
        hitting = not observed
        known, known_tokens = 0, 0
        for run in range(offsets[r], offsets[r + 1]):
            q, start = source[run], first_block[run]
            end = start + blocks[run]
            known, known_tokens = end, first_token[run] + blocks[run] * tokens_per_block[run]
            within = min(blocks[run], max(0, capacity_blocks[r] - depth[run]))
            if age_us[run] > lifetime_us or epochs[q] != epochs[r]:
                within = 0
            if observed:
                run_hit_end = start + _blocks_before(
                    observed_tokens[r], first_token[run], tokens_per_block[run], blocks[run]
                )
            else:
                run_hit_end = start + within
            position = start
            # A restart took what was being computed as well.
            entry = late_offsets[q] if epochs[q] == epochs[r] else late_offsets[q + 1]
            while position < end:
                # The next stretch of the source that is not ready yet, if any is left in this run.
                piece_end, not_ready, ready_at = end, False, ready
                while entry < late_offsets[q + 1]:
                    if late[entry, 2] <= arrival or late[entry, 1] <= position:
                        entry += 1
                        continue
                    if late[entry, 0] > position:
                        piece_end = min(end, late[entry, 0])
                    else:
                        piece_end = min(end, late[entry, 1])
                        not_ready, ready_at = True, min(ready, late[entry, 2])
                    break
                pieces = with_free_row(pieces, n)
                pieces[n, 0] = run
                pieces[n, 1] = position - start
                pieces[n, 2] = piece_end - position
                pieces[n, 3] = not_ready
                n += 1
                if observed:
                    hit_end = run_hit_end
                elif not hitting or not_ready:
                    hitting, hit_end = False, position
                else:
                    hit_end = min(piece_end, run_hit_end)
                    hitting = hit_end == piece_end
                computed = max(position, hit_end)
                if computed < piece_end and ready_at > arrival:
                    late = with_free_row(late, n_late)
                    late[n_late, 0], late[n_late, 1], late[n_late, 2] = computed, piece_end, ready_at
                    n_late += 1
                position = piece_end
        if observed:
            known += max(0, (observed_tokens[r] - known_tokens) // block_size)
        if known < request_blocks[r] and ready > arrival:
            late = with_free_row(late, n_late)
            late[n_late, 0], late[n_late, 1], late[n_late, 2] = known, request_blocks[r], ready
            n_late += 1
        late_offsets[r + 1] = n_late
    return pieces[:n]

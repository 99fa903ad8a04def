"""The capacity and the lifetime that get the fewest tokens wrong: exact scans over labelled pieces.

A cache of C blocks that keeps them for T since their last use has block i of a piece iff ``depth + i < C``
and ``age <= T``. A block that it has and that was missed is wrong, and so is one that it has not and that
was hit: nothing can hit beyond a limit, while a miss within one may have other reasons, so the latter
weighs ``HIT_BEYOND`` times as much. All sums are whole tokens.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.observed.pieces import NO_LIMIT

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.kernels.observed.pieces import ObservedPieces

HIT_BEYOND: Final = 3
"""How much more a hit beyond the limits weighs than a miss within them."""

_DEAD, _LIVE, _EITHER = np.int8(0), np.int8(1), np.int8(2)
_GRID: Final = 32


class CapacityEnds(NamedTuple):
    """Where the error of pieces changes its slope over capacity: arrays of shape (n_ends,), ascending.

    Attributes
    ----------
    capacity_blocks, slope : int64
        Where, and by how many tokens a block.
    piece : int64
        Whose end it is.
    states : int8
        Bit ``1 << s``: it counts for a piece in state s, which is dead (0: too old to hit), live (1), or
        either of the two, whichever is better (2).
    """

    capacity_blocks: Int64Array
    slope: Int64Array
    piece: Int64Array
    states: np.ndarray[tuple[int], np.dtype[np.int8]]


class BestCapacities(NamedTuple):
    """The best capacities of each group of pieces: int64 arrays of shape (n_groups,).

    Every capacity in ``[low, high]`` is as good as any other; ``high`` is ``NO_LIMIT`` where nothing bounds
    it. ``error`` counts dead pieces as well.
    """

    low: Int64Array
    high: Int64Array
    error: Int64Array


class BestLifetime(NamedTuple):
    """Lifetimes in ``[low, high)`` microseconds are best; None: nothing bounds them there."""

    low: int | None
    high: int | None
    error: int


class JointLimits(NamedTuple):
    """The best lifetime with a capacity for each group, and the error below which no pair can be.

    ``proven_error`` equals ``error`` where the search was exhausted.
    """

    lifetime: BestLifetime
    capacities: BestCapacities
    error: int
    proven_error: int


def capacity_ends(pieces: ObservedPieces) -> CapacityEnds:
    """Return the ends of pieces, for any number of scans over them.

    Notes
    -----
    At capacity C a live piece gets ``HIT_BEYOND * (hit blocks from C - depth on)`` and ``missed blocks below
    C - depth`` wrong; a dead one all its hits. The better of the two differs from live only where missing
    blocks outweigh the hits: from ``HIT_BEYOND * hit_blocks`` missed ones on.
    """
    depth, hit, missed_from, blocks = pieces.depth, pieces.hit_blocks, pieces.missed_from, pieces.blocks
    weight = pieces.tokens_per_block
    number = np.arange(depth.size)
    has_hits, has_misses = hit > 0, blocks > missed_from
    live, either, both = 1 << _LIVE, 1 << _EITHER, 1 << _LIVE | 1 << _EITHER
    missed_while_better = np.minimum(blocks, missed_from + HIT_BEYOND * hit)
    parts = [
        (depth, -HIT_BEYOND * weight, has_hits, both),
        (depth + hit, HIT_BEYOND * weight, has_hits, both),
        (depth + missed_from, weight, has_misses & has_hits, both),
        (depth + missed_from, weight, has_misses & ~has_hits, live),
        (depth + blocks, -weight, has_misses, live),
        (depth + missed_while_better, -weight, has_misses & has_hits, either),
    ]
    places = np.concatenate([place[chosen] for place, _, chosen, _ in parts])
    order = np.argsort(places, kind="stable")
    return CapacityEnds(
        places[order],
        np.concatenate([slope[chosen] for _, slope, chosen, _ in parts])[order],
        np.concatenate([number[chosen] for *_, chosen, _ in parts])[order],
        np.concatenate([np.full(np.count_nonzero(chosen), bit, np.int8) for *_, chosen, bit in parts])[order],
    )


def best_capacities(
    pieces: ObservedPieces,
    ends: CapacityEnds,
    groups: Int32Array,
    n_groups: int,
    states: np.ndarray[tuple[int], np.dtype[np.int8]],
) -> BestCapacities:
    """Return the capacities of each group with the least error, exactly.

    Parameters
    ----------
    pieces, ends
        See :func:`capacity_ends`.
    groups : int32 (n_pieces,)
        The group of each piece; negative ones take no part.
    n_groups
        Groups are numbered below it.
    states : int8 (n_pieces,)
        As for :class:`CapacityEnds`.

    Notes
    -----
    O(ends): one pass for all groups together.
    """
    beyond_all = HIT_BEYOND * pieces.tokens_per_block * pieces.hit_blocks
    return BestCapacities(
        *_scan_capacities(
            ends.capacity_blocks, ends.slope, ends.piece, ends.states, groups, n_groups, states, beyond_all
        )
    )


def capacity_ranges(
    pieces: ObservedPieces,
    ends: CapacityEnds,
    groups: Int32Array,
    most_errors: Int64Array,
    states: np.ndarray[tuple[int], np.dtype[np.int8]],
) -> tuple[Int64Array, Int64Array]:
    """Return the smallest and largest capacity of each group that gets at most so many tokens wrong.

    Parameters
    ----------
    pieces, ends, groups, states
        As for :func:`best_capacities`.
    most_errors : int64 (n_groups,)
        At least the best error of each group.

    Returns
    -------
    int64 (n_groups,), int64 (n_groups,)
        The latter ``NO_LIMIT`` where nothing bounds it. Capacities between may get more wrong.
    """
    beyond_all = HIT_BEYOND * pieces.tokens_per_block * pieces.hit_blocks
    low, high = _scan_ranges(
        ends.capacity_blocks, ends.slope, ends.piece, ends.states, groups, most_errors, states, beyond_all
    )
    return low, high


def split_errors(
    pieces: ObservedPieces,
    ends: CapacityEnds,
    states: np.ndarray[tuple[int], np.dtype[np.int8]],
    begin: int,
    splits: Int64Array,
    end: int,
) -> Int64Array:
    """Return the least error of two capacities, one before each split and one from it on.

    Parameters
    ----------
    pieces, ends, states
        As for :func:`best_capacities`.
    begin, end
        Only requests ``[begin, end)`` count.
    splits : int64 (n_splits,)
        First requests of the second part; ``end`` leaves it empty.

    Returns
    -------
    int64 (n_splits,)

    Notes
    -----
    O(splits * ends).
    """
    request = pieces.request[ends.piece]
    inside = (request >= begin) & (request < end) & ((ends.states >> states[ends.piece]) & 1 != 0)
    whole = (pieces.request >= begin) & (pieces.request < end)
    beyond_all = HIT_BEYOND * pieces.tokens_per_block * pieces.hit_blocks
    errors: Int64Array = _split_errors(
        ends.capacity_blocks[inside],
        ends.slope[inside],
        request[inside],
        pieces.request[whole],
        beyond_all[whole],
        splits,
    )
    return errors


def lifetime_states(pieces: ObservedPieces, lifetime_us: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return which pieces are live under a lifetime: int8 (n_pieces,)."""
    return np.where(pieces.age_us <= lifetime_us, _LIVE, _DEAD)


def wrong_tokens(pieces: ObservedPieces, capacity_blocks: Int64Array, lifetime_us: int) -> Int64Array:
    """Return the tokens of each piece that limits get wrong; both arrays int64 (n_pieces,)."""
    room = np.clip(capacity_blocks - pieces.depth, 0, pieces.blocks)
    within = np.where(pieces.age_us <= lifetime_us, room, 0)
    beyond = HIT_BEYOND * np.maximum(pieces.hit_blocks - within, 0)
    wrong: Int64Array = pieces.tokens_per_block * (beyond + np.maximum(within - pieces.missed_from, 0))
    return wrong


def best_lifetime(pieces: ObservedPieces, capacity_blocks: Int64Array, slack_tokens: int = 0) -> BestLifetime:
    """Return the lifetimes with the least error under capacities: int64 (n_pieces,), exactly.

    With slack, the range of all that get at most so many tokens more wrong than the best.

    Notes
    -----
    The error changes only at the ages of pieces. O(pieces log pieces).
    """
    within = np.clip(capacity_blocks - pieces.depth, 0, pieces.blocks)
    beyond = HIT_BEYOND * pieces.tokens_per_block * pieces.hit_blocks
    kept_beyond = HIT_BEYOND * pieces.tokens_per_block * np.maximum(pieces.hit_blocks - within, 0)
    kept_missed = pieces.tokens_per_block * np.maximum(within - pieces.missed_from, 0)
    ages, place = np.unique(pieces.age_us, return_inverse=True)
    change = np.zeros(ages.size, np.int64)
    np.add.at(change, place, kept_beyond + kept_missed - beyond)
    errors = np.concatenate([np.zeros(1, np.int64), np.cumsum(change)]) + beyond.sum()
    best = np.flatnonzero(errors <= errors.min() + slack_tokens)
    first, last = int(best[0]), int(best[-1])
    return BestLifetime(
        low=None if first == 0 else int(ages[first - 1]),
        high=None if last == ages.size else int(ages[last]),
        error=int(errors.min()),
    )


def best_joint_limits(
    pieces: ObservedPieces, ends: CapacityEnds, groups: Int32Array, n_groups: int, most_scans: int = 400
) -> JointLimits:
    """Return the lifetime, and the capacity of each group, with the least error together.

    Parameters
    ----------
    pieces, ends, groups, n_groups
        As for :func:`best_capacities`.
    most_scans
        Scans after which the best pair so far is returned, with what is proven by then.

    Notes
    -----
    Branch and bound over the distinct ages. For all lifetimes between two of them, a piece whose age lies
    between is live or dead; letting it be the better of the two at each capacity gives a bound from below
    by one scan. Stretches whose bound is not below the best error found are done.
    """
    search = _JointSearch(pieces, ends, groups, n_groups)
    search.run(most_scans)
    capacities = search.at(search.best)
    per_piece = np.where(groups >= 0, capacities.low[groups], 0)
    per_piece = np.where(capacities.high[groups] == NO_LIMIT, NO_LIMIT, per_piece)
    lifetime = best_lifetime(pieces, per_piece)
    return JointLimits(lifetime, capacities, search.error, min(search.error, search.proven_error))


class _JointSearch:
    """Lifetimes by the number of distinct ages that they keep: 0 to n_ages."""

    def __init__(self, pieces: ObservedPieces, ends: CapacityEnds, groups: Int32Array, n_groups: int) -> None:
        self._pieces, self._ends, self._groups, self._n_groups = pieces, ends, groups, n_groups
        ages, self._rank = np.unique(pieces.age_us, return_inverse=True)
        self._n_ages = ages.size
        self._scans = 0
        self.best, self.error = self._n_ages, NO_LIMIT
        self.proven_error = NO_LIMIT

    def at(self, kept_ages: int) -> BestCapacities:
        """Return the best capacities where so many ages are kept."""
        return self._between(kept_ages, kept_ages)

    def run(self, most_scans: int) -> None:
        """Find the best number of ages to keep."""
        grid = np.unique(np.linspace(0, self._n_ages, _GRID + 1).astype(np.int64)).tolist()
        for kept in reversed(grid):
            self._try(kept)
        heap: list[tuple[int, int, int]] = []
        for low, high in pairwise(grid):
            self._bound(heap, low + 1, high - 1)
        while heap and heap[0][0] < self.error and self._scans < most_scans:
            _, low, high = heapq.heappop(heap)
            middle = (low + high) // 2
            self._try(middle)
            self._bound(heap, low, middle - 1)
            self._bound(heap, middle + 1, high)
        self.proven_error = heap[0][0] if heap else NO_LIMIT

    def _try(self, kept_ages: int) -> None:
        error = int(self._between(kept_ages, kept_ages).error.sum())
        if error < self.error:
            self.best, self.error = kept_ages, error

    def _bound(self, heap: list[tuple[int, int, int]], low: int, high: int) -> None:
        """Keep a bound for all numbers in ``[low, high]``, if one of them may be better than the best."""
        if low <= high:
            bound = int(self._between(low, high).error.sum())
            if bound < self.error:
                heapq.heappush(heap, (bound, low, high))

    def _between(self, low: int, high: int) -> BestCapacities:
        self._scans += 1
        states = np.where(self._rank < low, _LIVE, np.where(self._rank >= high, _DEAD, _EITHER))
        return best_capacities(self._pieces, self._ends, self._groups, self._n_groups, states)


@jit
def _scan_capacities(capacity, slope_change, piece, end_states, groups, n_groups, states, beyond_all):
    error = np.zeros(n_groups, np.int64)
    # What a piece in state either gets wrong without capacity is what a dead one does: its hits.
    for i in range(groups.size):
        if groups[i] >= 0:
            error[groups[i]] += beyond_all[i]
    best = error.copy()
    low, high = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    at, slope = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    for end in range(capacity.size):
        i = piece[end]
        group = groups[i]
        if group < 0 or (end_states[end] >> states[i]) & 1 == 0:
            continue
        if capacity[end] > at[group]:
            error[group] += slope[group] * (capacity[end] - at[group])
            at[group] = capacity[end]
            if error[group] < best[group]:
                best[group] = error[group]
                low[group] = at[group]
                high[group] = at[group]
            elif error[group] == best[group]:
                high[group] = at[group]
        slope[group] += slope_change[end]
    for group in range(n_groups):
        if error[group] == best[group]:
            high[group] = NO_LIMIT
    return low, high, best


@jit
def _split_errors(capacity, slope_change, request, piece_request, beyond_all, splits):
    errors = np.empty(splits.size, np.int64)
    error, best = np.empty(2, np.int64), np.empty(2, np.int64)
    at, slope = np.empty(2, np.int64), np.empty(2, np.int64)
    for i in range(splits.size):
        split = splits[i]
        error[:] = 0
        for piece in range(piece_request.size):
            error[1 if piece_request[piece] >= split else 0] += beyond_all[piece]
        best[:] = error
        at[:] = 0
        slope[:] = 0
        for end in range(capacity.size):
            part = 1 if request[end] >= split else 0
            error[part] += slope[part] * (capacity[end] - at[part])
            at[part] = capacity[end]
            best[part] = min(best[part], error[part])
            slope[part] += slope_change[end]
        errors[i] = best[0] + best[1]
    return errors


@jit
def _scan_ranges(capacity, slope_change, piece, end_states, groups, most, states, beyond_all):
    n_groups = most.size
    error = np.zeros(n_groups, np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            error[groups[i]] += beyond_all[i]
    low, high = np.full(n_groups, np.int64(-1)), np.zeros(n_groups, np.int64)
    at, slope = np.zeros(n_groups, np.int64), np.zeros(n_groups, np.int64)
    for group in range(n_groups):
        if error[group] <= most[group]:
            low[group] = 0
    for end in range(capacity.size):
        i = piece[end]
        group = groups[i]
        if group < 0 or (end_states[end] >> states[i]) & 1 == 0:
            continue
        if capacity[end] > at[group]:
            before, rise = error[group], slope[group]
            after = before + rise * (capacity[end] - at[group])
            if low[group] < 0 and after <= most[group]:
                low[group] = at[group] - (before - most[group]) // rise
            if after <= most[group]:
                high[group] = capacity[end]
            elif before <= most[group]:
                high[group] = at[group] + (most[group] - before) // rise
            error[group] = after
            at[group] = capacity[end]
        slope[group] += slope_change[end]
    for group in range(n_groups):
        if error[group] <= most[group]:
            high[group] = NO_LIMIT
    return low, high

"""Reuse runs of a stream that was dealt to several instances, from the segments of the whole stream.

Once the stream's prefix segments are known, no block key is needed any more: every instance's LRU stack
distances follow from which of its requests touched a segment last. The instances are replayed one after
the other on one Fenwick tree, since what came before an instance lies at its bottom and cancels out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.copying import with_free_row
from kvcap.kernels.fenwick import fenwick_add, fenwick_prefix
from kvcap.kernels.reuse_runs import ReuseRuns
from kvcap.kernels.run_tables import WeightedRuns
from kvcap.kernels.segments import segment_starts

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array
    from kvcap.kernels.segments import SegmentPaths

_N_RUN_COLUMNS: Final = 6


def dealt_runs(paths: SegmentPaths, instances: Int32Array) -> ReuseRuns:
    """Return the reuse runs of every instance, each an LRU stack of its own.

    Parameters
    ----------
    paths : SegmentPaths
        The whole stream.
    instances : int32 (n_requests,)
        Where each request goes.

    Returns
    -------
    ReuseRuns
        By request, with the stream's own request numbers.

    Notes
    -----
    O(steps + runs log requests) time, O(segments + requests) memory, however many instances.
    """
    order = np.argsort(instances, kind="stable")
    first = np.searchsorted(instances[order], instances[order])
    columns = _replay(
        paths.path_offsets, paths.path_segments, paths.segment_blocks, order.astype(np.int64), first
    )
    by_request = np.argsort(columns[:, 0], kind="stable")
    return ReuseRuns(*(np.ascontiguousarray(columns[by_request, i]) for i in range(_N_RUN_COLUMNS)))


def blocks_in_caches(
    paths: SegmentPaths, instances: Int32Array, capacity_blocks: int, *, tail_first: bool
) -> tuple[int, int]:
    """Return the blocks in all caches after the last request, and how many of them differ.

    Parameters
    ----------
    paths, instances
        As for :func:`dealt_runs`.
    capacity_blocks
        Size of each instance's cache.
    tail_first
        Touch order.

    Notes
    -----
    O(steps + instances * segments).
    """
    held = np.zeros(len(paths.segment_blocks), np.int64)
    different = np.zeros(len(paths.segment_blocks), np.int64)
    starts = segment_starts(paths.segment_blocks, paths.segment_parents)
    for instance in np.unique(instances):
        _hold(
            paths.path_offsets,
            paths.path_segments,
            paths.segment_blocks,
            starts,
            np.flatnonzero(instances == instance),
            capacity_blocks,
            tail_first,
            held,
            different,
        )
    return int(held.sum()), int(different.sum())


def weigh_runs(runs: ReuseRuns, pieces: WeightedRuns) -> WeightedRuns:
    """Split runs where the tokens per block change, which other runs of the same requests tell.

    Parameters
    ----------
    runs : ReuseRuns
        By request, then position.
    pieces : WeightedRuns
        By request, then position; they cover every block of ``runs``. A run is split where they are.
    """
    cuts = _cut(
        runs.request, runs.first_block, runs.blocks, pieces.request, pieces.first_block, pieces.blocks
    )
    run, first_block = cuts[:, 0], np.ascontiguousarray(cuts[:, 1])
    return WeightedRuns(
        request=runs.request[run],
        source_request=runs.source_request[run],
        first_block=first_block,
        blocks=np.ascontiguousarray(cuts[:, 2]),
        tokens_per_block=pieces.tokens_per_block[cuts[:, 3]],
        depth=runs.depth[run] + first_block - runs.first_block[run],
        depth_head_first=runs.depth_head_first[run],
    )


@jit
def _replay(path_offsets, path_segments, segment_blocks, order, first):
    """Return runs as rows; ``order`` is by instance, ``first[i]`` where that of ``order[i]`` begins."""
    touchers = np.full(segment_blocks.size, -1, np.int64)
    tree = np.zeros(order.size + 1, np.int64)
    weights = np.zeros(order.size, np.int64)
    runs = np.empty((max(64, 2 * order.size), _N_RUN_COLUMNS), np.int64)
    n_runs, live = 0, 0
    for own in range(order.size):
        position, source, begin = 0, -1, n_runs
        for step in range(path_offsets[order[own]], path_offsets[order[own] + 1]):
            segment = path_segments[step]
            blocks = segment_blocks[segment]
            toucher = touchers[segment]
            touchers[segment] = own
            if toucher >= first[own]:
                if toucher != source:
                    source = toucher
                    runs = with_free_row(runs, n_runs)
                    above = live - fenwick_prefix(tree, source)
                    runs[n_runs, 0] = order[own]
                    runs[n_runs, 1] = source
                    runs[n_runs, 2] = position
                    runs[n_runs, 3] = 0
                    runs[n_runs, 4] = above
                    runs[n_runs, 5] = above + weights[source] - 1
                    n_runs += 1
                runs[n_runs - 1, 3] += blocks
            position += blocks
        for run in range(begin, n_runs):
            source = runs[run, 1]
            fenwick_add(tree, order.size, source, -runs[run, 3])
            weights[source] -= runs[run, 3]
            live -= runs[run, 3]
            runs[run, 1] = order[source]
        fenwick_add(tree, order.size, own, position)
        weights[own] = position
        live += position
    return runs[:n_runs]


@jit
def _hold(
    path_offsets, path_segments, segment_blocks, starts, requests, capacity, tail_first, held, different
):
    """Add what the cache of one instance holds of each segment, and raise the most that any one holds.

    Blocks of a segment are evicted from the same end everywhere, so the most is the union.
    """
    touchers = np.full(segment_blocks.size, -1, np.int64)
    ends = np.zeros(requests.size, np.int64)
    surviving = np.zeros(requests.size, np.int64)
    for own in range(requests.size):
        for step in range(path_offsets[requests[own]], path_offsets[requests[own] + 1]):
            touchers[path_segments[step]] = own
            ends[own] += segment_blocks[path_segments[step]]
    for segment in range(segment_blocks.size):
        if touchers[segment] >= 0:
            surviving[touchers[segment]] += segment_blocks[segment]
    kept = np.zeros(requests.size, np.int64)
    left = capacity
    for own in range(requests.size - 1, -1, -1):
        kept[own] = min(left, surviving[own])
        left -= kept[own]
    for segment in range(segment_blocks.size):
        own = touchers[segment]
        if own < 0:
            continue
        first, end = starts[segment], starts[segment] + segment_blocks[segment]
        if tail_first:
            end = min(end, ends[own] - surviving[own] + kept[own])
        else:
            first = max(first, ends[own] - kept[own])
        blocks = max(0, end - first)
        held[segment] += blocks
        different[segment] = max(different[segment], blocks)


@jit
def _cut(request, first_block, blocks, piece_request, piece_first_block, piece_blocks):
    """Return rows of run, first block, blocks and piece: what every run shares with every piece."""
    cuts = np.empty((request.size + 64, 4), np.int64)
    n, piece = 0, 0
    for run in range(request.size):
        block, end = first_block[run], first_block[run] + blocks[run]
        while block < end:
            piece_end = piece_first_block[piece] + piece_blocks[piece]
            if piece_request[piece] < request[run] or piece_end <= block:
                piece += 1
                continue
            cuts = with_free_row(cuts, n)
            stop = min(end, piece_end)
            cuts[n, 0] = run
            cuts[n, 1] = block
            cuts[n, 2] = stop - block
            cuts[n, 3] = piece
            n += 1
            block = stop
    return cuts[:n]

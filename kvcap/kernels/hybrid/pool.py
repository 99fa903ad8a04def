"""One pool of blocks for several groups of layers: a queue of what nobody uses, and where each copy is.

A *span* is a stretch of consecutive blocks of one group in one segment that were computed by one request and
share their fate: all of them wait in the queue, one behind the other with the deepest first, or the running
request uses them all. Spans are cut where that ends, so that work and memory go with spans, not with blocks.

Equal blocks are never merged: the spans of a segment are its copies, chained in the order in which they were
computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import inner_jit

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array

RING: Final = np.int64(0)
"""The row that closes the queue to a ring; as a link between copies: none."""
PRIVATE: Final = np.int64(-1)
"""The segment of blocks that no other request can find."""

_N_COLUMNS: Final = 8
START, END, SEGMENT, GROUP, OLDER, NEWER, EARLIER, LATER = range(_N_COLUMNS)
EMPTY, QUEUED, N_ROWS, FIRST_FREE = range(4)


class BlockPool(NamedTuple):
    """All blocks of a pool.

    Attributes
    ----------
    spans : int32 (n_rows, 8)
        First block and end (counted from the root, in the group's blocks), segment, group, neighbours in the
        queue, neighbours among the copies of a segment. Row 0 is the ring; ``NEWER`` chains free rows.
    copies : int32 (n_groups, n_segments, 2)
        First and last copy in each segment; 0 where there is none.
    counters : int64 (4,)
        Blocks that hold nothing, blocks in the queue, rows ever used, first free row (0: none).
    """

    spans: Int32Array
    copies: Int32Array
    counters: Int64Array


@inner_jit
def empty_pool(blocks, n_groups, n_segments):
    """Return a pool of blocks that hold nothing yet."""
    spans = np.zeros((1, _N_COLUMNS), np.int32)
    counters = np.zeros(4, np.int64)
    counters[EMPTY] = blocks
    counters[N_ROWS] = 1
    return BlockPool(spans, np.zeros((n_groups, n_segments, 2), np.int32), counters)


@inner_jit
def with_rows(pool, more):
    """Return a pool that has room for so many spans more."""
    spans, used = pool.spans, pool.counters[N_ROWS]
    if used + more <= spans.shape[0]:
        return pool
    larger = np.empty((2 * (used + more), _N_COLUMNS), np.int32)
    for row in range(used):
        for column in range(_N_COLUMNS):
            larger[row, column] = spans[row, column]
    return BlockPool(larger, pool.copies, pool.counters)


@inner_jit
def _new_row(pool, group, segment, start, end):
    counters, spans = pool.counters, pool.spans
    row = counters[FIRST_FREE]
    if row != RING:
        counters[FIRST_FREE] = spans[row, NEWER]
    else:
        row = counters[N_ROWS]
        counters[N_ROWS] += 1
    spans[row, START] = start
    spans[row, END] = end
    spans[row, SEGMENT] = segment
    spans[row, GROUP] = group
    return row


@inner_jit
def add_span(pool, group, segment, start, end):
    """Return a new span in use, the last copy of its blocks."""
    row = _new_row(pool, group, segment, start, end)
    if segment != PRIVATE:
        _link_copy(pool, row, np.int64(pool.copies[group, segment, 1]), RING)
    return row


@inner_jit
def _link_copy(pool, row, earlier, later):
    spans = pool.spans
    copies = pool.copies[spans[row, GROUP], spans[row, SEGMENT]]
    spans[row, EARLIER] = earlier
    spans[row, LATER] = later
    if earlier == RING:
        copies[0] = row
    else:
        spans[earlier, LATER] = row
    if later == RING:
        copies[1] = row
    else:
        spans[later, EARLIER] = row


@inner_jit
def _unlink_copy(pool, row):
    spans = pool.spans
    copies = pool.copies[spans[row, GROUP], spans[row, SEGMENT]]
    earlier, later = spans[row, EARLIER], spans[row, LATER]
    if earlier == RING:
        copies[0] = later
    else:
        spans[earlier, LATER] = later
    if later == RING:
        copies[1] = earlier
    else:
        spans[later, EARLIER] = earlier


@inner_jit
def cut_span(pool, row, block):
    """Cut a span that is not in the queue before a block; return the new span behind the cut."""
    spans = pool.spans
    group, segment = np.int64(spans[row, GROUP]), np.int64(spans[row, SEGMENT])
    rest = _new_row(pool, group, segment, block, np.int64(spans[row, END]))
    spans[row, END] = block
    if spans[row, SEGMENT] != PRIVATE:
        _link_copy(pool, rest, row, np.int64(spans[row, LATER]))
    return rest


@inner_jit
def cut_queued_span(pool, row, block):
    """Cut a span of the queue before a block; return the new span behind the cut, the older one."""
    rest = cut_span(pool, row, block)
    spans = pool.spans
    older = spans[row, OLDER]
    spans[rest, OLDER] = older
    spans[rest, NEWER] = row
    spans[older, NEWER] = rest
    spans[row, OLDER] = rest
    return rest


@inner_jit
def enqueue(pool, row):
    """Hand the blocks of a span back, to the young end of the queue."""
    spans = pool.spans
    newest = spans[RING, OLDER]
    spans[row, OLDER] = newest
    spans[row, NEWER] = RING
    spans[newest, NEWER] = row
    spans[RING, OLDER] = row
    pool.counters[QUEUED] += spans[row, END] - spans[row, START]


@inner_jit
def dequeue(pool, row):
    """Take a span off the queue."""
    spans = pool.spans
    spans[spans[row, OLDER], NEWER] = spans[row, NEWER]
    spans[spans[row, NEWER], OLDER] = spans[row, OLDER]
    pool.counters[QUEUED] -= spans[row, END] - spans[row, START]


@inner_jit
def take_blocks(pool, blocks):
    """Take blocks for something new: empty ones first, then the oldest of the queue, which forget."""
    counters, spans = pool.counters, pool.spans
    empty = min(blocks, counters[EMPTY])
    counters[EMPTY] -= empty
    blocks -= empty
    while blocks > 0:
        oldest = np.int64(spans[RING, NEWER])
        evicted = min(np.int64(spans[oldest, END] - spans[oldest, START]), blocks)
        blocks -= evicted
        counters[QUEUED] -= evicted
        spans[oldest, END] -= evicted
        if spans[oldest, END] == spans[oldest, START]:
            dequeue(pool, oldest)
            if spans[oldest, SEGMENT] != PRIVATE:
                _unlink_copy(pool, oldest)
            spans[oldest, NEWER] = counters[FIRST_FREE]
            counters[FIRST_FREE] = oldest


@inner_jit
def stretch_end(pool, group, segment, block, limit):
    """Return where the cached blocks from a block on end, at most ``limit``; itself if it is not."""
    spans = pool.spans
    row = pool.copies[group, segment, 0]
    while row != RING and block < limit:
        if spans[row, START] <= block < spans[row, END]:
            block = np.int64(spans[row, END])
            row = pool.copies[group, segment, 0]
        else:
            row = spans[row, LATER]
    return min(block, limit)


@inner_jit
def stretch_start(pool, group, segment, block):
    """Return where the cached blocks in front of a block begin; the block itself if the last is not."""
    spans = pool.spans
    row = pool.copies[group, segment, 0]
    while row != RING:
        if spans[row, START] < block <= spans[row, END]:
            block = np.int64(spans[row, START])
            row = pool.copies[group, segment, 0]
        else:
            row = spans[row, LATER]
    return block


@inner_jit
def last_cached(pool, group, segment, limit):
    """Return the end of the last cached block in front of ``limit``; 0 if there is none."""
    spans = pool.spans
    found = np.int64(0)
    row = pool.copies[group, segment, 0]
    while row != RING and found < limit:
        if spans[row, START] < limit:
            found = max(found, min(np.int64(spans[row, END]), limit))
        row = spans[row, LATER]
    return found


@inner_jit
def first_copy(pool, group, segment, block, limit):
    """Return the first copy of a cached block, and up to where, at most ``limit``, it is the first."""
    spans = pool.spans
    row = np.int64(pool.copies[group, segment, 0])
    while not spans[row, START] <= block < spans[row, END]:
        if spans[row, START] > block:
            limit = min(limit, np.int64(spans[row, START]))
        row = np.int64(spans[row, LATER])
    return row, min(limit, np.int64(spans[row, END]))

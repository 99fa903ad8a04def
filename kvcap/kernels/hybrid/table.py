"""The blocks of the running request, group by group: pieces of its block table.

A *piece* is a stretch of blocks that is either a span, which can be found by later requests, or *raw*:
computed, but not to be found. What is no longer needed, or never was, is a gap between pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.lookup import BLOCK, FULL, KIND, LOCAL, NEEDED, PERIOD, SPAN, WINDOW, step_of
from kvcap.kernels.hybrid.pool import (
    EMPTY,
    END,
    PRIVATE,
    SEGMENT,
    START,
    add_span,
    cut_queued_span,
    cut_span,
    dequeue,
    enqueue,
    first_copy,
)

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array

RAW: Final = np.int64(0)
_ROW: Final = 2
FRONT, COUNT, OWN, LENGTH, SEEN = range(5)


class Table(NamedTuple):
    """The block table of the running request.

    Attributes
    ----------
    pieces : int32 (n_groups, n_pieces, 3)
        First block, end, row of the span or ``RAW``; those from ``FRONT`` to ``COUNT`` are there.
    marks : int64 (n_groups, 5)
        First piece, end of pieces, first piece that the request computed itself, blocks of the table, and how
        many of these were looked at for what can be found.
    rest : int32 (n_pieces, 3)
        Pieces that are about to be put back.
    """

    pieces: Int32Array
    marks: Int64Array
    rest: Int32Array


@inner_jit
def empty_table(n_groups, most_blocks):
    """Return a table for requests of at most so many blocks in any group."""
    return Table(
        np.empty((n_groups, most_blocks, 3), np.int32),
        np.zeros((n_groups, 5), np.int64),
        np.empty((most_blocks, 3), np.int32),
    )


@inner_jit
def skipped_blocks(specs, group, tokens):
    """Return how many blocks in front the next token no longer sees once so many tokens are computed."""
    kind, block_tokens = specs.groups[group, KIND], specs.groups[group, BLOCK]
    if kind == FULL:
        return 0
    if kind == WINDOW:
        return max(0, tokens - specs.groups[group, SPAN] + 1) // block_tokens
    if kind == LOCAL:
        return tokens // specs.groups[group, SPAN] * specs.groups[group, SPAN] // block_tokens
    return max(0, tokens - 1) // block_tokens


@inner_jit
def _push(table, group, start, end, row):
    place = table.marks[group, COUNT]
    table.pieces[group, place, START] = start
    table.pieces[group, place, END] = end
    table.pieces[group, place, _ROW] = row
    table.marks[group, COUNT] += 1


@inner_jit
def _follows(table, group, start):
    """Whether there is a piece that the request computed and that ends at a block."""
    last = table.marks[group, COUNT] - 1
    return last >= max(table.marks[group, OWN], table.marks[group, FRONT]) and (
        table.pieces[group, last, END] == start
    )


@inner_jit
def push_raw(table, group, start, end):
    """Append blocks that are about to be computed."""
    if start == end:
        return
    last = table.marks[group, COUNT] - 1
    if _follows(table, group, start) and table.pieces[group, last, _ROW] == RAW:
        table.pieces[group, last, END] = end
    else:
        _push(table, group, start, end, RAW)


@inner_jit
def _push_findable(pool, path, table, specs, group, start, end):
    """Append computed blocks that later requests can find, segment by segment."""
    block_tokens = specs.groups[group, BLOCK]
    while start < end:
        step = step_of(path, (start + 1) * block_tokens - 1)
        segment, stop = PRIVATE, end
        if step < len(path.segments):
            segment = np.int64(path.segments[step])
            stop = min(end, path.ends[step + 1] // block_tokens)
        last = table.marks[group, COUNT] - 1
        row = RAW
        if _follows(table, group, start):
            row = np.int64(table.pieces[group, last, _ROW])
        if row != RAW and pool.spans[row, SEGMENT] == segment:
            pool.spans[row, END] = stop
            table.pieces[group, last, END] = stop
        else:
            _push(table, group, start, stop, add_span(pool, group, segment, start, stop))
        start = stop


@inner_jit
def begin(pool, path, table, specs, group, first, end):
    """Begin a group's table with cached blocks from ``first`` to ``end``, and gaps in front of them."""
    marks = table.marks[group]
    marks[FRONT] = 0
    marks[COUNT] = 0
    marks[LENGTH] = end
    marks[SEEN] = end
    block_tokens = specs.groups[group, BLOCK]
    block = first
    while block < end:
        segment = path.segments[step_of(path, (block + 1) * block_tokens - 1)]
        row, stop = first_copy(pool, group, segment, block, end)
        if pool.spans[row, START] < block:
            row = cut_queued_span(pool, row, block)
        if pool.spans[row, END] > stop:
            cut_queued_span(pool, row, stop)
        dequeue(pool, row)
        _push(table, group, block, stop, row)
        block = stop
    marks[OWN] = marks[COUNT]


@inner_jit
def _hand_back(pool, blocks, row):
    """Hand blocks back: to the young end of the queue what can be found, the others as empty ones."""
    if row == RAW:
        pool.counters[EMPTY] += blocks
    else:
        enqueue(pool, row)


@inner_jit
def free_front(pool, table, group, block):
    """Hand back everything in front of a block, the last one first."""
    pieces, marks = table.pieces[group], table.marks[group]
    front = marks[FRONT]
    stop = front
    while stop < marks[COUNT] and pieces[stop, START] < block:
        stop += 1
    marks[FRONT] = stop
    for place in range(stop - 1, front - 1, -1):
        start, end = np.int64(pieces[place, START]), np.int64(pieces[place, END])
        row = np.int64(pieces[place, _ROW])
        if end > block:
            if row != RAW:
                pieces[place, _ROW] = cut_span(pool, row, block)
            pieces[place, START] = block
            marks[FRONT] = place
        _hand_back(pool, min(end, block) - start, row)


@inner_jit
def free_all(pool, table, group):
    """Hand back everything, the last block first."""
    pieces, marks = table.pieces[group], table.marks[group]
    for place in range(marks[COUNT] - 1, marks[FRONT] - 1, -1):
        blocks = np.int64(pieces[place, END] - pieces[place, START])
        _hand_back(pool, blocks, np.int64(pieces[place, _ROW]))


@inner_jit
def _next_findable(group, prompt_end, junction_end, block, limit):
    """Return the next stretch of blocks, from one on and in front of a limit, that is kept to be found."""
    if group[KIND] == FULL or group[KIND] == LOCAL:
        return block, limit
    needed, period = group[NEEDED], group[PERIOD]
    start, end = limit, limit
    if period > 0:
        if needed >= period:
            return block, limit
        first = block - block % period + period - needed
        start, end = max(block, first), first + needed
    for stretch_end in (prompt_end, junction_end):
        if stretch_end > block and max(block, stretch_end - needed) < start:
            start, end = max(block, stretch_end - needed), stretch_end
    return start, min(end, limit)


@inner_jit
def make_findable(pool, path, table, specs, group, prompt_end, junction_end, limit):
    """Look at the blocks that were not looked at, up to a limit, and keep those that can be resumed from.

    ``prompt_end`` and ``junction_end`` are the blocks at whose ends windows and states are kept.
    """
    pieces, marks, rest = table.pieces[group], table.marks[group], table.rest
    seen = marks[SEEN]
    if limit <= seen:
        return
    marks[SEEN] = limit
    first = marks[COUNT]
    while first > marks[FRONT] and pieces[first - 1, END] > seen:
        first -= 1
    n_rest = marks[COUNT] - first
    for place in range(n_rest):
        for column in range(3):
            rest[place, column] = pieces[first + place, column]
    marks[COUNT] = first
    for place in range(n_rest):
        start, end = np.int64(rest[place, START]), np.int64(rest[place, END])
        stop = min(end, limit)
        while start < stop:
            kept, kept_end = _next_findable(
                specs.groups[group], prompt_end, junction_end, max(start, seen), stop
            )
            kept = min(kept, stop)
            push_raw(table, group, start, kept)
            if kept < stop:
                _push_findable(pool, path, table, specs, group, kept, kept_end)
                start = kept_end
            else:
                start = stop
        push_raw(table, group, max(start, stop), end)

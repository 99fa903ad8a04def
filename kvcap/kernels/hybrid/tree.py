"""A radix tree of tokens whose nodes may also have window content or a state, with an order of use for each.

A node is a span of tokens that came in together and that nothing has parted since. Positions are depths in
tokens. Nodes whose first page ends in a segment form its *home* list, in which a child is found by where it
starts; pages that are not all of a prompt, or that no id covers, have a home of their request's own.

In order of use a node stands where it was last touched. One touch moves a chain of nodes, the deepest
first, so that the oldest nodes are nearly always leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kvcap.kernels._jit import inner_jit
from kvcap.kernels.hybrid.lookup import step_of

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array

ROOT: Final = np.int64(0)
"""The row of the root, which also closes every order to a ring; as a link: none."""

_N_COLUMNS: Final = 19
(
    START,
    END,
    PARENT,
    CHILDREN,
    REQUEST,
    HOME,
    HOME_BEFORE,
    HOME_AFTER,
    LOCKED,
    WINDOW,
    WINDOW_LOCKED,
    STATE,
    STATE_LOCKED,
) = range(_N_COLUMNS - 6)
USE: Final = np.int64(13)
WINDOW_USE: Final = np.int64(15)
STATE_USE: Final = np.int64(17)
FREE, WINDOW_FREE, STATES_FREE, N_ROWS, FIRST_FREE, LOCKED_AT = range(6)


class Paths(NamedTuple):
    """The prompts of all requests.

    Attributes
    ----------
    offsets, segments : int64 (n_requests + 1,), int32 (n_steps,)
        As in :class:`~kvcap.kernels.segments.SegmentPaths`.
    segment_tokens : int64 (n_segments,)
        Tokens that each segment covers.
    covered : int64 (n_requests,)
        Tokens of each prompt that ids cover.
    """

    offsets: Int64Array
    segments: Int32Array
    segment_tokens: Int64Array
    covered: Int64Array


class RadixTree(NamedTuple):
    """The tree and what is left of its pools.

    Attributes
    ----------
    nodes : int64 (n_rows, 19)
        First token and end; parent, number of children; the request that the tokens came from; home and
        neighbours in it; whether a running request holds the node; whether it has window content, and that is
        held; the same of a state; for each of three orders the next older and the next newer node.
    homes : int64 (n_segments + n_requests,)
        First node at each home, or 0.
    counters : int64 (6,)
        Free tokens, free window tokens, free states, rows ever used, first free row, locked node.
    page : int
        Tokens that nodes are multiples of.
    """

    nodes: Int64Array
    homes: Int64Array
    counters: Int64Array
    page: int


@inner_jit
def empty_tree(tokens, window_tokens, states, n_homes, page):
    """Return a tree without nodes."""
    counters = np.zeros(6, np.int64)
    counters[FREE] = tokens
    counters[WINDOW_FREE] = window_tokens
    counters[STATES_FREE] = states
    counters[N_ROWS] = 1
    return RadixTree(np.zeros((1, _N_COLUMNS), np.int64), np.zeros(n_homes, np.int64), counters, page)


@inner_jit
def with_nodes(tree, more):
    """Return a tree that has room for so many nodes more."""
    nodes, used = tree.nodes, tree.counters[N_ROWS]
    if used + more <= nodes.shape[0]:
        return tree
    larger = np.empty((2 * (used + more), _N_COLUMNS), np.int64)
    for row in range(used):
        for column in range(_N_COLUMNS):
            larger[row, column] = nodes[row, column]
    return RadixTree(larger, tree.homes, tree.counters, tree.page)


@inner_jit
def order_remove(nodes, order, node):
    """Take a node out of an order."""
    nodes[nodes[node, order], order + 1] = nodes[node, order + 1]
    nodes[nodes[node, order + 1], order] = nodes[node, order]


@inner_jit
def order_insert(nodes, order, newer, node):
    """Put a node right before a newer one; ``ROOT`` makes it the newest."""
    older = nodes[newer, order]
    nodes[node, order] = older
    nodes[node, order + 1] = newer
    nodes[older, order + 1] = node
    nodes[newer, order] = node


@inner_jit
def _touch(nodes, order, node):
    order_remove(nodes, order, node)
    order_insert(nodes, order, ROOT, node)


@inner_jit
def touch_path(tree, node):
    """Make a node and its ancestors the newest, the node itself the oldest of them."""
    while node != ROOT:
        _touch(tree.nodes, USE, node)
        node = tree.nodes[node, PARENT]


@inner_jit
def _home_of(tree, paths, request, start):
    """Return the home of a node with tokens of a request."""
    last = start + tree.page - 1
    if last >= paths.covered[request]:
        return len(paths.segment_tokens) + request
    step = paths.offsets[request]
    end = paths.segment_tokens[paths.segments[step]]
    while end <= last:
        step += 1
        end += paths.segment_tokens[paths.segments[step]]
    return np.int64(paths.segments[step])


@inner_jit
def _enter_home(tree, home, node):
    nodes = tree.nodes
    first = tree.homes[home]
    nodes[node, HOME] = home
    nodes[node, HOME_BEFORE] = ROOT
    nodes[node, HOME_AFTER] = first
    if first != ROOT:
        nodes[first, HOME_BEFORE] = node
    tree.homes[home] = node


@inner_jit
def leave_home(tree, node):
    """Take a node off the list of its home."""
    nodes = tree.nodes
    before, after = nodes[node, HOME_BEFORE], nodes[node, HOME_AFTER]
    if before == ROOT:
        tree.homes[nodes[node, HOME]] = after
    else:
        nodes[before, HOME_AFTER] = after
    if after != ROOT:
        nodes[after, HOME_BEFORE] = before


@inner_jit
def find_child(tree, paths, path, request, start):
    """Return the node that goes on with a request's tokens at ``start``, or ``ROOT``."""
    last = start + tree.page - 1
    if last < paths.covered[request]:
        home = np.int64(path.segments[step_of(path, last)])
    else:
        home = len(paths.segment_tokens) + request
    node = tree.homes[home]
    while node != ROOT and tree.nodes[node, START] != start:
        node = tree.nodes[node, HOME_AFTER]
    return node


@inner_jit
def shared_tokens(tree, paths, path, request, node, end):
    """Return how many tokens, in whole pages, a node shares with a request's first ``end``."""
    start, stop = tree.nodes[node, START], min(tree.nodes[node, END], end)
    other = tree.nodes[node, REQUEST]
    if other != request:
        stop = min(stop, paths.covered[request], paths.covered[other])
        step, place = step_of(path, start), start
        others = paths.segments[paths.offsets[other] : paths.offsets[other + 1]]
        while place < stop and path.segments[step] == others[step]:
            place = min(stop, path.ends[step + 1])
            step += 1
        stop = place
    return (stop - start) // tree.page * tree.page


@inner_jit
def add_node(tree, paths, request, start, end, parent):
    """Return a new leaf with tokens of a request, the newest of all."""
    nodes, counters = tree.nodes, tree.counters
    node = counters[FIRST_FREE]
    if node != ROOT:
        counters[FIRST_FREE] = nodes[node, HOME_AFTER]
    else:
        node = counters[N_ROWS]
        counters[N_ROWS] += 1
    for column in range(_N_COLUMNS):
        nodes[node, column] = 0
    nodes[node, START] = start
    nodes[node, END] = end
    nodes[node, PARENT] = parent
    nodes[node, REQUEST] = request
    nodes[parent, CHILDREN] += 1
    _enter_home(tree, _home_of(tree, paths, request, start), node)
    order_insert(nodes, USE, ROOT, node)
    return node


@inner_jit
def split_node(tree, paths, node, tokens):
    """Cut so many tokens off a node's front, with its window content; return the new front.

    The rest keeps the node's id and its state, and counts as just used.
    """
    nodes = tree.nodes
    request, start, parent = nodes[node, REQUEST], nodes[node, START], nodes[node, PARENT]
    leave_home(tree, node)
    nodes[node, START] = start + tokens
    _enter_home(tree, _home_of(tree, paths, request, start + tokens), node)
    _touch(nodes, USE, node)
    front = add_node(tree, paths, request, start, start + tokens, parent)
    nodes[parent, CHILDREN] -= 1
    nodes[node, PARENT] = front
    nodes[front, CHILDREN] = 1
    if nodes[node, WINDOW] != 0:
        nodes[front, WINDOW] = 1
        order_insert(nodes, WINDOW_USE, node, front)
    return front

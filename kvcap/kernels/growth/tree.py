"""The prefix tree of a trace by session: who shares what, and what a copy of them shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import BoolArray, Int64Array
from kvcap.kernels.growth.draws import LEAVE, STRETCH, draw, draw_base

_ROOT = -1


class SessionTree(NamedTuple):
    """Prefixes and who touched them: int64 arrays of shape (n_nodes,).

    Attributes
    ----------
    parent
        The prefix without the last block; -1 for a first block.
    sessions
        How many different sessions touched it.
    first_session, last_session
        The smallest and the largest of their numbers.
    """

    parent: Int64Array
    sessions: Int64Array
    first_session: Int64Array
    last_session: Int64Array


@jit
def _session_tree(nodes, offsets, session, by_session, n_nodes):
    parent = np.full(n_nodes, _ROOT, np.int64)
    sessions = np.zeros(n_nodes, np.int64)
    first = np.full(n_nodes, -1, np.int64)
    last = np.full(n_nodes, -1, np.int64)
    # Session after session, so that the last one to touch a node says whether this one is new.
    for request in by_session:
        above = np.int64(_ROOT)
        for place in range(offsets[request], offsets[request + 1]):
            node = nodes[place]
            parent[node] = above
            if last[node] != session[request]:
                if sessions[node] == 0:
                    first[node] = session[request]
                last[node] = session[request]
                sessions[node] += 1
            above = node
    return parent, sessions, first, last


def session_tree(nodes: Int64Array, offsets: Int64Array, session: Int64Array, n_nodes: int) -> SessionTree:
    """Return the tree of the paths of some requests.

    Parameters
    ----------
    nodes, offsets
        Request r touches ``nodes[offsets[r]:offsets[r + 1]]``.
    session : int64 (n_requests,)
        The session of each, from 0.
    n_nodes
        One more than the largest node.
    """
    by_session = np.argsort(session, kind="stable")
    return SessionTree(*_session_tree(nodes, offsets, session, by_session, np.int64(n_nodes)))


@jit
def _stretches(parent, sessions):
    n_nodes = parent.size
    start = np.empty(n_nodes, np.int64)
    length = np.zeros(n_nodes, np.int64)
    for node in range(n_nodes):
        if sessions[node] == 2:
            above = parent[node]
            start[node] = start[above] if above >= 0 and sessions[above] == 2 else node
            length[start[node]] += 1
    return length[length > 0]


def shared_stretches(tree: SessionTree) -> Int64Array:
    """Return the lengths of the subtrees that exactly two sessions share, in order of their first nodes."""
    lengths: Int64Array = _stretches(tree.parent, tree.sessions)
    return lengths


@jit
def _product_is_less(a, b, c):
    """Whether ``a * b < c << 53``, exactly: a below 2 ** 53, b and c below 2 ** 63, all uint64."""
    half, low_half = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low_half, b >> half, b & low_half
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    other = a_low * b_high + (middle & low_half)
    product_high = a_high * b_high + (middle >> half) + (other >> half)
    product_low = (other << half) | (low & low_half)
    high, low = c >> np.uint64(11), c << np.uint64(53)
    return product_high < high or (product_high == high and product_low < low)


@jit
def _common_nodes(parent, sessions, stretches, leave, stretch):
    n_nodes = parent.size
    # Row 0 is the root.
    kids = np.zeros(n_nodes + 1, np.int64)
    ones = np.zeros(n_nodes + 1, np.int64)
    for node in range(n_nodes):
        kids[parent[node] + 1] += 1
        ones[parent[node] + 1] += sessions[node] == 1
    common = np.zeros(n_nodes, np.bool_)
    left = np.zeros(n_nodes, np.int64)
    for node in range(n_nodes):
        above, count = parent[node], sessions[node]
        if above >= 0 and not common[above]:
            continue
        if count == 1 and above >= 0 and sessions[above] == 1:
            common[node] = left[above] > 1
            left[node] = left[above] - 1
            continue
        drawn = draw(leave, node) >> np.uint64(11)
        if _product_is_less(drawn, np.uint64(count * kids[above + 1]), np.uint64(ones[above + 1])):
            continue
        if count == 1:
            if stretches.size == 0:
                continue
            left[node] = stretches[draw(stretch, node) % np.uint64(stretches.size)]
        common[node] = True
    return common


def common_nodes(tree: SessionTree, stretches: Int64Array, seed: int, round_number: int) -> BoolArray:
    """Return which nodes a copy of all sessions shares with them: bool (n_nodes,).

    Parameters
    ----------
    tree
        The prefixes, and how many sessions touched each.
    stretches : int64 (n_stretches,)
        Lengths from which the copy takes how far it follows what one session alone has.
    seed, round_number
        Of the draws.

    Notes
    -----
    At each branch the copy leaves for content of its own with the probability that the next visitor would:
    the share of children that one session touched (Good 1953, the Good-Turing estimate of unseen mass).
    """
    common: BoolArray = _common_nodes(
        tree.parent,
        tree.sessions,
        stretches,
        draw_base(seed, round_number, LEAVE),
        draw_base(seed, round_number, STRETCH),
    )
    return common

"""A hash table from the key of a node's first block to the node, that grows by one bucket at a time.

Nodes of one bucket are chained. Linear hashing (Litwin 1980): a new bucket takes its share out of one old
bucket, so that no insertion ever has to wait for a table to be built anew.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.tree_state import BUCKET_MASK, KEY, N_BUCKETS, NEXT

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


@jit
def _bucket(counters, key):
    mixed = key * _GOLDEN
    mixed = (mixed ^ (mixed >> _HALF)) * _GOLDEN
    bucket = np.int64(mixed >> _HALF) & counters[BUCKET_MASK]
    if bucket < counters[N_BUCKETS]:
        return bucket
    return bucket & (counters[BUCKET_MASK] >> 1)


@jit
def find_node(state, key):
    """Return the node that begins with a key, or -1."""
    nodes = state.nodes
    wanted = np.int64(key)
    node = state.buckets[_bucket(state.counters, key)]
    while node >= 0 and nodes[node, KEY] != wanted:
        node = nodes[node, NEXT]
    return node


@jit
def link_node(state, node):
    """Enter a node under its key."""
    bucket = _bucket(state.counters, np.uint64(state.nodes[node, KEY]))
    state.nodes[node, NEXT] = state.buckets[bucket]
    state.buckets[bucket] = node


@jit
def unlink_node(state, node):
    """Take a node out."""
    nodes = state.nodes
    bucket = _bucket(state.counters, np.uint64(nodes[node, KEY]))
    other = state.buckets[bucket]
    if other == node:
        state.buckets[bucket] = nodes[node, NEXT]
        return
    while nodes[other, NEXT] != node:
        other = nodes[other, NEXT]
    nodes[other, NEXT] = nodes[node, NEXT]


@jit
def add_buckets(state, wanted):
    """Add buckets up to a number that the array has room for."""
    counters = state.counters
    while counters[N_BUCKETS] < wanted:
        bucket = counters[N_BUCKETS]
        if bucket > counters[BUCKET_MASK]:
            counters[BUCKET_MASK] = 2 * counters[BUCKET_MASK] + 1
        state.buckets[bucket] = -1
        counters[N_BUCKETS] += 1
        if bucket > 0:
            _split_bucket(state, bucket & (counters[BUCKET_MASK] >> 1))


@jit
def _split_bucket(state, bucket):
    node = state.buckets[bucket]
    state.buckets[bucket] = -1
    while node >= 0:
        following = state.nodes[node, NEXT]
        link_node(state, node)
        node = following

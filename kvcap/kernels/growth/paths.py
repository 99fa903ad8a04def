"""What happens to the paths of requests: sessions found in them, own parts stretched, turns added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.growth.draws import DONOR, draw, draw_base

_NOBODY = -1
_SEVERAL = -2


@jit
def _derived_sessions(nodes, offsets, n_nodes):
    owner = np.full(n_nodes, _NOBODY, np.int64)
    last = np.zeros(n_nodes, np.int64)
    sessions = np.empty(offsets.size - 1, np.int64)
    n_sessions = 0
    for request in range(offsets.size - 1):
        path = nodes[offsets[request] : offsets[request + 1]]
        known = 0
        while known < path.size and owner[path[known]] != _NOBODY:
            known += 1
        found = np.int64(_NOBODY)
        if known > 0:
            deepest = path[known - 1]
            earlier = last[deepest]
            if owner[deepest] >= 0 and known >= offsets[earlier + 1] - offsets[earlier] - 1:
                found = owner[deepest]
        if found < 0:
            found = np.int64(n_sessions)
            n_sessions += 1
        sessions[request] = found
        for node in path:
            if owner[node] == _NOBODY:
                owner[node] = found
            elif owner[node] != found:
                owner[node] = _SEVERAL
            last[node] = request
    return sessions


def derived_sessions(nodes: Int64Array, offsets: Int64Array, n_nodes: int) -> Int64Array:
    """Return the session of each request by its prefixes alone: int64 (n_requests,), from 0 as they open.

    A request continues the session that alone touched the deepest node that the request knows, if it knows
    all but the last block of the request that touched that node last; else it opens a session.
    """
    sessions: Int64Array = _derived_sessions(nodes, offsets, np.int64(n_nodes))
    return sessions


@jit
def own_lengths(nodes, offsets, sessions):
    """Return how many blocks of each request other sessions touched too: they lead its path.

    nodes : int64 (n,), offsets : int64 (n_requests + 1,), sessions : int64 (n_nodes,) -> int64 (n_requests,)
    """
    shared = np.zeros(offsets.size - 1, np.int64)
    for request in range(offsets.size - 1):
        for place in range(offsets[request], offsets[request + 1]):
            shared[request] += sessions[nodes[place]] > 1
    return shared


@jit
def stretched_nodes(parent, sessions, numerator, denominator):
    """Return how many blocks each node becomes: the d-th of an own part ``floor(d c) - floor((d - 1) c)``.

    parent, sessions : int64 (n_nodes,) -> int64 (n_nodes,); what sessions share stays one block.
    """
    depth = np.zeros(parent.size, np.int64)
    copies = np.ones(parent.size, np.int64)
    for node in range(parent.size):
        if sessions[node] == 1:
            depth[node] = 1 + (depth[parent[node]] if parent[node] >= 0 else 0)
            copies[node] = depth[node] * numerator // denominator
            copies[node] -= (depth[node] - 1) * numerator // denominator
    return copies


@jit
def repeated_paths(nodes, offsets, copies, first_copy):
    """Return paths in which each node is replaced by its copies, and their offsets.

    nodes : int64 (n,), offsets : int64 (n_requests + 1,), copies, first_copy : int64 (n_nodes,)
    """
    new_offsets = np.zeros(offsets.size, np.int64)
    for request in range(offsets.size - 1):
        new_offsets[request + 1] = new_offsets[request]
        for place in range(offsets[request], offsets[request + 1]):
            new_offsets[request + 1] += copies[nodes[place]]
    new_nodes = np.empty(new_offsets[-1], np.int64)
    filled = 0
    for node in nodes:
        for copy in range(copies[node]):
            new_nodes[filled] = first_copy[node] + copy
            filled += 1
    return new_nodes, new_offsets


class TurnSteps(NamedTuple):
    """What turns of a log do to the path of the turn before: int64 arrays of shape (n_steps,)."""

    dropped_blocks: Int64Array
    added_blocks: Int64Array
    pause_us: Int64Array


@jit
def _turn_steps(nodes, offsets, time_us, before, after, shared):
    steps = np.empty((before.size, 3), np.int64)
    n_steps = 0
    for pair in range(before.size):
        earlier, later = before[pair], after[pair]
        x = nodes[offsets[earlier] : offsets[earlier + 1]]
        y = nodes[offsets[later] : offsets[later + 1]]
        agree = 0
        while agree < min(x.size, y.size) and x[agree] == y[agree]:
            agree += 1
        if agree > 0 and agree >= shared[earlier]:
            steps[n_steps, 0] = x.size - agree
            steps[n_steps, 1] = y.size - agree
            steps[n_steps, 2] = time_us[later] - time_us[earlier]
            n_steps += 1
    return steps[:n_steps]


def turn_steps(
    nodes: Int64Array,
    offsets: Int64Array,
    time_us: Int64Array,
    consecutive: tuple[Int64Array, Int64Array],
    shared: Int64Array,
) -> TurnSteps:
    """Return the steps from turns to the next ones of their sessions that continue an own part.

    Parameters
    ----------
    nodes, offsets, time_us
        Paths and times of requests.
    consecutive : int64 (n_pairs,), int64 (n_pairs,)
        The requests before and after each step.
    shared : int64 (n_requests,)
        Blocks of each request that other sessions touched too.
    """
    steps = _turn_steps(nodes, offsets, time_us, *consecutive, shared)
    return TurnSteps(*(np.ascontiguousarray(steps[:, column]) for column in range(3)))


@jit
def _added_turns(nodes, offsets, last, turns, wanted, time_us, shared, steps, base):
    dropped_blocks, added_blocks, pause_us = steps
    n_steps = np.uint64(dropped_blocks.size)
    n_new = 0
    for session in range(last.size):
        n_new += max(0, wanted[session] - turns[session])
    step = np.empty(n_new, np.int64)
    kept = np.empty(n_new, np.int64)
    new_time = np.empty(n_new, np.int64)
    origin = np.empty(n_new, np.int64)
    new_offsets = np.zeros(n_new + 1, np.int64)
    new = 0
    for session in range(last.size):
        request = last[session]
        length, time = offsets[request + 1] - offsets[request], time_us[request]
        for turn in range(turns[session], wanted[session]):
            chosen = np.int64(draw(base, session * 4096 + turn) % n_steps)
            kept[new] = max(shared[request], length - dropped_blocks[chosen])
            length = kept[new] + added_blocks[chosen]
            time += pause_us[chosen]
            new_time[new], origin[new], step[new] = time, request, chosen
            new_offsets[new + 1] = new_offsets[new] + length
            new += 1
    new_nodes = np.empty(new_offsets[-1], np.int64)
    fresh = nodes.max() + 1
    for new in range(n_new):
        if new > 0 and origin[new - 1] == origin[new]:
            before = new_nodes[new_offsets[new - 1] :]
        else:
            before = nodes[offsets[origin[new]] :]
        begin = new_offsets[new]
        for block in range(kept[new]):
            new_nodes[begin + block] = before[block]
        for place in range(begin + kept[new], new_offsets[new + 1]):
            new_nodes[place] = fresh
            fresh += 1
    return new_nodes, new_offsets, new_time, origin


def added_turns(
    nodes: Int64Array,
    offsets: Int64Array,
    time_us: Int64Array,
    turns: tuple[Int64Array, Int64Array, Int64Array],
    shared: Int64Array,
    steps: TurnSteps,
    seed: int,
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return paths, offsets, times and the last recorded turns of the turns that sessions go on with.

    Parameters
    ----------
    nodes, offsets, time_us, shared
        As for :func:`turn_steps`.
    turns : int64 (n_sessions,) each
        The last request of each session, how many turns it has, and how many it is to have.
    steps
        At least one; each new turn takes a random one.
    seed
        Of the draws.
    """
    base = draw_base(seed, 1, DONOR)
    last, has, wanted = turns
    found: tuple[Int64Array, Int64Array, Int64Array, Int64Array] = _added_turns(
        nodes, offsets, last, has, wanted, time_us, shared, tuple(steps), base
    )
    return found

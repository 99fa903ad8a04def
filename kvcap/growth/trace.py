"""A trace as growth sees it: which prefixes each request touches, in which session, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.growth.tree import SessionTree, session_tree
from kvcap.kernels.id_table import IdTable
from kvcap.kernels.keys import take_requests


@dataclass(frozen=True)
class PathTrace:
    """Requests as paths of prefixes.

    Attributes
    ----------
    nodes : int64 (n_accesses,)
        Equal node, equal prefix.
    offsets : int64 (n_requests + 1,)
        Request r touches ``nodes[offsets[r]:offsets[r + 1]]``.
    time_us : int64 (n_requests,)
        When it arrived, in microseconds.
    session : int64 (n_requests,)
        Whose it is, from 0.
    input_tokens, covered_tokens : int64 (n_requests,)
        Length of the prompt, and what its blocks cover of it: block i weighs
        ``covered_tokens - i * block_size``, at least 1 and at most ``block_size``.
    block_size
        Tokens of a full block.
    """

    nodes: Int64Array
    offsets: Int64Array
    time_us: Int64Array
    session: Int64Array
    input_tokens: Int64Array
    covered_tokens: Int64Array
    block_size: int

    @property
    def n_requests(self) -> int:
        """How many requests there are."""
        return self.time_us.size

    @property
    def n_nodes(self) -> int:
        """One more than the largest node."""
        return int(self.nodes.max(initial=-1)) + 1

    @property
    def n_sessions(self) -> int:
        """One more than the largest session."""
        return int(self.session.max(initial=-1)) + 1

    @property
    def span_us(self) -> int:
        """Time from the first request to the last."""
        return int(self.time_us.max() - self.time_us.min()) if self.n_requests else 0

    def tree(self) -> SessionTree:
        """Return the prefixes by session, of a canonical trace."""
        return session_tree(self.nodes, self.offsets, self.session, self.n_nodes)


def taken(trace: PathTrace, chosen: Int64Array) -> PathTrace:
    """Return some requests of a trace, in the order given."""
    nodes, offsets = take_requests(trace.nodes, trace.offsets, np.ascontiguousarray(chosen, np.int64))
    return replace(
        trace,
        nodes=nodes,
        offsets=offsets,
        time_us=trace.time_us[chosen],
        session=trace.session[chosen],
        input_tokens=trace.input_tokens[chosen],
        covered_tokens=trace.covered_tokens[chosen],
    )


def put_together(first: PathTrace, second: PathTrace) -> PathTrace:
    """Return the requests of both in order of time, those of the first before the second's at equal times.

    Nodes and sessions are taken as they are; the result is canonical.
    """
    both = replace(
        first,
        nodes=np.concatenate([first.nodes, second.nodes]),
        offsets=np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]]),
        time_us=np.concatenate([first.time_us, second.time_us]),
        session=np.concatenate([first.session, second.session]),
        input_tokens=np.concatenate([first.input_tokens, second.input_tokens]),
        covered_tokens=np.concatenate([first.covered_tokens, second.covered_tokens]),
    )
    return in_time_order(both)


def in_time_order(trace: PathTrace) -> PathTrace:
    """Return the requests in order of time, those of equal times as they stood; the result is canonical."""
    return canonical(taken(trace, np.argsort(trace.time_us, kind="stable")))


def canonical(trace: PathTrace) -> PathTrace:
    """Return a trace with nodes and sessions numbered from 0 as they first appear."""
    return replace(trace, nodes=_numbered(trace.nodes), session=_numbered(trace.session))


def _numbered(values: Int64Array) -> Int64Array:
    return IdTable().add(values.view(np.uint64)).view(np.int64)


def with_paths(trace: PathTrace, nodes: Int64Array, offsets: Int64Array) -> PathTrace:
    """Return requests with other paths, weighed as the originals: full blocks, and the last as the last was.

    A request that had no blocks gets full ones.
    """
    more_tokens = (np.diff(offsets) - np.diff(trace.offsets)) * trace.block_size
    covered = np.clip(trace.covered_tokens + more_tokens, 0, np.diff(offsets) * trace.block_size)
    input_tokens = covered + trace.input_tokens - trace.covered_tokens
    return replace(trace, nodes=nodes, offsets=offsets, covered_tokens=covered, input_tokens=input_tokens)

"""Dynamo's KV router: the least cost of a prompt's computation and of what runs beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvcap.kernels.dealing import leading_hits, new_caches, touch_path
from kvcap.routers.rule import Instances, Prompts, Rule, least

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int64Array


class DynamoKv(Rule):
    """Aggregated workers whose caches send events, temperature 0.

    A prompt's blocks are held from its first token on, by an LRU cache.

    Notes
    -----
    The cost of an instance, in blocks: prefill-load-scale * (prompt tokens that wait for their first token
    there, with this prompt's, less overlap-score-credit * the blocks of it that are held there) + different
    full prompt blocks that would run there + decode-active-request-weight * requests there.
    """

    def __init__(self, prompts: Prompts, instances: Instances, parameters: Mapping[str, float]) -> None:
        super().__init__(prompts, instances, parameters)
        n_instances = instances.n_instances
        blocks = prompts.paths.segment_blocks
        offsets = prompts.paths.path_offsets
        self._full_blocks = prompts.tokens // prompts.block_tokens
        self._segment_full_blocks = blocks.copy()
        ended = np.flatnonzero(np.diff(offsets))
        ends = prompts.paths.path_segments[offsets[ended + 1] - 1]
        self._segment_full_blocks[ends[prompts.segment_ends[ends] > self._full_blocks[ended]]] -= 1
        self._capacity_blocks = instances.capacity_blocks
        self._tail_first = instances.tail_first
        self._caches = new_caches(n_instances, blocks.size, prompts.tokens.size)
        self._running = np.zeros((n_instances, blocks.size), np.int32)
        self._running_blocks = np.zeros(n_instances, np.int64)
        self._waiting_tokens = np.zeros(n_instances, np.int64)
        self._requests = np.zeros(n_instances, np.int64)
        self._instances: dict[int, int] = {}
        self._own_waiting_tokens: dict[int, int] = {}

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        return least(self._costs(request), range(self.n_instances))

    def take(self, request: int, instance: int) -> None:
        """Note where a request went."""
        tokens = int(self.prompts.tokens[request])
        held = self.overlap(request, instance) * self.prompts.block_tokens
        waiting = tokens - min(tokens, held)
        self._instances[request] = instance
        self._own_waiting_tokens[request] = waiting
        self._waiting_tokens[instance] += waiting
        self._requests[instance] += 1
        path = self.prompts.path(request)
        self._running_blocks[instance] += self._new_running_blocks(request)[instance]
        self._running[instance, path] += 1

    def see_first_token(self, request: int) -> None:
        """Note that a request's prompt was computed."""
        instance = self._instances[request]
        self._waiting_tokens[instance] -= self._own_waiting_tokens.pop(request)
        touch_path(
            self._caches,
            instance,
            request,
            self.prompts.path(request),
            self.prompts.paths.segment_blocks,
            self._capacity_blocks,
        )

    def see_end(self, request: int) -> None:
        """Note that a request was answered."""
        instance = self._instances.pop(request)
        self._requests[instance] -= 1
        path = self.prompts.path(request)
        self._running[instance, path] -= 1
        gone = path[self._running[instance, path] == 0]
        self._running_blocks[instance] -= self._segment_full_blocks[gone].sum()

    def _costs(self, request: int) -> list[float]:
        """Return the cost of a request on every instance."""
        given, block_tokens = self.parameters, self.prompts.block_tokens
        tokens = int(self.prompts.tokens[request])
        running = (self._running_blocks + self._new_running_blocks(request)).tolist()
        lowest = int(self._waiting_tokens.min())
        costs = []
        for instance in range(self.n_instances):
            waiting = int(self._waiting_tokens[instance])
            credit = given["overlap-score-credit"]
            if given["overlap-score-credit-decay"]:
                excess = (waiting - lowest) / block_tokens / max(1, -(-tokens // block_tokens))
                credit /= 1 + given["overlap-score-credit-decay"] * excess
            to_compute = (waiting + tokens) / block_tokens - credit * self.overlap(request, instance)
            costs.append(
                given["prefill-load-scale"] * max(0.0, to_compute)
                + running[instance]
                + given["decode-active-request-weight"] * int(self._requests[instance])
            )
        return costs

    def overlap(self, request: int, instance: int) -> int:
        """Return how many leading full blocks of a prompt an instance holds."""
        hits = leading_hits(
            self._caches,
            instance,
            self.prompts.path(request),
            self.prompts.paths.segment_blocks,
            self._tail_first,
        )
        return min(int(hits), int(self._full_blocks[request]))

    def _new_running_blocks(self, request: int) -> Int64Array:
        """Return the full blocks of a prompt that do not run on each instance yet."""
        path = self.prompts.path(request)
        blocks: Int64Array = (self._running[:, path] == 0) @ self._segment_full_blocks[path]
        return blocks

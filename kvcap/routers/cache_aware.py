"""Routers that compare a prompt with a radix tree of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kvcap.routers.rule import Instances, Prompts, Rule, SeenPrefixes, least

_CHUNK_CHARACTERS: Final = 128


class TreeRule(Rule):
    """A rule over one tree of what went where."""

    def __init__(self, prompts: Prompts, instances: Instances, parameters: Mapping[str, float]) -> None:
        super().__init__(prompts, instances, parameters)
        self.seen = SeenPrefixes(prompts, self.n_instances)

    def take(self, request: int, instance: int) -> None:
        """Note where a request went."""
        self.seen.insert(request, instance)


class _Thresholds(TreeRule):
    """What the ``cache_aware`` policies of one family share; they compare in 32-bit floats."""

    def _everyone(self, loads: Sequence[int]) -> list[int]:
        return least(loads, range(self.n_instances))

    def _is_imbalanced(self, loads: Sequence[int]) -> bool:
        high, low = max(loads), min(loads)
        relative = np.float32(low) * np.float32(self.parameters["balance-rel-threshold"])
        return high - low > self.parameters["balance-abs-threshold"] and bool(np.float32(high) > relative)

    def _matches(self, request: int, matched: int) -> bool:
        characters = int(self.prompts.characters[request])
        share = np.float32(matched) / np.float32(characters) if characters else np.float32(0)
        return bool(share > np.float32(self.parameters["cache-threshold"]))


class SglangCacheAware(_Thresholds):
    """sglang-router: the maker of the deepest node that the prompt touches, unless loads are apart."""

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        if not self._is_imbalanced(loads):
            matched, segment = self.seen.match(request)
            if self._matches(request, matched):
                return [int(self.seen.makers[segment])]
        return self._everyone(loads)[:1]


class VllmRouterCacheAware(_Thresholds):
    """vllm-router: the least loaded holder of the deepest node, unless loads are apart."""

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        if not self._is_imbalanced(loads):
            matched, segment = self.seen.match(request)
            if self._matches(request, matched):
                return least(loads, self.seen.holders_of(segment))[:1]
        return self._everyone(loads)[:1]


class SmgCacheAware(_Thresholds):
    """smg: the least loaded holder of the deepest node that is not hot; ties are drawn."""

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        matched, segment = self.seen.match(request)
        if not self._matches(request, matched):
            return self._everyone(loads)
        cool = [instance for instance in range(self.n_instances) if not self._is_hot(loads[instance], loads)]
        holders = [instance for instance in self.seen.holders_of(segment) if instance in cool]
        return least(loads, holders or cool or range(self.n_instances))

    def _is_hot(self, load: int, loads: Sequence[int]) -> bool:
        mean = sum(loads) / len(loads)
        margin = min(self.parameters["balance-abs-threshold"], max(4, math.ceil(2 * math.sqrt(mean))))
        relative = np.float32(self.parameters["balance-rel-threshold"]) * np.float32(mean)
        return bool(load > relative) and load > mean + margin


class RayPrefix(TreeRule):
    """Ray Serve LLM: all holders of the deepest node, or whoever got least; of these the shortest queue."""

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        if max(loads) - min(loads) > self.parameters["imbalanced_threshold"]:
            # Two are drawn, and the shorter queue wins: anyone but the longest can be it.
            second_longest = sorted(loads)[-2]
            return [instance for instance, load in enumerate(loads) if load <= second_longest]
        matched, segment = self.seen.match(request)
        # An empty prompt divides by zero in the router itself.
        if matched / max(1, int(self.prompts.characters[request])) < self.parameters["match_rate_threshold"]:
            smallest = least(self.seen.held_characters.tolist(), range(self.n_instances))
            return least(loads, smallest)
        return least(loads, self.seen.holders_of(segment))


class ProductionStackPrefix(TreeRule):
    """production-stack: anyone who got the longest prefix in chunks of 128 characters, whatever the loads."""

    def __init__(self, prompts: Prompts, instances: Instances, parameters: Mapping[str, float]) -> None:
        super().__init__(prompts, instances, parameters)
        self._requests = [0] * self.n_instances

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws."""
        matched, segment = self.seen.match(request)
        characters = int(self.prompts.characters[request])
        chunks = matched // _CHUNK_CHARACTERS
        holders = self._holders_at(request, chunks * _CHUNK_CHARACTERS)
        if matched == characters and characters % _CHUNK_CHARACTERS and self.seen.ended[segment].any():
            # The last chunk is short, and known only where a prompt ended with it; it counts as a whole one.
            chunks += 1
            holders = [int(instance) for instance in np.flatnonzero(self.seen.ended[segment])]
        if chunks * _CHUNK_CHARACTERS < self.parameters["prefix-min-match-length"]:
            return least(self._requests, range(self.n_instances))[:1]
        return holders

    def take(self, request: int, instance: int) -> None:
        """Note where a request went."""
        super().take(request, instance)
        self._requests[instance] += 1

    def _holders_at(self, request: int, characters: int) -> list[int]:
        """Return who got so many leading characters of a prompt."""
        if characters == 0:
            return list(range(self.n_instances))
        path = self.prompts.path(request)
        ends = self.prompts.segment_ends[path] * self.prompts.block_characters
        return self.seen.holders_of(int(path[np.searchsorted(ends, characters)]))

"""What every router's rule is told, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kvcap.kernels.segments import segment_starts

if TYPE_CHECKING:
    from kvcap.kernels.arrays import Int32Array, Int64Array
    from kvcap.kernels.segments import SegmentPaths


@dataclass(frozen=True)
class Prompts:
    """A stream of prompts, as the rules look at it.

    Rules that compare texts count characters. Where each block is one character, their decisions are those
    of the text; larger blocks hide where two texts part inside a block.

    Attributes
    ----------
    paths
        Prefix segments of the stream.
    block_characters
        Characters of a full block.
    characters, tokens : int64 (n_requests,)
        Lengths.
    block_tokens
        Tokens of a full block, as the engine counts them.
    """

    paths: SegmentPaths
    block_characters: int
    characters: Int64Array
    tokens: Int64Array
    block_tokens: int

    @cached_property
    def segment_ends(self) -> Int64Array:
        """Blocks of a path up to the end of each segment: int64 (n_segments,)."""
        blocks = self.paths.segment_blocks
        ends: Int64Array = segment_starts(blocks, self.paths.segment_parents) + blocks
        return ends

    def path(self, request: int) -> Int32Array:
        """Return the segments of a prompt, from the root down."""
        offsets = self.paths.path_offsets
        return self.paths.path_segments[offsets[request] : offsets[request + 1]]


@dataclass(frozen=True)
class Instances:
    """The servers behind a router, all alike.

    Attributes
    ----------
    n_instances
        At least 1.
    capacity_blocks
        Size of each one's LRU cache, for routers that hear what it holds.
    tail_first
        Touch order of these caches.
    """

    n_instances: int
    capacity_blocks: int
    tail_first: bool = True


class Rule(ABC):
    """One router before some instances, and what it knows of them.

    Parameters
    ----------
    prompts
        The whole stream; requests are named by their numbers in it.
    instances
        What the router stands before.
    parameters
        One for each parameter of the router.
    """

    def __init__(self, prompts: Prompts, instances: Instances, parameters: Mapping[str, float]) -> None:
        self.prompts = prompts
        self.n_instances = instances.n_instances
        self.parameters = parameters

    @abstractmethod
    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        """Return the instances among which the router draws: one where its decision is determined.

        Parameters
        ----------
        request
            Which request.
        loads
            Requests in flight on each instance, this one not among them.
        """

    @abstractmethod
    def take(self, request: int, instance: int) -> None:
        """Note where a request went."""

    def see_first_token(self, request: int) -> None:  # noqa: B027
        """Note that a request's prompt was computed."""

    def see_end(self, request: int) -> None:  # noqa: B027
        """Note that a request was answered."""


def least(values: Sequence[float], among: Iterable[int]) -> list[int]:
    """Return those of some instances, in their order, whose value is the least."""
    among = list(among)
    lowest = min(values[instance] for instance in among)
    return [instance for instance in among if values[instance] == lowest]


class SeenPrefixes:
    """A router's radix tree of prompts, kept by prefix segment; nothing is evicted.

    A node of such a tree remembers who made it, and every instance that later prompts took through it. Splits
    copy both, so each character has the maker and the holders of its node, and so has each segment.

    Attributes
    ----------
    makers : int32 (n_segments,)
        Which instance was first to get a segment, or -1.
    holders : bool (n_segments, n_instances)
        Which instances got a segment.
    ended : bool (n_segments, n_instances)
        Which instances got a prompt that ends with a segment.
    held_characters : int64 (n_instances,)
        Different characters that went to each instance, as the router's tree counts them.
    """

    def __init__(self, prompts: Prompts, n_instances: int) -> None:
        self._prompts = prompts
        n_segments = len(prompts.paths.segment_blocks)
        self.makers = np.full(n_segments, -1, np.int32)
        self.holders = np.zeros((n_segments, n_instances), np.bool_)
        self.ended = np.zeros((n_segments, n_instances), np.bool_)
        self.held_characters = np.zeros(n_instances, np.int64)

    def match(self, request: int) -> tuple[int, int]:
        """Return how many characters of a prompt were seen before, and their last segment (-1: none)."""
        path = self._prompts.path(request)
        n_seen = int(np.count_nonzero(self.makers[path] >= 0))
        if n_seen == 0:
            return 0, -1
        last = int(path[n_seen - 1])
        return self._characters_to(request, last), last

    def holders_of(self, segment: int) -> list[int]:
        """Return the instances that got a segment; all of them for the root, -1."""
        held = self.holders[segment] if segment >= 0 else np.ones(self.holders.shape[1], np.bool_)
        return [int(instance) for instance in np.flatnonzero(held)]

    def insert(self, request: int, instance: int) -> None:
        """Note that a prompt went to an instance."""
        path = self._prompts.path(request)
        if not path.size:
            return
        held = int(np.count_nonzero(self.holders[path, instance]))
        before = self._characters_to(request, int(path[held - 1])) if held else 0
        self.held_characters[instance] += self._characters_to(request, int(path[-1])) - before
        self.holders[path[held:], instance] = True
        self.ended[path[-1], instance] = True
        self.makers[path[self.makers[path] < 0]] = instance

    def _characters_to(self, request: int, segment: int) -> int:
        blocks = int(self._prompts.segment_ends[segment])
        return min(blocks * self._prompts.block_characters, int(self._prompts.characters[request]))

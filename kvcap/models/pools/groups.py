"""Groups of layers as an engine's cache manager sees them, which share one block table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CacheKind = Literal["full", "window", "chunked", "state", "ring"]
"""What a request keeps in a group: every token, the last tokens of a sliding window, the tokens of its
current chunk, states from which it can resume, or one buffer that it overwrites as it goes."""


@dataclass(frozen=True)
class CacheLayers:
    """Layers of one kind whose blocks have the same bytes, before an engine has grouped them.

    Parameters
    ----------
    name
        What the layers keep, for people.
    kind
        How long it stays.
    layers
        How many there are.
    block_tokens
        Tokens of one block of the engine.
    page_bytes
        Bytes of one block in one layer, on one rank.
    window_tokens
        The window of ``window``, the chunk of ``chunked``; None for the others.
    paddable
        Whether a block may be padded to the bytes of another kind's (not so for latents).
    prefix_cached
        Whether a later request may find these blocks.
    checkpoint_blocks
        Blocks of ``state`` that the last chunk of a prompt takes besides the running state.
    """

    name: str
    kind: CacheKind
    layers: int
    block_tokens: int
    page_bytes: int
    window_tokens: int | None = None
    paddable: bool = True
    prefix_cached: bool = True
    checkpoint_blocks: int = 0


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share one block table: a block of the pool holds ``block_tokens`` tokens of one group.

    Parameters
    ----------
    name, kind, block_tokens, window_tokens, prefix_cached, checkpoint_blocks
        As in :class:`CacheLayers`.
    layers
        How many layers' caches the group holds.
    group_bytes
        Bytes of a pool block that these layers use; the rest of it is padding.
    """

    name: str
    kind: CacheKind
    layers: int
    block_tokens: int
    group_bytes: int
    window_tokens: int | None = None
    prefix_cached: bool = True
    checkpoint_blocks: int = 0

    @property
    def lookup_key(self) -> tuple[CacheKind, int, int | None]:
        """What tells groups apart when a prefix is looked up: equal ones count only together."""
        return (self.kind, self.block_tokens, self.window_tokens)

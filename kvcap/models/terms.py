"""The terms of a model's bytes: what is kept once a token, up to a window, or once a state."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvcap.models.groups import Pool

Retention = Literal["token", "window", "chunk", "tail", "state"]
"""How long an entry stays: with its tokens for ever, while they are inside a window or the current chunk,
while its tokens are incomplete, or as long as a sequence can resume from one position."""


@dataclass(frozen=True)
class Term:
    """One summand of a model's bytes.

    Parameters
    ----------
    name
        Which layers and what they keep.
    pool
        The memory pool that holds it; ``workspace`` is memory per token that belongs to no layer.
    layers
        How many layers keep one.
    bytes_per_layer
        Bytes of one entry in one layer, on all the ranks that the answer is about.
    formula
        Where ``bytes_per_layer`` comes from, for people.
    retention
        How long an entry stays.
    tokens_per_entry
        Tokens that share an entry; incomplete entries are not kept.
    window_tokens
        The window of ``retention="window"``, the chunk of ``retention="chunk"``.
    counted
        Whether :meth:`ModelBytes.total_bytes` adds it; states and replayed windows are shown apart.
    """

    name: str
    pool: Pool | Literal["workspace"]
    layers: int
    bytes_per_layer: Fraction
    formula: str
    retention: Retention = "token"
    tokens_per_entry: int = 1
    window_tokens: int | None = None
    counted: bool = True

    @property
    def entry_bytes(self) -> Fraction:
        """Bytes of one entry in all layers."""
        return self.layers * self.bytes_per_layer

    def total_bytes(self, tokens: int) -> Fraction:
        """Return the bytes that a sequence of ``tokens`` tokens keeps, whether counted or not."""
        if self.retention == "state":
            return self.entry_bytes
        if self.retention == "tail":
            return self.entry_bytes if tokens % self.tokens_per_entry else Fraction(0)
        kept = tokens if self.window_tokens is None else min(tokens, self.window_tokens)
        return kept // self.tokens_per_entry * self.entry_bytes

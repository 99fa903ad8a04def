"""Kinds whose cost grows with every token alike: MHA and GQA, MLA, and the two with a sparse indexer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvcap.errors import ModelError
from kvcap.models.groups import Group, HeadGroup, IndexGroup, LatentGroup
from kvcap.models.kinds.base import Attention, draft_name


@dataclass(frozen=True)
class Heads(Attention):
    """Keys and values of every KV head in every layer.

    ``layers x kv_heads x (head_dim + v_head_dim)`` elements a token. Multi-head attention has as many KV
    heads as query heads, grouped-query attention fewer. Source: Ainslie et al. 2023, arXiv 2305.13245.
    """

    title: ClassVar[str] = "grouped-query attention"

    layers: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    draft_layers: int = 0

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return one group, and one of draft layers of the same shape."""
        v_head_dim = self.head_dim if self.v_head_dim is None else self.v_head_dim
        main = HeadGroup("keys and values", self.layers, self.kv_heads, self.head_dim, v_head_dim)
        if not include_draft or self.draft_layers == 0:
            return (main,)
        draft = HeadGroup(draft_name(main.name), self.draft_layers, self.kv_heads, self.head_dim, v_head_dim)
        return (main, draft)


@dataclass(frozen=True)
class Latent(Attention):
    """One latent and one rotary key a token and layer, shared by all heads (MLA).

    ``layers x (kv_lora_rank + qk_rope_head_dim)`` elements a token. Source: DeepSeek-V2, arXiv 2405.04434.
    """

    title: ClassVar[str] = "multi-head latent attention"

    layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    draft_layers: int = 0

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return one group, and one of draft layers of the same shape."""
        main = LatentGroup("latents", self.layers, self.kv_lora_rank, self.qk_rope_head_dim)
        if not include_draft or self.draft_layers == 0:
            return (main,)
        draft = LatentGroup(
            draft_name(main.name), self.draft_layers, self.kv_lora_rank, self.qk_rope_head_dim
        )
        return (main, draft)


@dataclass(frozen=True)
class SparseLatent(Attention):
    """MLA whose layers read only the tokens that an indexer selects (DSA).

    The latents of :class:`Latent`, and one index key of ``index_head_dim`` elements a token in each of the
    ``indexer_layers`` that own an indexer; the other layers use the selection of one before them.
    Sources: the DeepSeek-V3.2 report for the attention, arXiv 2603.12201 for shared selections.
    """

    title: ClassVar[str] = "latent attention with a sparse indexer"

    layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int
    indexer_layers: int
    draft_layers: int = 0
    draft_indexer_layers: int = 0

    def __post_init__(self) -> None:
        if self.indexer_layers > self.layers or self.draft_indexer_layers > self.draft_layers:
            raise ModelError("there are more indexers than layers")

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return latents and index keys, each again for draft layers."""
        latent = (self.kv_lora_rank, self.qk_rope_head_dim)
        sharing = self.layers - self.indexer_layers
        groups: list[Group] = [
            LatentGroup("latents", self.layers, *latent, sparse=True),
            IndexGroup("index keys", self.indexer_layers, self.index_head_dim, sharing_layers=sharing),
        ]
        if include_draft and self.draft_layers:
            sharing = self.draft_layers - self.draft_indexer_layers
            groups += [
                LatentGroup(draft_name("latents"), self.draft_layers, *latent, sparse=True),
                IndexGroup(
                    draft_name("index keys"),
                    self.draft_indexer_layers,
                    self.index_head_dim,
                    sharing_layers=sharing,
                ),
            ]
        return tuple(groups)


@dataclass(frozen=True)
class SparseHeads(Attention):
    """GQA where most layers read only the blocks that an indexer selects (MiniMax M3).

    The keys and values of :class:`Heads` in every layer, and one index key of ``index_head_dim`` elements a
    token in every sparse layer: a single key head, no values, kept in 16 bits. Source: the pool of the
    model in SGLang (``MiniMaxSparseKVPool``).
    """

    title: ClassVar[str] = "grouped-query attention with a block-sparse indexer"
    indexer_fixed: ClassVar[str | None] = "bf16_fp16"

    layers: int
    kv_heads: int
    head_dim: int
    index_head_dim: int
    sparse_layers: int

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return keys and values of all layers, index keys of the sparse ones; it serves no draft layers."""
        return (
            HeadGroup("keys and values", self.layers, self.kv_heads, self.head_dim, self.head_dim),
            IndexGroup("index keys", self.sparse_layers, self.index_head_dim),
        )

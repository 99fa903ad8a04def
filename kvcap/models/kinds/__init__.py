"""Kinds of attention: the facts that each needs, and the groups of layers that they make.

Every kind is a frozen dataclass of facts with one method, ``groups``; its docstring says where the formula
comes from. A model is an entry of facts in ``catalog.json``; a new kind is a class and a line here.
"""

from __future__ import annotations

from typing import Final

from kvcap.models.kinds.base import Attention
from kvcap.models.kinds.compressed import CompressedLatent, SharedCompressedLatent
from kvcap.models.kinds.hybrids import ChunkedHeads, WindowedConvHeads, WindowedHeads, WindowedLatent
from kvcap.models.kinds.states import (
    GatedDeltaHybrid,
    KdaLatent,
    KdaSparseLatent,
    LightningHeads,
    MambaHeads,
    ShortConvHeads,
)
from kvcap.models.kinds.uniform import Heads, Latent, SparseHeads, SparseLatent

KINDS: Final[dict[str, type[Attention]]] = {
    "gqa": Heads,
    "mla": Latent,
    "dsa_mla": SparseLatent,
    "sparse_gqa": SparseHeads,
    "windowed_gqa": WindowedHeads,
    "windowed_mla": WindowedLatent,
    "windowed_gqa_conv": WindowedConvHeads,
    "chunked_gqa": ChunkedHeads,
    "linear_gqa": GatedDeltaHybrid,
    "mamba_gqa": MambaHeads,
    "conv_gqa": ShortConvHeads,
    "lightning_gqa": LightningHeads,
    "kda_mla": KdaLatent,
    "kda_dsa_mla": KdaSparseLatent,
    "compressed_mla": CompressedLatent,
    "shared_compressed_mla": SharedCompressedLatent,
}
"""Every kind by the name that the catalog and ``--assume`` use."""

__all__ = ["KINDS", "Attention"]

"""Kinds that mix full attention with layers that keep a state of fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvcap.models.groups import (
    Group,
    HeadGroup,
    IndexGroup,
    LatentGroup,
    Scales,
    StateGroup,
    StateTensor,
)
from kvcap.models.kinds.base import Attention, draft_name


@dataclass(frozen=True)
class GatedDeltaHybrid(Attention):
    """Full GQA in every few layers, Gated DeltaNet in the others (Qwen 3.5 and later).

    A linear layer keeps, per resumable position, one ``key x value`` matrix per value head and the last
    ``conv_kernel - 1`` inputs of its convolution over queries, keys and values. Sources: Yang et al. 2024,
    arXiv 2412.06464; the state's shapes as vLLM computes them (``gated_delta_net_state_shape``).
    ``vllm_recurrent_bytes`` is what an element has in vLLM where the checkpoint does not say it.
    """

    title: ClassVar[str] = "linear and full grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    linear_layers: int
    linear_key_heads: int
    linear_key_head_dim: int
    linear_value_heads: int
    linear_value_head_dim: int
    conv_kernel: int
    conv_element_bytes: int = 2
    recurrent_element_bytes: int = 4
    draft_layers: int = 0
    vllm_recurrent_bytes: int | None = None

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full layers and the states of the linear ones; a draft layer is a full one."""
        heads = (self.kv_heads, self.head_dim, self.head_dim)
        keys = self.linear_key_heads * self.linear_key_head_dim
        values = self.linear_value_heads * self.linear_value_head_dim
        state = (
            StateTensor(
                (self.conv_kernel - 1) * (2 * keys + values),
                self.conv_element_bytes,
                self.linear_key_heads,
                history=self.conv_kernel - 1,
            ),
            StateTensor(
                values * self.linear_key_head_dim,
                self.recurrent_element_bytes,
                self.linear_value_heads,
                recurrent=True,
                vllm_bytes=self.vllm_recurrent_bytes,
            ),
        )
        main: tuple[Group, ...] = (
            HeadGroup("full layers", self.full_layers, *heads),
            StateGroup("linear layers", self.linear_layers, state),
        )
        if include_draft and self.draft_layers:
            main += (HeadGroup(draft_name("full layers"), self.draft_layers, *heads),)
        return main


def _kda_state(
    heads: int, head_dim: int, kernel: int, conv_bytes: int, recurrent_bytes: int
) -> tuple[StateTensor, ...]:
    """Return the tensors of a Kimi Delta Attention layer: one square matrix per head, three convolutions."""
    width = heads * head_dim
    return (
        StateTensor((kernel - 1) * 3 * width, conv_bytes, heads, history=kernel - 1),
        StateTensor(width * head_dim, recurrent_bytes, heads, recurrent=True),
    )


@dataclass(frozen=True)
class KdaLatent(Attention):
    """MLA in every few layers, Kimi Delta Attention in the others (Kimi K3).

    A KDA layer keeps, per resumable position, one square matrix per head and the last ``conv_kernel - 1``
    inputs of its three convolutions. Source: Kimi Linear, arXiv 2510.26692.
    """

    title: ClassVar[str] = "Kimi delta attention and latent attention"

    full_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    kda_layers: int
    kda_heads: int
    kda_head_dim: int
    conv_kernel: int
    conv_element_bytes: int = 2
    recurrent_element_bytes: int = 4

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the latents of full layers and the states of KDA layers."""
        state = _kda_state(
            self.kda_heads,
            self.kda_head_dim,
            self.conv_kernel,
            self.conv_element_bytes,
            self.recurrent_element_bytes,
        )
        return (
            LatentGroup("latents of full layers", self.full_layers, self.kv_lora_rank, self.qk_rope_head_dim),
            StateGroup("KDA layers", self.kda_layers, state),
        )


@dataclass(frozen=True)
class KdaSparseLatent(Attention):
    """KDA and sparse MLA whose indexer keeps one key for a pool of tokens (GLM-5.3-Flash).

    As :class:`KdaLatent`, and in each full layer that owns an indexer one index key for every
    ``index_pool_tokens`` tokens, with fp32 scales per 128 elements in fp8 and 1-byte scales per 32 in fp4.
    While a pool is incomplete, the 16-bit keys and pooling weights of its tokens are kept. Source: the
    model's config and reference code in transformers.
    """

    title: ClassVar[str] = "Kimi delta attention and sparse latent attention"
    indexer_default: ClassVar[str | None] = "fp8_int8"

    full_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int
    indexer_layers: int
    index_pool_tokens: int
    kda_layers: int
    kda_heads: int
    kda_head_dim: int
    conv_kernel: int
    index_tail_element_bytes: int = 2
    conv_element_bytes: int = 2
    recurrent_element_bytes: int = 4
    draft_layers: int = 0
    draft_indexer_layers: int = 0

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return latents, index keys and KDA states; draft layers are sparse full ones."""
        groups = self._sparse("of full layers", self.full_layers, self.indexer_layers)
        state = _kda_state(
            self.kda_heads,
            self.kda_head_dim,
            self.conv_kernel,
            self.conv_element_bytes,
            self.recurrent_element_bytes,
        )
        groups += (StateGroup("KDA layers", self.kda_layers, state),)
        if include_draft and self.draft_layers:
            groups += self._sparse("of draft layers", self.draft_layers, self.draft_indexer_layers)
        return groups

    def _sparse(self, where: str, layers: int, indexer_layers: int) -> tuple[Group, ...]:
        tail_elements = 2 * self.index_pool_tokens * self.index_head_dim
        return (
            LatentGroup(f"latents {where}", layers, self.kv_lora_rank, self.qk_rope_head_dim, sparse=True),
            IndexGroup(
                f"index keys {where}",
                indexer_layers,
                self.index_head_dim,
                sharing_layers=layers - indexer_layers,
                tokens_per_entry=self.index_pool_tokens,
                scales=(("fp8_int8", Scales(128, 4)), ("fp4_int4", Scales(32, 1))),
                tail_bytes_per_layer=tail_elements * self.index_tail_element_bytes,
            ),
        )


@dataclass(frozen=True)
class MambaHeads(Attention):
    """Full GQA in some layers, Mamba 2 in others (Nemotron-H and 3, Granite 4, Falcon-H1).

    A Mamba layer keeps, per resumable position, ``head_dim x state`` elements for each of its heads and the
    last ``conv_kernel - 1`` inputs of its convolution over heads and groups. Sources: Dao and Gu 2024,
    arXiv 2405.21060; the state's shapes as vLLM computes them (``mamba2_state_shape``).
    ``vllm_recurrent_bytes`` is what an element has in vLLM where the checkpoint does not say it.
    """

    title: ClassVar[str] = "Mamba 2 and full grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    mamba_layers: int
    mamba_heads: int
    mamba_head_dim: int
    mamba_groups: int
    mamba_state: int
    conv_kernel: int
    conv_element_bytes: int = 2
    recurrent_element_bytes: int = 4
    vllm_recurrent_bytes: int | None = None

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full layers and the states of the Mamba layers."""
        history = self.conv_kernel - 1
        inner, grouped = self.mamba_heads * self.mamba_head_dim, 2 * self.mamba_groups * self.mamba_state
        tensors = (
            StateTensor(history * inner, self.conv_element_bytes, self.mamba_heads, history=history),
            StateTensor(history * grouped, self.conv_element_bytes, self.mamba_groups, history=history),
            StateTensor(
                inner * self.mamba_state,
                self.recurrent_element_bytes,
                self.mamba_heads,
                recurrent=True,
                vllm_bytes=self.vllm_recurrent_bytes,
            ),
        )
        return (
            HeadGroup("full layers", self.full_layers, self.kv_heads, self.head_dim, self.head_dim),
            StateGroup("Mamba layers", self.mamba_layers, tensors, inner_checkpoint=True),
        )


@dataclass(frozen=True)
class ShortConvHeads(Attention):
    """Full GQA in some layers, gated short convolutions in the others (LFM2).

    A convolution layer keeps, per resumable position, the last ``conv_kernel - 1`` inputs, ``conv_dim`` wide.
    Source: the model's code in transformers and vLLM (``short_conv_state_shape``).
    """

    title: ClassVar[str] = "short convolutions and full grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    conv_layers: int
    conv_dim: int
    conv_kernel: int
    conv_element_bytes: int = 2

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full layers and the histories of the convolutions."""
        history = self.conv_kernel - 1
        tensor = StateTensor(history * self.conv_dim, self.conv_element_bytes, self.conv_dim, history=history)
        return (
            HeadGroup("full layers", self.full_layers, self.kv_heads, self.head_dim, self.head_dim),
            StateGroup("convolution layers", self.conv_layers, (tensor,)),
        )


@dataclass(frozen=True)
class LightningHeads(Attention):
    """Full GQA in every few layers, lightning attention in the others (MiniMax Text 01 and M1).

    A lightning layer keeps one square matrix per head and resumable position. Source: MiniMax-01,
    arXiv 2501.08313. ``vllm_recurrent_bytes`` is what an element has in vLLM.
    """

    title: ClassVar[str] = "lightning and full grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    linear_layers: int
    linear_heads: int
    recurrent_element_bytes: int = 4
    vllm_recurrent_bytes: int | None = 2

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full layers and the states of the lightning layers."""
        tensor = StateTensor(
            self.linear_heads * self.head_dim**2,
            self.recurrent_element_bytes,
            self.linear_heads,
            recurrent=True,
            vllm_bytes=self.vllm_recurrent_bytes,
        )
        return (
            HeadGroup("full layers", self.full_layers, self.kv_heads, self.head_dim, self.head_dim),
            StateGroup("lightning layers", self.linear_layers, (tensor,)),
        )

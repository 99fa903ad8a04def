"""Kinds that mix full attention with sliding windows or with states of fixed size."""

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
class WindowedHeads(Attention):
    """GQA, full in some layers and over a sliding window in the others (Gemma, Cohere, MiMo).

    Full layers keep every token, window layers the last ``window_tokens``. Layers that reuse the keys and
    values of another layer keep none and are not counted here. Source: the models' own configs and
    transformers' ``layer_types``.
    """

    title: ClassVar[str] = "full and sliding-window grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window_layers: int
    window_tokens: int
    window_kv_heads: int
    window_head_dim: int
    window_v_head_dim: int
    first_layer_full: int = 0
    sglang_full_pool: int = 0

    @property
    def starts_full(self) -> bool:
        """Whether the first layer is one of full attention (MiMo); most begin with a window."""
        return bool(self.first_layer_full)

    @property
    def one_pool_in_sglang(self) -> bool:
        """Whether SGLang has no pool of windows for the model (Gemma 3, Cohere)."""
        return bool(self.sglang_full_pool)

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full and the window layers."""
        return (
            HeadGroup("full layers", self.full_layers, self.kv_heads, self.head_dim, self.v_head_dim),
            HeadGroup(
                "window layers",
                self.window_layers,
                self.window_kv_heads,
                self.window_head_dim,
                self.window_v_head_dim,
                self.window_tokens,
            ),
        )


@dataclass(frozen=True)
class WindowedConvHeads(Attention):
    """Full and sliding-window GQA with four short convolutions in every layer (Inkling).

    The layers of :class:`WindowedHeads`, and in each of them the last ``conv_kernel - 1`` inputs of four
    convolutions: of the keys, of the values, of attention's output and of the feed-forward output, the
    latter two ``hidden_size`` wide. Source: the model's reference code in transformers.
    """

    title: ClassVar[str] = "full and sliding-window attention with short convolutions"

    full_layers: int
    kv_heads: int
    window_layers: int
    window_tokens: int
    window_kv_heads: int
    head_dim: int
    hidden_size: int
    conv_kernel: int
    conv_element_bytes: int = 2
    draft_full_layers: int = 0
    draft_window_layers: int = 0

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return full layers, window layers and the convolutions of both, each again for draft layers."""
        groups = self._layers("", self.full_layers, self.window_layers)
        if include_draft and self.draft_full_layers + self.draft_window_layers:
            groups += self._layers(", draft layers", self.draft_full_layers, self.draft_window_layers)
        return groups

    def _layers(self, suffix: str, full: int, window: int) -> tuple[Group, ...]:
        dims = (self.head_dim, self.head_dim)
        return (
            HeadGroup(f"full layers{suffix}", full, self.kv_heads, *dims),
            HeadGroup(f"window layers{suffix}", window, self.window_kv_heads, *dims, self.window_tokens),
            self._convolutions(f"convolutions of full layers{suffix}", full, self.kv_heads),
            self._convolutions(f"convolutions of window layers{suffix}", window, self.window_kv_heads),
        )

    def _convolutions(self, name: str, layers: int, kv_heads: int) -> StateGroup:
        history = self.conv_kernel - 1
        widths = ((2 * kv_heads * self.head_dim, kv_heads), (2 * self.hidden_size, None))
        tensors = tuple(
            StateTensor(history * width, self.conv_element_bytes, heads, history=history)
            for width, heads in widths
        )
        return StateGroup(name, layers, tensors, window_tokens=self.conv_kernel)


@dataclass(frozen=True)
class GatedDeltaHybrid(Attention):
    """Full GQA in every few layers, Gated DeltaNet in the others (Qwen 3.5 and later).

    A linear layer keeps, per resumable position, one ``key x value`` matrix per value head and the last
    ``conv_kernel - 1`` inputs of its convolution over queries, keys and values. Sources: Yang et al. 2024,
    arXiv 2412.06464; the state's shapes as vLLM computes them (``gated_delta_net_state_shape``).
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
class WindowedLatent(Attention):
    """Sparse MLA in some layers, MLA of another rank over a sliding window in the others (dots3).

    Index keys are fp8 with one fp32 scale each. A window of 513 positions is the current token and 512
    before it, so 512 are cached. Source: the model's config and code.
    """

    title: ClassVar[str] = "sparse latent attention and sliding-window latent attention"
    indexer_fixed: ClassVar[str | None] = "fp8_int8"

    full_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int
    window_layers: int
    window_tokens: int
    window_kv_lora_rank: int
    window_qk_rope_head_dim: int
    index_scale_bytes: int = 4

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return latents and index keys of full layers, latents of window layers."""
        return (
            LatentGroup(
                "latents of full layers",
                self.full_layers,
                self.kv_lora_rank,
                self.qk_rope_head_dim,
                sparse=True,
                vllm_elements=self.window_kv_lora_rank + self.window_qk_rope_head_dim,
            ),
            IndexGroup(
                "index keys of full layers",
                self.full_layers,
                self.index_head_dim,
                scales=(("fp8_int8", Scales(self.index_head_dim, self.index_scale_bytes)),),
            ),
            LatentGroup(
                "latents of window layers",
                self.window_layers,
                self.window_kv_lora_rank,
                self.window_qk_rope_head_dim,
                self.window_tokens,
            ),
        )

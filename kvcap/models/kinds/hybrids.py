"""Kinds that mix full attention with sliding windows or chunks."""

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
from kvcap.models.kinds.base import Attention


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
class ChunkedHeads(Attention):
    """GQA, full in some layers and inside chunks of the sequence in the others (Llama 4).

    Full layers keep every token, chunked ones those of the current chunk of ``chunk_tokens``. Source: the
    models' configs and transformers' ``layer_types``.
    """

    title: ClassVar[str] = "full and chunked grouped-query attention"

    full_layers: int
    kv_heads: int
    head_dim: int
    chunked_layers: int
    chunk_tokens: int

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return the full and the chunked layers."""
        heads = (self.kv_heads, self.head_dim, self.head_dim)
        return (
            HeadGroup("full layers", self.full_layers, *heads),
            HeadGroup("chunked layers", self.chunked_layers, *heads, self.chunk_tokens, chunked=True),
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

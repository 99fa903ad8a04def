"""Kinds that keep one entry for several tokens, next to a short sliding window (DeepSeek V4 and V4.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from kvcap.errors import ModelError
from kvcap.models.groups import Group, IndexGroup, LatentGroup, Scales
from kvcap.models.kinds.base import Attention

_INDEXED_RATIO: Final = 4
_ROPE_DIM: Final = 64


def _parts(head_dim: int) -> tuple[int, int]:
    """Return the elements of a latent without and with a position; ``head_dim`` counts both."""
    return head_dim - _ROPE_DIM, _ROPE_DIM


@dataclass(frozen=True)
class CompressedLatent(Attention):
    """A sliding window in every layer, and compressed entries of the whole sequence in most (DeepSeek V4).

    A layer of compression ratio r > 0 keeps one latent of ``head_dim`` elements (rotary part included)
    for every r tokens, complete ones only; layers of ratio 4 also keep an index key for each. Every
    layer keeps the last ``window_tokens`` uncompressed. ``compress_ratios`` lists the main layers,
    ``draft_compress_ratios`` the draft ones. Source: the model's reference ``inference/model.py``.
    """

    title: ClassVar[str] = "compressed and sliding-window latent attention"
    kv_in_engines: ClassVar[str | None] = "fp8_int8"

    head_dim: int
    window_tokens: int
    index_head_dim: int
    compress_ratios: tuple[int, ...]
    draft_compress_ratios: tuple[int, ...] = ()

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return one group per compression ratio, the index keys and the windows."""
        ratios = self.compress_ratios + (self.draft_compress_ratios if include_draft else ())
        groups: list[Group] = []
        for ratio, layers in sorted(Counter(ratios).items()):
            if ratio == 0:
                continue
            groups.append(
                LatentGroup(
                    f"1:{ratio} latents",
                    layers,
                    *_parts(self.head_dim),
                    tokens_per_entry=ratio,
                    sparse=True,
                    packed=True,
                )
            )
            if ratio == _INDEXED_RATIO:
                groups.append(
                    IndexGroup(f"1:{ratio} index keys", layers, self.index_head_dim, tokens_per_entry=ratio)
                )
        windows = LatentGroup(
            "windows of all layers", len(ratios), *_parts(self.head_dim), self.window_tokens, packed=True
        )
        return (*groups, windows)


@dataclass(frozen=True)
class SharedCompressedLatent(Attention):
    """As DeepSeek V4, but a few layers compress for all (DeepSeek V4.1).

    Only the ``kv_source_layers`` keep entries and index keys, one for as many tokens as their
    compression ratio says; the others read the last source before them. Latents are fp4 with a 1-byte scale
    per 16 elements, index keys fp4 with one per 32, windows fp8 with one per 32. The windows are
    computed anew from the last tokens when a prefix is reused, so they are shown but not counted.
    Source: the model's reference ``inference/model.py`` (its sources own ``compressor`` and
    ``indexer.wk``; about 890 B a token, as published).
    """

    title: ClassVar[str] = "shared compressed and sliding-window latent attention"
    kv_fixed: ClassVar[str | None] = "fp4_int4"
    indexer_fixed: ClassVar[str | None] = "fp4_int4"
    kv_in_engines: ClassVar[str | None] = "fp8_int8"

    head_dim: int
    window_tokens: int
    index_head_dim: int
    compress_ratios: tuple[int, ...]
    kv_source_layers: tuple[int, ...]
    draft_layers: int = 0
    latent_scale_group: int = 16
    index_scale_group: int = 32
    window_scale_group: int = 32

    def __post_init__(self) -> None:
        layers = range(len(self.compress_ratios))
        if any(layer not in layers or self.compress_ratios[layer] == 0 for layer in self.kv_source_layers):
            raise ModelError("kv_source_layers has a layer without a compression ratio")

    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return latents and index keys of the source layers by ratio, and the windows."""
        groups: list[Group] = []
        sources = Counter(self.compress_ratios[layer] for layer in self.kv_source_layers)
        for ratio, layers in sorted(sources.items()):
            groups += [
                LatentGroup(
                    f"1:{ratio} latents",
                    layers,
                    *_parts(self.head_dim),
                    tokens_per_entry=ratio,
                    sparse=True,
                    element_bytes=Fraction(1, 2),
                    scales=Scales(self.latent_scale_group, 1),
                    packed=True,
                ),
                IndexGroup(
                    f"1:{ratio} index keys",
                    layers,
                    self.index_head_dim,
                    tokens_per_entry=ratio,
                    scales=(("fp4_int4", Scales(self.index_scale_group, 1)),),
                ),
            ]
        windows = LatentGroup(
            "windows of all layers",
            len(self.compress_ratios) + (self.draft_layers if include_draft else 0),
            *_parts(self.head_dim),
            self.window_tokens,
            element_bytes=Fraction(1),
            scales=Scales(self.window_scale_group, 1),
            replayed=True,
            packed=True,
        )
        return (*groups, windows)

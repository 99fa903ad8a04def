"""What one layer keeps in vLLM's cache: its KV cache specs (0.32)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from kvcap.errors import UsageError
from kvcap.models.groups import Group, HeadGroup, IndexGroup, LatentGroup, StateGroup
from kvcap.models.layouts.pricing import (
    FP4_SCALE_GROUP,
    SPARSE_SCALE_GROUP,
    Pricing,
    heads_term,
    index_term,
    latent_term,
    number,
    packed_row_term,
    refuse_precision,
    state_term,
    term,
)
from kvcap.models.terms import Term

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKED_ROPE_ELEMENTS: Final = 64
"""Rotary elements for which FlashMLA's packed row has room, whether a model has them or not."""


def check_precision(groups: Sequence[Group], pricing: Pricing) -> None:
    """Refuse the formats that vLLM has not."""
    refuse_precision("vllm", pricing, "mxfp8")


def terms(group: Group, pricing: Pricing) -> list[Term]:
    """Return the term of a group: vLLM makes one cache of each.

    Raises
    ------
    UsageError
        If vLLM has no such type of cache for it, or heads do not split.
    """
    if isinstance(group, HeadGroup):
        return [_heads(group, pricing)]
    if isinstance(group, LatentGroup):
        return [_latent(group, pricing)]
    if isinstance(group, IndexGroup):
        return [index_term(group, pricing, group.layers, pricing.indexer_precision)]
    if group.window_tokens is not None:
        return [_history(group, group.window_tokens, pricing)]
    tensors = tuple(
        tensor if tensor.vllm_bytes is None else replace(tensor, element_bytes=tensor.vllm_bytes)
        for tensor in group.tensors
    )
    return [state_term(replace(group, tensors=tensors), pricing)]


def _heads(group: HeadGroup, pricing: Pricing) -> Term:
    if pricing.kv_precision != "fp4_int4":
        return heads_term(group, pricing)
    if group.head_dim != group.v_head_dim:
        raise UsageError(
            f"KV precision is fp4_int4 for keys of {group.head_dim} and values of {group.v_head_dim} "
            "elements in layout vllm, expected bf16_fp16 or fp8_int8"
        )
    heads, side = pricing.heads(group.kv_heads), _fp4_side(group.head_dim)
    formula = f"{heads} heads x 2 x ({group.head_dim} / 2 + {group.head_dim // FP4_SCALE_GROUP} B of scales)"
    return term(group, Fraction(heads * 2 * side), formula, pricing)


def _fp4_side(elements: int) -> int:
    """Return the bytes of a row in nvfp4: half a byte an element, and a byte of scale for every 16."""
    return elements // 2 + elements // FP4_SCALE_GROUP


def _latent(group: LatentGroup, pricing: Pricing) -> Term:
    if group.packed:
        return packed_row_term(group, pricing)
    if group.vllm_elements is not None:
        formula = f"{group.vllm_elements} x {number(pricing.kv_bytes)} B"
        return term(group, group.vllm_elements * pricing.kv_bytes, formula, pricing)
    packs = group.sparse and pricing.sparse_backend == "flashmla"
    if pricing.kv_precision == "fp4_int4":
        if not packs:
            raise UsageError(
                f"KV precision is fp4_int4 for {group.name} in layout vllm, expected bf16_fp16 or fp8_int8 "
                "(nvfp4 rows exist for sparse attention with --sparse-backend flashmla only)"
            )
        side = _fp4_side(group.rank)
        formula = f"{group.rank} / 2 + {group.rank // FP4_SCALE_GROUP} B of scales + {_PACKED_ROPE_ELEMENTS}"
        return term(group, Fraction(side + _PACKED_ROPE_ELEMENTS), formula, pricing)
    if pricing.kv_precision != "fp8_int8" or not packs:
        return latent_term(group, pricing)
    scales = group.rank // SPARSE_SCALE_GROUP * 4
    formula = f"{group.rank} + {scales} B of scales + {_PACKED_ROPE_ELEMENTS} x 2 B"
    return term(group, Fraction(group.rank + scales + _PACKED_ROPE_ELEMENTS * 2), formula, pricing)


def _history(group: StateGroup, window_tokens: int, pricing: Pricing) -> Term:
    """Return a convolution's past as a sliding window: each head's part is padded to a power of two."""
    heads = min(tensor.heads for tensor in group.tensors if tensor.heads is not None)
    per_head = sum(tensor.elements // tensor.history for tensor in group.tensors) // heads
    width = 1 << (per_head - 1).bit_length()
    size = pricing.heads(heads) * width * group.tensors[0].element_bytes
    formula = f"{pricing.heads(heads)} heads x {width} x {group.tensors[0].element_bytes} B"
    kept = replace(state_term(group, pricing), retention="window", window_tokens=window_tokens, counted=True)
    return replace(kept, bytes_per_layer=Fraction(size * pricing.copies), formula=formula)

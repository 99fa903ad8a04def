"""What SGLang's memory pools keep of a token or a state: its pool configurator (0.5.23)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

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

_MXFP8_SCALE_GROUP = 32


def check_precision(groups: Sequence[Group], pricing: Pricing) -> None:
    """Refuse the formats that SGLang has not for these groups."""
    windowed = any(not isinstance(g, IndexGroup | StateGroup) and g.window_tokens for g in groups)
    latent = any(isinstance(group, LatentGroup) for group in groups)
    if windowed or (any(isinstance(group, IndexGroup) for group in groups) and not latent):
        refuse_precision("sglang", pricing, "fp4_int4")
    if latent or not any(isinstance(group, HeadGroup) for group in groups):
        refuse_precision("sglang", pricing, "mxfp8")


def terms(group: Group, pricing: Pricing) -> list[Term]:
    """Return the terms of a group."""
    if isinstance(group, HeadGroup):
        return _heads(group, pricing)
    if isinstance(group, LatentGroup):
        return [_latent(group, pricing)]
    if isinstance(group, IndexGroup):
        return [_index(group, pricing)]
    return [state_term(group, pricing)]


def _heads(group: HeadGroup, pricing: Pricing) -> list[Term]:
    plain = heads_term(group, pricing)
    heads, dims = pricing.heads(group.kv_heads), group.head_dim + group.v_head_dim
    if pricing.kv_precision == "mxfp8":
        scales = Fraction(heads * dims, _MXFP8_SCALE_GROUP)
        formula = f"{plain.formula} + {number(scales)} B of scales"
        return [term(group, heads * dims + scales, formula, pricing)]
    if pricing.kv_precision != "fp4_int4":
        return [plain]
    scales = Fraction(heads * group.head_dim * 2, FP4_SCALE_GROUP)
    formula = f"{plain.formula} + {number(scales)} B of scales"
    workspace = Term(
        f"dequantization workspace of {group.name}",
        "workspace",
        1,
        Fraction(heads * group.head_dim * 2 * pricing.copies),
        f"{heads} heads x {group.head_dim} x 2, once for all layers",
    )
    return [term(group, heads * dims * pricing.kv_bytes + scales, formula, pricing), workspace]


def _latent(group: LatentGroup, pricing: Pricing) -> Term:
    if group.packed:
        return packed_row_term(group, pricing)
    plain = latent_term(group, pricing)
    if group.sparse and pricing.kv_precision == "fp8_int8" and pricing.sparse_backend == "flashmla":
        scales = group.rank // SPARSE_SCALE_GROUP * 4
        formula = f"{group.rank} + {scales} B of scales + {group.rope_dim} x 2 B"
        return term(group, Fraction(group.rank + scales + group.rope_dim * 2), formula, pricing)
    if pricing.kv_precision != "fp4_int4":
        return plain
    elements = group.rank + group.rope_dim
    scales = elements // FP4_SCALE_GROUP
    formula = f"{plain.formula} + {scales} B of scales"
    return term(group, elements * pricing.kv_bytes + scales, formula, pricing)


def _index(group: IndexGroup, pricing: Pricing) -> Term:
    """Return index keys; until 0.5.23 layers that share an indexer kept some too."""
    shared = group.sharing_layers if pricing.before(0, 5, 23) else 0
    return index_term(group, pricing, group.layers + shared, pricing.indexer_precision)

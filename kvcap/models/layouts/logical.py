"""Elements times bytes per element: what calculators print."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvcap.models.groups import Group, HeadGroup, IndexGroup, LatentGroup
from kvcap.models.layouts.pricing import (
    Pricing,
    heads_term,
    latent_term,
    number,
    refuse_precision,
    state_term,
    term,
)
from kvcap.models.terms import Term

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_precision(groups: Sequence[Group], pricing: Pricing) -> None:
    """Refuse formats that exist with an engine's scales only."""
    refuse_precision("logical", pricing, "mxfp8")


def terms(group: Group, pricing: Pricing) -> list[Term]:
    """Return the terms of a group."""
    if isinstance(group, HeadGroup):
        return [heads_term(group, pricing)]
    if isinstance(group, LatentGroup):
        return [latent_term(group, pricing)]
    if isinstance(group, IndexGroup):
        return _index(group, pricing)
    return [state_term(group, pricing)]


def _index(group: IndexGroup, pricing: Pricing) -> list[Term]:
    scales = dict(group.scales).get(pricing.indexer_precision)
    scale_bytes = 0 if scales is None else group.head_dim // scales.group * scales.scale_bytes
    formula = f"{group.head_dim} x {number(pricing.indexer_bytes)} B"
    formula += f" + {scale_bytes} B of scales" if scale_bytes else ""
    keys = term(group, group.head_dim * pricing.indexer_bytes + scale_bytes, formula, pricing)
    if not group.tail_bytes_per_layer:
        return [keys]
    tail = Term(
        f"incomplete pool of {group.name}",
        "indexer",
        group.layers,
        Fraction(group.tail_bytes_per_layer * pricing.copies),
        f"while fewer than {group.tokens_per_entry} tokens",
        retention="tail",
        tokens_per_entry=group.tokens_per_entry,
    )
    return [keys, tail]

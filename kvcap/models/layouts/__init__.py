"""From elements to bytes: the logical size, and what the memory pools of serving engines allocate.

*logical* is elements times bytes per element, with scales only where the model itself fixes them. It is
what calculators print.

*sglang* follows SGLang's pool configurator (0.5.23). Before 0.5.23 it kept index keys on every layer of a
sparse attention, since then on those that own an indexer.

*vllm* follows vLLM's KV cache specs (0.32): what one layer keeps of one token or state. How its pool puts
layers of several kinds into blocks is told by :mod:`kvcap.models.pools`.

An engine whose pools no published formula covers is refused, not approximated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from kvcap.models.layouts import logical, sglang, vllm
from kvcap.models.layouts.pricing import SPARSE_BACKENDS, Pricing, SparseBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.models.groups import Group
    from kvcap.models.terms import Term

Layout = Literal["logical", "sglang", "vllm"]
LAYOUTS: Final[tuple[Layout, ...]] = ("logical", "sglang", "vllm")

_MODULES: Final = {"logical": logical, "sglang": sglang, "vllm": vllm}

__all__ = [
    "LAYOUTS",
    "SPARSE_BACKENDS",
    "Layout",
    "Pricing",
    "SparseBackend",
    "check_precision",
    "price_group",
]


def price_group(group: Group, layout: Layout, pricing: Pricing) -> tuple[Term, ...]:
    """Return the terms of a group of layers in a layout, for one rank or for ``pricing.copies`` of them.

    Raises
    ------
    UsageError
        If the layout has no formula for this group or this precision, or heads do not split.
    """
    return tuple(_MODULES[layout].terms(group, pricing))


def check_precision(groups: Sequence[Group], layout: Layout, pricing: Pricing) -> None:
    """Refuse a precision of the cache that a layout does not have for groups together.

    Raises
    ------
    UsageError
        If it has none.
    """
    _MODULES[layout].check_precision(groups, pricing)

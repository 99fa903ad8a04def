"""From elements to bytes: the logical size, and what the memory pools of serving engines allocate.

*logical* is elements times bytes per element, with scales only where the model itself fixes them. It is
what calculators print.

*sglang* follows SGLang's pool configurator of mid 2026. Later releases keep index keys only on layers
that own an indexer; then its start-up line says less, and ``calibrate`` follows it.

*vllm* follows vLLM's KV cache specs. Its blocks of hybrid models are padded to one page size that depends
on the other groups, so those are left to its start-up line.

An engine whose pools no published formula covers is refused, not approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from kvcap.errors import UsageError
from kvcap.models.groups import Group, HeadGroup, IndexGroup, LatentGroup, Scales, StateGroup
from kvcap.models.precision import ELEMENT_BYTES, STATE_ELEMENT_BYTES
from kvcap.models.terms import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Layout = Literal["logical", "sglang", "vllm"]
LAYOUTS: Final[tuple[Layout, ...]] = ("logical", "sglang", "vllm")

_CALIBRATE: Final = "expected --layout logical, or --calibrate with the engine's start-up line"
_SPARSE_SCALE_GROUP: Final = 128
_FP4_SCALE_GROUP: Final = 16
_MXFP8_SCALE_GROUP: Final = 32


@dataclass(frozen=True)
class Pricing:
    """What turns elements into bytes besides the layout.

    Parameters
    ----------
    kv_precision, indexer_precision
        Formats in force, full names.
    state_precision
        Format of recurrent states; None keeps the model's own.
    attention_tp
        Ranks that split the heads of one attention replica.
    copies
        Ranks whose bytes are added up: 1, or all of a replica.
    """

    kv_precision: str
    indexer_precision: str
    state_precision: str | None
    attention_tp: int
    copies: int

    @property
    def kv_bytes(self) -> Fraction:
        """Bytes of one KV element."""
        return ELEMENT_BYTES[self.kv_precision]

    @property
    def indexer_bytes(self) -> Fraction:
        """Bytes of one element of an index key."""
        return ELEMENT_BYTES[self.indexer_precision]

    def heads(self, kv_heads: int) -> int:
        """Return the KV heads on one rank: split evenly, or repeated where there are fewer than ranks.

        Raises
        ------
        UsageError
            If they can be neither.
        """
        if kv_heads % self.attention_tp and self.attention_tp % kv_heads:
            allowed = [n for n in range(1, kv_heads + 1) if kv_heads % n == 0]
            raise UsageError(
                f"tensor parallelism is {self.attention_tp} for {kv_heads} KV heads, expected one of "
                f"{', '.join(map(str, allowed))} or a multiple of {kv_heads}"
            )
        return max(1, kv_heads // self.attention_tp)


def price(groups: Sequence[Group], layout: Layout, pricing: Pricing) -> tuple[Term, ...]:
    """Return the terms of some groups of layers in a layout, for one rank or for ``pricing.copies`` of them.

    Raises
    ------
    UsageError
        If the layout has no formula for these groups or this precision, or heads do not split.
    """
    pricers: dict[Layout, Callable[[Sequence[Group], Pricing], list[Term]]] = {
        "logical": _logical,
        "sglang": _sglang,
        "vllm": _vllm,
    }
    return tuple(pricers[layout](groups, pricing))


def _logical(groups: Sequence[Group], pricing: Pricing) -> list[Term]:
    _refuse_precision("logical", pricing, "mxfp8")
    terms = []
    for group in groups:
        if isinstance(group, HeadGroup):
            terms.append(_heads(group, pricing))
        elif isinstance(group, LatentGroup):
            terms.append(_latent(group, pricing))
        elif isinstance(group, IndexGroup):
            terms += _index(group, pricing)
        else:
            terms.append(_state(group, pricing))
    return terms


def _sglang(groups: Sequence[Group], pricing: Pricing) -> list[Term]:
    _refuse_compression("sglang", groups)
    windowed = any(not isinstance(g, IndexGroup | StateGroup) and g.window_tokens for g in groups)
    latent = any(isinstance(group, LatentGroup) for group in groups)
    if windowed or (any(isinstance(group, IndexGroup) for group in groups) and not latent):
        _refuse_precision("sglang", pricing, "fp4_int4")
    if latent or not any(isinstance(group, HeadGroup) for group in groups):
        _refuse_precision("sglang", pricing, "mxfp8")
    terms: list[Term] = []
    for group in groups:
        if isinstance(group, HeadGroup):
            terms += _sglang_heads(group, pricing)
        elif isinstance(group, LatentGroup):
            terms.append(_engine_latent(group, pricing))
        elif isinstance(group, IndexGroup):
            terms.append(_engine_index(group, pricing, group.layers + group.sharing_layers))
        else:
            terms.append(_state(group, pricing))
    return terms


def _vllm(groups: Sequence[Group], pricing: Pricing) -> list[Term]:
    _refuse_compression("vllm", groups)
    _refuse_precision("vllm", pricing, "mxfp8", "fp4_int4")
    terms: list[Term] = []
    for group in groups:
        if isinstance(group, StateGroup) or (
            not isinstance(group, IndexGroup) and group.window_tokens is not None
        ):
            raise UsageError(
                f"vLLM pads the blocks of hybrid models ({group.name}) to a common page size; {_CALIBRATE}"
            )
        if isinstance(group, HeadGroup):
            terms.append(_heads(group, pricing))
        elif isinstance(group, LatentGroup):
            terms.append(_engine_latent(group, pricing))
        elif pricing.indexer_precision != "fp8_int8":
            raise UsageError(f"layout vllm has no formula for 16-bit {group.name}; {_CALIBRATE}")
        else:
            terms.append(_engine_index(group, pricing, group.layers))
    return terms


def _heads(group: HeadGroup, pricing: Pricing) -> Term:
    heads, dims = pricing.heads(group.kv_heads), group.head_dim + group.v_head_dim
    formula = f"{heads} heads x ({group.head_dim} + {group.v_head_dim}) x {_number(pricing.kv_bytes)} B"
    return _term(group, heads * dims * pricing.kv_bytes, formula, pricing)


def _sglang_heads(group: HeadGroup, pricing: Pricing) -> list[Term]:
    plain = _heads(group, pricing)
    heads, dims = pricing.heads(group.kv_heads), group.head_dim + group.v_head_dim
    if pricing.kv_precision == "mxfp8":
        scales = Fraction(heads * dims, _MXFP8_SCALE_GROUP)
        formula = f"{plain.formula} + {_number(scales)} B of scales"
        return [_term(group, heads * dims + scales, formula, pricing)]
    if pricing.kv_precision != "fp4_int4":
        return [plain]
    scales = Fraction(heads * group.head_dim * 2, _FP4_SCALE_GROUP)
    formula = f"{plain.formula} + {_number(scales)} B of scales"
    workspace = Term(
        f"dequantization workspace of {group.name}",
        "workspace",
        1,
        Fraction(heads * group.head_dim * 2 * pricing.copies),
        f"{heads} heads x {group.head_dim} x 2, once for all layers",
    )
    return [_term(group, heads * dims * pricing.kv_bytes + scales, formula, pricing), workspace]


def _latent(group: LatentGroup, pricing: Pricing) -> Term:
    element_bytes = pricing.kv_bytes if group.element_bytes is None else group.element_bytes
    elements = group.rank + group.rope_dim
    width = f"({group.rank} + {group.rope_dim})" if group.rope_dim else f"{group.rank}"
    scales = _scale_bytes(elements, group.scales)
    formula = f"{width} x {_number(element_bytes)} B" + (f" + {scales} B of scales" if scales else "")
    return _term(group, elements * element_bytes + scales, formula, pricing)


def _engine_latent(group: LatentGroup, pricing: Pricing) -> Term:
    """Return a latent as engines keep it: sparse fp8 has fp32 scales and a 16-bit rotary part."""
    if group.sparse and pricing.kv_precision == "fp8_int8":
        scales = group.rank // _SPARSE_SCALE_GROUP * 4
        formula = f"{group.rank} + {scales} B of scales + {group.rope_dim} x 2 B"
        return _term(group, Fraction(group.rank + scales + group.rope_dim * 2), formula, pricing)
    plain = _latent(group, pricing)
    if pricing.kv_precision != "fp4_int4":
        return plain
    elements = group.rank + group.rope_dim
    scales = elements // _FP4_SCALE_GROUP
    formula = f"{plain.formula} + {scales} B of scales"
    return _term(group, elements * pricing.kv_bytes + scales, formula, pricing)


def _index(group: IndexGroup, pricing: Pricing) -> list[Term]:
    scales = _scale_bytes(group.head_dim, dict(group.scales).get(pricing.indexer_precision))
    formula = f"{group.head_dim} x {_number(pricing.indexer_bytes)} B"
    formula += f" + {scales} B of scales" if scales else ""
    keys = _term(group, group.head_dim * pricing.indexer_bytes + scales, formula, pricing)
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


def _engine_index(group: IndexGroup, pricing: Pricing, layers: int) -> Term:
    """Return index keys as engines keep them: fp8 with an fp32 scale per 128, or 16 bits where fixed so."""
    if pricing.indexer_precision == "bf16_fp16":
        per_layer, formula = 2 * group.head_dim, f"{group.head_dim} x 2 B"
    else:
        scales = group.head_dim // _SPARSE_SCALE_GROUP * 4
        per_layer, formula = group.head_dim + scales, f"{group.head_dim} + {scales} B of scales"
    return Term(group.name, "indexer", layers, Fraction(per_layer * pricing.copies), formula)


def _state(group: StateGroup, pricing: Pricing) -> Term:
    per_rank = Fraction(0)
    parts = []
    for tensor in group.tensors:
        element_bytes = Fraction(tensor.element_bytes)
        if tensor.recurrent and pricing.state_precision is not None:
            element_bytes = STATE_ELEMENT_BYTES[pricing.state_precision]
        elements = Fraction(tensor.elements)
        if tensor.heads is not None:
            elements = elements * pricing.heads(tensor.heads) / tensor.heads
        per_rank += elements * element_bytes
        parts.append(f"{_number(elements)} x {_number(element_bytes)} B")
    return Term(
        group.name,
        "state",
        group.layers,
        per_rank * pricing.copies,
        " + ".join(parts),
        retention="state",
        counted=False,
    )


def _term(
    group: HeadGroup | LatentGroup | IndexGroup, per_rank: Fraction, formula: str, pricing: Pricing
) -> Term:
    window = None if isinstance(group, IndexGroup) else group.window_tokens
    return Term(
        group.name,
        "indexer" if isinstance(group, IndexGroup) else group.pool,
        group.layers,
        per_rank * pricing.copies,
        formula,
        retention="token" if window is None else "window",
        tokens_per_entry=1 if isinstance(group, HeadGroup) else group.tokens_per_entry,
        window_tokens=window,
        counted=not (isinstance(group, LatentGroup) and group.replayed),
    )


def _scale_bytes(elements: int, scales: Scales | None) -> int:
    return 0 if scales is None else elements // scales.group * scales.scale_bytes


def _refuse_compression(layout: str, groups: Sequence[Group]) -> None:
    for group in groups:
        pooled = isinstance(group, LatentGroup | IndexGroup) and group.tokens_per_entry > 1
        if pooled or (isinstance(group, LatentGroup) and group.element_bytes is not None):
            raise UsageError(f"layout {layout} has no formula for {group.name} of this model; {_CALIBRATE}")


def _refuse_precision(layout: str, pricing: Pricing, *refused: str) -> None:
    if pricing.kv_precision in refused:
        allowed = [name for name in ELEMENT_BYTES if name not in {*refused, "mxfp8"}]
        raise UsageError(
            f"KV precision is {pricing.kv_precision} in layout {layout}, expected {' or '.join(allowed)} here"
        )


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"

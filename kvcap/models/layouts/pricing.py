"""What turns elements of a layer into bytes, and the terms that every layout makes alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal

from kvcap.errors import UsageError
from kvcap.models.groups import HeadGroup, IndexGroup, LatentGroup, StateGroup
from kvcap.models.precision import ELEMENT_BYTES, STATE_ELEMENT_BYTES
from kvcap.models.terms import Term

SparseBackend = Literal["flashmla", "flashinfer", "trtllm"]
SPARSE_BACKENDS: Final[tuple[SparseBackend, ...]] = ("flashmla", "flashinfer", "trtllm")
"""Kernels of sparse latent attention: FlashMLA reads packed rows, the others plain ones."""

SPARSE_SCALE_GROUP: Final = 128
FP4_SCALE_GROUP: Final = 16


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
    sparse_backend
        The kernel of sparse latent attention, whose fp8 rows differ.
    engine_version
        The engine's version; None for the newest that is known.
    draft_tokens
        Tokens drafted ahead, by which convolutions keep more of their past.
    """

    kv_precision: str
    indexer_precision: str
    state_precision: str | None
    attention_tp: int
    copies: int
    sparse_backend: SparseBackend = "flashmla"
    engine_version: tuple[int, ...] | None = None
    draft_tokens: int = 0

    @property
    def kv_bytes(self) -> Fraction:
        """Bytes of one KV element."""
        return ELEMENT_BYTES[self.kv_precision]

    @property
    def indexer_bytes(self) -> Fraction:
        """Bytes of one element of an index key."""
        return ELEMENT_BYTES[self.indexer_precision]

    def before(self, *version: int) -> bool:
        """Return whether the engine is older than a version."""
        return self.engine_version is not None and self.engine_version < version

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


def heads_term(group: HeadGroup, pricing: Pricing) -> Term:
    """Return keys and values as elements times bytes."""
    heads, dims = pricing.heads(group.kv_heads), group.head_dim + group.v_head_dim
    formula = f"{heads} heads x ({group.head_dim} + {group.v_head_dim}) x {number(pricing.kv_bytes)} B"
    return term(group, heads * dims * pricing.kv_bytes, formula, pricing)


def latent_term(group: LatentGroup, pricing: Pricing) -> Term:
    """Return a latent as elements times bytes, with scales only where the model fixes them."""
    element_bytes = pricing.kv_bytes if group.element_bytes is None else group.element_bytes
    elements = group.rank + group.rope_dim
    width = f"({group.rank} + {group.rope_dim})" if group.rope_dim else f"{group.rank}"
    scales = 0 if group.scales is None else elements // group.scales.group * group.scales.scale_bytes
    formula = f"{width} x {number(element_bytes)} B" + (f" + {scales} B of scales" if scales else "")
    return term(group, elements * element_bytes + scales, formula, pricing)


def packed_row_term(group: LatentGroup, pricing: Pricing) -> Term:
    """Return DeepSeek V4's row: fp8 elements, a 16-bit rotary part, one-byte scales padded to 8."""
    scales = 8
    formula = f"{group.rank} + {group.rope_dim} x 2 + {scales} B of scales"
    return term(group, Fraction(group.rank + group.rope_dim * 2 + scales), formula, pricing)


def index_term(group: IndexGroup, pricing: Pricing, layers: int, precision: str) -> Term:
    """Return index keys as engines keep them.

    In fp8 with an fp32 scale for every 128 elements, in fp4 with a byte for every 32, or in 16 bits.
    """
    if precision == "bf16_fp16":
        per_layer, formula = 2 * group.head_dim, f"{group.head_dim} x 2 B"
    else:
        size, scales = (
            (group.head_dim // 2, group.head_dim // 32)
            if precision == "fp4_int4"
            else (group.head_dim, group.head_dim // SPARSE_SCALE_GROUP * 4)
        )
        per_layer, formula = size + scales, f"{size} + {scales} B of scales"
    return replace(term(group, Fraction(per_layer), formula, pricing), layers=layers)


def state_term(group: StateGroup, pricing: Pricing) -> Term:
    """Return one state per resumable position, shown and not counted."""
    per_rank = Fraction(0)
    parts = []
    for tensor in group.tensors:
        element_bytes = Fraction(tensor.element_bytes)
        if tensor.recurrent and pricing.state_precision is not None:
            element_bytes = STATE_ELEMENT_BYTES[pricing.state_precision]
        elements = Fraction(tensor.elements)
        if tensor.history:
            elements = elements / tensor.history * (tensor.history + pricing.draft_tokens)
        if tensor.heads is not None:
            elements = elements * pricing.heads(tensor.heads) / tensor.heads
        per_rank += elements * element_bytes
        parts.append(f"{number(elements)} x {number(element_bytes)} B")
    return Term(
        group.name,
        "state",
        group.layers,
        per_rank * pricing.copies,
        " + ".join(parts),
        retention="state",
        counted=False,
    )


def term(
    group: HeadGroup | LatentGroup | IndexGroup, per_rank: Fraction, formula: str, pricing: Pricing
) -> Term:
    """Return what a group keeps of tokens, from the bytes of one entry in one layer on one rank."""
    window = None if isinstance(group, IndexGroup) else group.window_tokens
    chunked = isinstance(group, HeadGroup) and group.chunked
    return Term(
        group.name,
        "indexer" if isinstance(group, IndexGroup) else group.pool,
        group.layers,
        per_rank * pricing.copies,
        formula,
        retention="token" if window is None else "chunk" if chunked else "window",
        tokens_per_entry=1 if isinstance(group, HeadGroup) else group.tokens_per_entry,
        window_tokens=window,
        counted=not (isinstance(group, LatentGroup) and group.replayed),
    )


def refuse_precision(layout: str, pricing: Pricing, *refused: str) -> None:
    """Refuse some KV precisions where a layout has no formula for them.

    Raises
    ------
    UsageError
        If the precision in force is one of ``refused``.
    """
    if pricing.kv_precision in refused:
        allowed = [name for name in ELEMENT_BYTES if name not in {*refused, "mxfp8", "fp32"}]
        raise UsageError(
            f"KV precision is {pricing.kv_precision} in layout {layout}, expected {' or '.join(allowed)} here"
        )


def number(value: Fraction) -> str:
    """Return a number as formulas show it."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"

"""Bytes of a model's KV cache: options in, terms out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from kvcap.errors import UsageError
from kvcap.models.deployment import ModelBytesOptions, parse_version
from kvcap.models.groups import Group, HeadGroup, IndexGroup, LatentGroup
from kvcap.models.kinds import Attention
from kvcap.models.layouts import (
    SPARSE_BACKENDS,
    Layout,
    Pricing,
    SparseBackend,
    check_precision,
    price_group,
)
from kvcap.units import format_size

if TYPE_CHECKING:
    from kvcap.models.catalog import Model
    from kvcap.models.terms import Term


@dataclass(frozen=True)
class ModelBytes:
    """Bytes of a model's cache, term by term, exact.

    Attributes
    ----------
    model
        The model.
    options
        The deployment asked for.
    kv_precision, indexer_precision
        The formats in force; the latter None without an indexer.
    terms
        Every summand; those with ``counted`` false are not in the totals.
    scope
        Whose bytes these are, in words.
    notes
        What prevailed over the options, and what is not covered, one sentence each.
    """

    model: Model
    options: ModelBytesOptions
    kv_precision: str
    indexer_precision: str | None
    terms: tuple[Term, ...]
    scope: str
    notes: tuple[str, ...]

    @property
    def is_linear(self) -> bool:
        """Whether the bytes of a sequence are its tokens times one number, states included."""
        return all(term.retention == "token" and term.tokens_per_entry == 1 for term in self.terms)

    @property
    def state_bytes(self) -> Fraction:
        """Bytes of one state from which a sequence can resume; 0 without such layers."""
        return sum((term.entry_bytes for term in self.terms if term.retention == "state"), Fraction(0))

    @property
    def asymptotic_bytes_per_token(self) -> Fraction:
        """Bytes of one more token of a very long sequence."""
        kept = [term for term in self.terms if term.counted and term.retention == "token"]
        return sum((term.entry_bytes / term.tokens_per_entry for term in kept), Fraction(0))

    def total_bytes(self, tokens: int) -> Fraction:
        """Return the counted bytes of a sequence of ``tokens`` tokens.

        Raises
        ------
        UsageError
            If there are fewer than 0.
        """
        if tokens < 0:
            raise UsageError(f"tokens is {tokens}, expected a whole number from 0")
        return sum((term.total_bytes(tokens) for term in self.terms if term.counted), Fraction(0))

    def bytes_per_token(self, tokens: int) -> Fraction:
        """Return the mean bytes per token of a sequence of ``tokens`` tokens.

        Raises
        ------
        UsageError
            If there are fewer than 1.
        """
        if tokens < 1:
            raise UsageError(f"tokens is {tokens}, expected a whole number from 1")
        return self.total_bytes(tokens) / tokens

    def describe(self, tokens: int | None = None) -> str:
        """Return one line that says what the figure is, to stand beside every answer that uses it."""
        indexer = "" if self.indexer_precision is None else f", indexer {self.indexer_precision}"
        draft = ", draft layers included" if self.options.counts_draft_layers else ""
        basis = f"{self.options.layout} bytes, KV {self.kv_precision}{indexer}{draft}, {self.scope}"
        return f"{self.model.name}: {self._figure(tokens)} ({basis})"

    def _figure(self, tokens: int | None) -> str:
        if self.is_linear:
            return f"{_bytes(self.bytes_per_token(1))}/token"
        if tokens is not None:
            return f"{_bytes(self.bytes_per_token(tokens))}/token at {tokens:,} tokens, not linear in length"
        parts = [f"{_bytes(self.asymptotic_bytes_per_token)}/token"]
        parts += [
            f"{_bytes(term.entry_bytes)}/token up to {term.window_tokens:,} tokens"
            for term in self.terms
            if term.counted and term.window_tokens is not None
        ]
        if self.state_bytes:
            parts.append(f"{format_size(float(self.state_bytes))} per resumable state")
        return " + ".join(parts)


def model_bytes(model: Model, options: ModelBytesOptions | None = None) -> ModelBytes:
    """Return the bytes of a model's cache under some deployment, term by term.

    Parameters
    ----------
    model
        From :func:`resolve_model`.
    options
        The deployment; the default is logical bytes of one rank at the model's default precision.

    Raises
    ------
    UsageError
        If the layout has no formula for this precision, or heads do not split over the ranks.
    """
    options = ModelBytesOptions() if options is None else options
    priced = priced_groups(model, options)
    groups = tuple(group for group, _ in priced)
    terms = tuple(term for _, terms in priced for term in terms)
    if options.include_state:
        terms = tuple(replace(term, counted=True) for term in terms)
    kv_precision = _kv_precision(model, options)
    indexer_precision = _indexer_precision(model, options, kv_precision)
    return ModelBytes(
        model=model,
        options=options,
        kv_precision=kv_precision,
        indexer_precision=indexer_precision if _has(groups, IndexGroup) else None,
        terms=_stage(_sharded(terms, options), options),
        scope=_scope(options),
        notes=(*model.caveats, *_notes(model.attention, groups, options, kv_precision, indexer_precision)),
    )


def priced_groups(model: Model, options: ModelBytesOptions) -> list[tuple[Group, tuple[Term, ...]]]:
    """Return what every group of layers keeps of whole tokens on one rank, or all ranks, of all stages.

    Raises
    ------
    UsageError
        As :func:`model_bytes`.
    """
    groups = _unquantized_apart(model.attention.groups(options.counts_draft_layers), options)
    kv_precision = _kv_precision(model, options)
    attention_tp = options.tp // options.dp_attention
    layout = cast(Layout, options.layout)
    pricing = Pricing(
        kv_precision,
        _indexer_precision(model, options, kv_precision),
        options.state_precision,
        attention_tp,
        copies=attention_tp if options.scope == "replica" else 1,
        sparse_backend=cast(SparseBackend, options.sparse_backend or SPARSE_BACKENDS[0]),
        engine_version=parse_version(options.engine_version),
        draft_tokens=options.num_speculative_tokens if layout == "vllm" else 0,
    )
    check_precision([group for group, _ in groups], layout, pricing)
    return [
        (group, price_group(group, layout, replace(pricing, kv_precision=precision or kv_precision)))
        for group, precision in groups
    ]


def _unquantized_apart(
    groups: tuple[Group, ...], options: ModelBytesOptions
) -> list[tuple[Group, str | None]]:
    """Return the groups with the layers left at 16 bits as one of their own, and its precision."""
    apart: list[tuple[Group, str | None]] = [(group, None) for group in groups]
    left = options.unquantized_layers
    if not left:
        return apart
    for place, group in enumerate(groups):
        if isinstance(group, HeadGroup) and group.window_tokens is None and group.layers > left:
            unquantized = replace(group, name=f"{group.name}, unquantized", layers=left)
            apart[place] = (replace(group, layers=group.layers - left), None)
            apart.insert(place + 1, (unquantized, "bf16_fp16"))
            return apart
    raise UsageError(
        f"unquantized layers are {left}, expected fewer than the model's layers of full attention"
    )


def _kv_precision(model: Model, options: ModelBytesOptions) -> str:
    """Return the cache's format: the engine's or model's own, what is asked, what the checkpoint says."""
    attention = model.attention
    in_engines = attention.kv_in_engines if options.layout != "logical" else None
    fixed = in_engines or attention.kv_fixed
    return fixed or options.kv_precision or model.kv_precision or "bf16_fp16"


def _sharded(terms: tuple[Term, ...], options: ModelBytesOptions) -> tuple[Term, ...]:
    """Return the part of every token that one rank of decode context parallelism keeps."""
    if options.dcp == 1:
        return terms
    if any(term.retention in {"window", "chunk"} for term in terms):
        raise UsageError(
            f"dcp is {options.dcp} for layers with windows, expected 1: engines do not split those"
        )
    whole = {"workspace", "state"} | ({"indexer"} if options.layout == "sglang" else set())
    return tuple(
        term if term.pool in whole else replace(term, bytes_per_layer=term.bytes_per_layer / options.dcp)
        for term in terms
    )


def _notes(
    attention: Attention,
    groups: tuple[Group, ...],
    options: ModelBytesOptions,
    kv_precision: str,
    indexer_precision: str,
) -> list[str]:
    """Return what prevailed over the options, and what people should know of these bytes."""
    notes = []
    if options.kv_precision not in {None, kv_precision}:
        by = "model" if attention.kv_fixed == kv_precision else f"{options.layout} layout"
        notes.append(f"the {by} fixes the KV cache at {kv_precision}")
    if _has(groups, IndexGroup) and options.indexer_precision not in {None, indexer_precision}:
        by = "model" if attention.indexer_fixed else f"{options.layout} layout"
        notes.append(f"the {by} fixes index keys at {indexer_precision}")
    if options.counts_draft_layers and groups == attention.groups(include_draft=False):
        notes.append("no draft layers with a cache of their own are known for this model")
    sparse = any(isinstance(group, LatentGroup) and group.sparse and not group.packed for group in groups)
    if sparse and options.layout != "logical" and kv_precision == "fp8_int8":
        notes.append(
            f"fp8 rows as {options.sparse_backend} keeps them"
            if options.sparse_backend
            else "fp8 rows as FlashMLA packs them; other sparse backends keep plain ones"
        )
    sharing = sum(group.sharing_layers for group in groups if isinstance(group, IndexGroup))
    if sharing and options.layout == "sglang":
        notes.append(
            f"SGLang before 0.5.23 kept index keys on {sharing} layers that share an indexer too, "
            "as engine version 0.5.22 counts"
        )
    if options.pp > 1 and options.scope == "rank" and len({group.layers for group in groups}) > 1:
        notes.append(f"layers of every kind are taken as spread evenly over {options.pp} stages")
    ranks = options.tp // options.dp_attention
    if ranks > 1 and _has(groups, LatentGroup, IndexGroup):
        notes.append(f"latents and index keys are kept whole on each of {ranks} ranks")
    return notes


def _has(groups: tuple[Group, ...], *types: type) -> bool:
    return any(isinstance(group, types) for group in groups)


def _indexer_precision(model: Model, options: ModelBytesOptions, kv_precision: str) -> str:
    """Return the format of index keys: the model's, the engine's, the user's, a default, in that order."""
    fixed = model.attention.indexer_fixed
    if options.layout == "vllm" and fixed == "fp4_int4":
        return "fp8_int8"
    if fixed is not None:
        return fixed
    if options.layout != "logical":
        return "fp8_int8"
    return options.indexer_precision or model.attention.indexer_default or kv_precision


def _stage(terms: tuple[Term, ...], options: ModelBytesOptions) -> tuple[Term, ...]:
    """Return what the fullest pipeline stage keeps, kinds of layers spread evenly; a replica keeps all."""
    if options.pp == 1 or options.scope == "replica":
        return terms
    return tuple(
        term if term.pool == "workspace" else replace(term, layers=-(-term.layers // options.pp))
        for term in terms
    )


def _scope(options: ModelBytesOptions) -> str:
    attention_tp = options.tp // options.dp_attention
    ranks = attention_tp * options.pp
    if options.tp == options.pp == 1:
        return "one rank, the whole replica"
    sizes = f"tp {options.tp}"
    sizes += "".join(
        f", {name} {size}" for name, size in (("pp", options.pp), ("dcp", options.dcp)) if size > 1
    )
    own = ""
    if options.dp_attention > 1:
        sizes += f", dp attention {options.dp_attention}"
        own = f"; each of {options.dp_attention} attention replicas has a cache of its own"
    if options.scope == "replica":
        return f"one replica, {ranks} ranks together ({sizes}){own}"
    stage = " of the fullest pipeline stage" if options.pp > 1 else ""
    return f"one of {ranks} ranks{stage} ({sizes}){own}"


def _bytes(value: Fraction) -> str:
    return f"{value.numerator:,} B" if value.denominator == 1 else f"{float(value):,.1f} B"

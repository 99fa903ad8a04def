"""Bytes of a model's KV cache: options in, terms out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, cast

from kvcap.errors import UsageError
from kvcap.models.groups import Group, IndexGroup, LatentGroup
from kvcap.models.kinds import Attention
from kvcap.models.layouts import LAYOUTS, Layout, Pricing, price
from kvcap.models.precision import (
    INDEXER_PRECISIONS,
    KV_PRECISIONS,
    STATE_PRECISIONS,
    parse_precision,
)
from kvcap.units import format_size

if TYPE_CHECKING:
    from kvcap.models.catalog import Model
    from kvcap.models.terms import Term

Scope = Literal["rank", "replica"]
SCOPES: Final[tuple[Scope, ...]] = ("rank", "replica")


@dataclass(frozen=True)
class ModelBytesOptions:
    """How a model is deployed. Short names of precisions are replaced by the full ones.

    Parameters
    ----------
    kv_precision, indexer_precision
        Formats of the cache and of an indexer's keys; None takes the model's default. What the model, or
        the engine's pool, fixes prevails and is noted.
    state_precision
        Format of recurrent states; None takes the model's own.
    include_draft_kv_cache
        Add the layers that draft tokens (MTP).
    include_state
        Count one state per sequence and replayed windows, which are otherwise shown apart.
    layout
        ``logical``, ``sglang`` or ``vllm``: see :mod:`kvcap.models.layouts`.
    tp, pp
        Ranks that split heads, and pipeline stages that split layers.
    dp_attention
        Attention replicas among the ``tp`` ranks; each has a cache of its own and splits heads over
        ``tp / dp_attention`` ranks.
    scope
        Whose bytes: ``rank`` or all ranks of one attention ``replica`` together.

    Raises
    ------
    UsageError
        If a value is not among those allowed, or the parallel sizes do not divide.
    """

    kv_precision: str | None = None
    indexer_precision: str | None = None
    state_precision: str | None = None
    include_draft_kv_cache: bool = False
    include_state: bool = False
    layout: str = "logical"
    tp: int = 1
    pp: int = 1
    dp_attention: int = 1
    scope: str = "rank"

    def __post_init__(self) -> None:
        for field, allowed in (
            ("kv_precision", KV_PRECISIONS),
            ("indexer_precision", INDEXER_PRECISIONS),
            ("state_precision", STATE_PRECISIONS),
        ):
            text = getattr(self, field)
            if text is not None:
                # The dataclass is frozen for users; this is still its construction.
                object.__setattr__(self, field, parse_precision(text, field.replace("_", " "), allowed))
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout is {self.layout!r}, expected {', '.join(LAYOUTS)}")
        if self.scope not in SCOPES:
            raise UsageError(f"scope is {self.scope!r}, expected {' or '.join(SCOPES)}")
        for field in ("tp", "pp", "dp_attention"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}, expected a whole number from 1")
        if self.tp % self.dp_attention:
            raise UsageError(
                f"dp attention is {self.dp_attention} of tp {self.tp}, expected a divisor of {self.tp}"
            )


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
        draft = ", draft layers included" if self.options.include_draft_kv_cache else ""
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
        If the layout has no formula for this kind of model or precision, heads do not split over the
        ranks, or the bytes of one pipeline stage cannot be told.
    """
    options = ModelBytesOptions() if options is None else options
    attention = model.attention
    groups = attention.groups(options.include_draft_kv_cache)
    kv_precision = attention.kv_fixed or options.kv_precision or "bf16_fp16"
    indexer_precision = _indexer_precision(model, options, kv_precision)
    attention_tp = options.tp // options.dp_attention
    copies = attention_tp if options.scope == "replica" else 1
    terms = price(
        groups,
        cast(Layout, options.layout),
        Pricing(kv_precision, indexer_precision, options.state_precision, attention_tp, copies),
    )
    if options.include_state:
        terms = tuple(replace(term, counted=True) for term in terms)
    return ModelBytes(
        model=model,
        options=options,
        kv_precision=kv_precision,
        indexer_precision=indexer_precision if _has(groups, IndexGroup) else None,
        terms=_stage(terms, options),
        scope=_scope(options),
        notes=(*model.notes, *_notes(attention, groups, options, kv_precision, indexer_precision)),
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
        notes.append(f"the model fixes its KV cache at {kv_precision}")
    if _has(groups, IndexGroup) and options.indexer_precision not in {None, indexer_precision}:
        by = "model" if attention.indexer_fixed else f"{options.layout} layout"
        notes.append(f"the {by} fixes index keys at {indexer_precision}")
    if options.include_draft_kv_cache and groups == attention.groups(include_draft=False):
        notes.append("no draft layers with a cache of their own are known for this model")
    sharing = sum(group.sharing_layers for group in groups if isinstance(group, IndexGroup))
    if sharing and options.layout == "sglang":
        notes.append(
            f"SGLang releases since August 2026 keep no index keys on {sharing} layers that share an indexer"
        )
    ranks = options.tp // options.dp_attention
    if ranks > 1 and _has(groups, LatentGroup, IndexGroup):
        notes.append(f"latents and index keys are kept whole on each of {ranks} ranks")
    return notes


def _has(groups: tuple[Group, ...], *types: type) -> bool:
    return any(isinstance(group, types) for group in groups)


def _indexer_precision(model: Model, options: ModelBytesOptions, kv_precision: str) -> str:
    """Return the format of index keys: the model's, the engine's, the user's, a default, in that order."""
    if model.attention.indexer_fixed is not None:
        return model.attention.indexer_fixed
    if options.layout != "logical":
        return "fp8_int8"
    return options.indexer_precision or model.attention.indexer_default or kv_precision


def _stage(terms: tuple[Term, ...], options: ModelBytesOptions) -> tuple[Term, ...]:
    """Return what the fullest pipeline stage keeps; a replica keeps all stages."""
    if options.pp == 1 or options.scope == "replica":
        return terms
    layers = {term.layers for term in terms if term.pool != "workspace"}
    if len(layers) > 1:
        raise UsageError(
            f"pp is {options.pp} for layers of several kinds, whose places in the stages are not known; "
            "expected --scope replica, or --calibrate with the engine's start-up line"
        )
    return tuple(
        term if term.pool == "workspace" else replace(term, layers=-(-term.layers // options.pp))
        for term in terms
    )


def _scope(options: ModelBytesOptions) -> str:
    attention_tp = options.tp // options.dp_attention
    ranks = attention_tp * options.pp
    if options.tp == options.pp == 1:
        return "one rank, the whole replica"
    sizes = f"tp {options.tp}" + (f", pp {options.pp}" if options.pp > 1 else "")
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

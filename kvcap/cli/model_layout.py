"""How models and their bytes are laid out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kvcap.cli.pool_layout import pool_parts, pool_to_dict
from kvcap.cli.writer import Column, Layout, Table
from kvcap.errors import UsageError
from kvcap.models import LAYOUTS, model_bytes
from kvcap.models.memory import CacheMemory
from kvcap.units import format_count, format_size

if TYPE_CHECKING:
    from kvcap.models import Calibration, Model, ModelBytes, Term
    from kvcap.models.pools import SglangPool, VllmPool

_LENGTHS: Final = (1024, 8192, 65536)
_GIB: Final = 1024**3


@dataclass(frozen=True)
class ModelAnswer:
    """What a deployment of a model costs.

    Attributes
    ----------
    cost
        The bytes asked for.
    tokens
        The length of a sequence that was asked for; None takes some that tell the model.
    pool
        What an engine makes of it; None where that was not asked.
    memory
        Bytes of its cache on one GPU, or the terms that leave them; None where no one said.
    calibration
        What an engine's start-up lines measure of it; None without any.
    """

    cost: ModelBytes
    tokens: int | None = None
    pool: VllmPool | SglangPool | None = None
    memory: CacheMemory | int | None = None
    calibration: Calibration | None = None

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of the cache on one GPU."""
        return self.memory.left_bytes if isinstance(self.memory, CacheMemory) else self.memory


def _parts(answer: ModelAnswer) -> Iterator[str | Table]:
    """Yield every term of a model's bytes, its totals in every layout, and an engine's pools if asked."""
    cost, model = answer.cost, answer.cost.model
    layouts, refused = _by_layout(cost)
    yield f"{model.name} ({model.id}): {model.attention.title} ({model.kind})"
    yield f"context {_count(model.max_context)} tokens; {model.provenance}"
    yield cost.describe(answer.tokens)
    yield from (f"note: {note}" for note in cost.notes)
    yield ""
    yield Table(_TERM_COLUMNS, cost.terms)
    yield ""
    totals = [
        (layout, tokens, other.total_bytes(tokens))
        for tokens in _lengths(cost, answer.tokens)
        for layout, other in layouts.items()
    ]
    logical = {tokens: total for layout, tokens, total in totals if layout == "logical"}
    yield Table(
        (
            Column("layout", itemgetter(0), is_text=True),
            Column("tokens", itemgetter(1), format_count),
            Column("B/token", lambda row: row[2] / row[1], _number),
            Column("sequence", lambda row: float(row[2]), format_size),
            Column("of logical", lambda row: f"{float(row[2] / logical[row[1]]):.3f}" if logical else ""),
        ),
        totals,
    )
    yield from (f"{layout}: {reason}" for layout, reason in refused.items())
    if isinstance(answer.memory, CacheMemory):
        yield ""
        yield from _memory_parts(answer.memory)
    if answer.pool is not None:
        yield ""
        yield from pool_parts(answer.pool, answer.memory_bytes)
    if answer.calibration is not None:
        yield from _calibration_parts(answer.calibration)


def _memory_parts(memory: CacheMemory) -> Iterator[str | Table]:
    yield Table(
        (
            Column("memory of one GPU", lambda term: term.name, is_text=True),
            Column("known by", lambda term: term.basis, is_text=True),
            Column("GiB", lambda term: f"{term.size_bytes / _GIB:,.2f}"),
        ),
        memory.terms,
    )
    typical = ", as such terms typically are" if memory.is_typical else ""
    yield f"left for the cache: {memory.left_bytes / _GIB:,.2f} GiB{typical}"


def _calibration_parts(found: Calibration) -> Iterator[str]:
    if found.pool_blocks is not None:
        yield f"the engine's lines: {found.pool_blocks:,} blocks"
    for figure in found.measured:
        verdict = "the same to the digits printed" if figure.agrees else f"{float(figure.ratio - 1):+.2%}"
        yield (
            f"the engine's lines: {figure.what} of {_number(figure.measured_bytes)} B, computed "
            f"{_number(figure.formula_bytes)} B ({verdict})"
        )


def _calibration_to_dict(found: Calibration) -> dict[str, Any]:
    return {
        "pool_blocks": found.pool_blocks,
        "measured": [
            {
                "what": figure.what,
                "measured_bytes": float(figure.measured_bytes),
                "computed_bytes": float(figure.formula_bytes),
                "agrees": figure.agrees,
            }
            for figure in found.measured
        ],
    }


def _lengths(cost: ModelBytes, tokens: int | None) -> tuple[int, ...]:
    if tokens is not None:
        return (tokens,)
    if cost.is_linear:
        return _LENGTHS[:1]
    context = cost.model.max_context
    return tuple(n for n in _LENGTHS if context is None or n <= context) or _LENGTHS[:1]


def _by_layout(cost: ModelBytes) -> tuple[dict[str, ModelBytes], dict[str, str]]:
    """Return the same deployment in every layout that has a formula for it, and why the others have none."""
    tried: dict[str, ModelBytes | UsageError] = {layout: _in_layout(cost, layout) for layout in LAYOUTS}
    layouts = {layout: other for layout, other in tried.items() if not isinstance(other, UsageError)}
    refused = {layout: str(error) for layout, error in tried.items() if isinstance(error, UsageError)}
    return layouts, refused


def _in_layout(cost: ModelBytes, layout: str) -> ModelBytes | UsageError:
    try:
        return model_bytes(cost.model, dataclasses.replace(cost.options, layout=layout))
    except UsageError as error:
        return error


def _kept(term: Term) -> str:
    aside = "" if term.counted else ", not counted"
    if term.retention == "state":
        return f"once a resumable state{aside}"
    if term.retention == "tail":
        return f"while {term.tokens_per_entry} tokens are incomplete{aside}"
    each = "every token" if term.tokens_per_entry == 1 else f"every {term.tokens_per_entry} tokens"
    if term.window_tokens is None:
        return f"{each}{aside}"
    which = "the current" if term.retention == "chunk" else "the last"
    return f"{which} {term.window_tokens:,} tokens{aside}"


def _to_dict(answer: ModelAnswer) -> dict[str, Any]:
    cost = answer.cost
    layouts, refused = _by_layout(cost)
    return {
        "model": _model_to_dict(cost.model),
        "options": dataclasses.asdict(cost.options),
        "kv_precision": cost.kv_precision,
        "indexer_precision": cost.indexer_precision,
        "scope": cost.scope,
        "notes": list(cost.notes),
        "linear": cost.is_linear,
        "asymptotic_bytes_per_token": _json_number(cost.asymptotic_bytes_per_token),
        "state_bytes": _json_number(cost.state_bytes),
        "terms": [
            {
                **{
                    name: value
                    for name, value in dataclasses.asdict(term).items()
                    if name != "bytes_per_layer"
                },
                "bytes_per_layer": _json_number(term.bytes_per_layer),
                "entry_bytes": _json_number(term.entry_bytes),
            }
            for term in cost.terms
        ],
        "totals": [
            {
                "layout": layout,
                "tokens": tokens,
                "bytes_per_token": _json_number(other.bytes_per_token(tokens)),
                "total_bytes": _json_number(other.total_bytes(tokens)),
            }
            for tokens in _lengths(cost, answer.tokens)
            for layout, other in layouts.items()
        ],
        "refused_layouts": refused,
        **({} if answer.pool is None else pool_to_dict(answer.pool, answer.memory_bytes)),
        **(
            {"memory_terms": [dataclasses.asdict(term) for term in answer.memory.terms]}
            if isinstance(answer.memory, CacheMemory)
            else {}
        ),
        **({} if answer.calibration is None else {"calibration": _calibration_to_dict(answer.calibration)}),
    }


def _model_to_dict(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.name,
        "family": model.family,
        "kind": model.kind,
        "attention": model.attention.title,
        "max_context": model.max_context,
        "source": model.source,
        "retrieved": model.retrieved,
        "basis": model.basis,
        "facts": dataclasses.asdict(model.attention),  # type: ignore[call-overload]
        "notes": list(model.notes),
    }


def _json_number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.2f}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


_CATALOG_COLUMNS: Final = (
    Column("id", "id", is_text=True),
    Column("name", "name", is_text=True),
    Column("family", "family", is_text=True),
    Column("attention", lambda model: model.attention.title, is_text=True),
    Column("context", lambda model: _count(model.max_context)),
    Column("facts read", lambda model: model.retrieved or "no"),
)

_TERM_COLUMNS: Final = (
    Column("term", "name", is_text=True),
    Column("pool", "pool", is_text=True),
    Column("kept", _kept, is_text=True),
    Column("one layer", "formula", is_text=True),
    Column("layers", "layers"),
    Column("B per layer", "bytes_per_layer", _number),
    Column("B", "entry_bytes", _number),
)

CATALOG: Final = Layout(
    lambda models: [_model_to_dict(model) for model in models],
    lambda models: [Table(_CATALOG_COLUMNS, models)],
)
"""Of models, a line each."""

MODEL: Final = Layout(_to_dict, _parts)
"""Of a :class:`ModelAnswer`."""

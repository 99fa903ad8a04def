"""Models and their bytes as text or JSON."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TextIO

from kvcap.cli.pool_text import pool_to_dict, write_pool
from kvcap.cli.tables import print_table
from kvcap.errors import UsageError
from kvcap.models import LAYOUTS, model_bytes
from kvcap.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.models import Model, ModelBytes, Term
    from kvcap.models.pools import SglangPool, VllmPool

_LENGTHS: Final = (1024, 8192, 65536)


def write_catalog(models: Sequence[Model], form: str, stream: TextIO) -> None:
    """Write one line per model, or a JSON array of their facts."""
    if form == "json":
        json.dump([_model_to_dict(model) for model in models], stream, indent=2)
        stream.write("\n")
        return
    rows = [
        (model.id, model.name, model.family, model.attention.title, _count(model.max_context))
        for model in models
    ]
    print_table(("id", "name", "family", "attention", "context"), rows, stream, left=4)


def write_model(
    cost: ModelBytes,
    tokens: int | None,
    form: str,
    stream: TextIO,
    pool: VllmPool | SglangPool | None = None,
    memory_bytes: int | None = None,
) -> None:
    """Write every term of a model's bytes, its totals in every layout, and an engine's pools if asked."""
    lengths = _lengths(cost, tokens)
    layouts, refused = _by_layout(cost)
    if form == "json":
        answer = _cost_to_dict(cost, layouts, refused, lengths)
        answer.update({} if pool is None else pool_to_dict(pool, memory_bytes))
        json.dump(answer, stream, indent=2)
        stream.write("\n")
        return
    model = cost.model
    read = f", read {model.retrieved}" if model.retrieved else ""
    print(f"{model.name} ({model.id}): {model.attention.title} ({model.kind})", file=stream)
    print(f"context {_count(model.max_context)} tokens; facts from {model.source}{read}", file=stream)
    print(f"{cost.describe(tokens)}", file=stream)
    for note in cost.notes:
        print(f"note: {note}", file=stream)
    print(file=stream)
    rows = [_term_row(term) for term in cost.terms]
    print_table(("term", "pool", "kept", "one layer", "layers", "B per layer", "B"), rows, stream, left=4)
    print(file=stream)
    _print_totals(layouts, lengths, stream)
    for layout, reason in refused.items():
        print(f"{layout}: {reason}", file=stream)
    if pool is not None:
        print(file=stream)
        write_pool(pool, memory_bytes, stream)


def _print_totals(layouts: dict[str, ModelBytes], lengths: Sequence[int], stream: TextIO) -> None:
    rows = []
    for tokens in lengths:
        base = layouts["logical"].total_bytes(tokens) if "logical" in layouts else None
        for layout, cost in layouts.items():
            total = cost.total_bytes(tokens)
            ratio = f"{float(total / base):.3f}" if base else ""
            rows.append((layout, f"{tokens:,}", _number(total / tokens), format_size(float(total)), ratio))
    print_table(("layout", "tokens", "B/token", "sequence", "of logical"), rows, stream)


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


def _term_row(term: Term) -> tuple[str, ...]:
    return (
        term.name,
        term.pool,
        _kept(term),
        term.formula,
        str(term.layers),
        _number(term.bytes_per_layer),
        _number(term.entry_bytes),
    )


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


def _cost_to_dict(
    cost: ModelBytes, layouts: dict[str, ModelBytes], refused: dict[str, str], lengths: Sequence[int]
) -> dict[str, Any]:
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
            for tokens in lengths
            for layout, other in layouts.items()
        ],
        "refused_layouts": refused,
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
        "facts": dataclasses.asdict(model.attention),  # type: ignore[call-overload]
        "notes": list(model.notes),
    }


def _json_number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.2f}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"

"""Bytes per token of a replay: given, or from a model at the lengths of its trace."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvcap.queries import LengthCost, ModelSizing

if TYPE_CHECKING:
    from kvcap.models import ModelBytes
    from kvcap.replay.options import ReplayOptions

LENGTH_PERCENTS: Final = (10, 50, 90)


def bytes_per_token(
    options: ReplayOptions, input_tokens: npt.NDArray[np.int64]
) -> tuple[Fraction | None, ModelSizing | None]:
    """Return the flat bytes per token of a trace, and the model behind it where there is one.

    Parameters
    ----------
    options
        With ``kv_bytes_per_token`` or ``model_bytes``, or neither.
    input_tokens : int64 (n_requests,)
        Prompt lengths, at least one.
    """
    cost = options.model_bytes
    if cost is None:
        return options.kv_bytes_per_token, None
    mean = max(1, round(Fraction(int(input_tokens.sum()), input_tokens.size)))
    tokens = options.estimate_tokens or mean
    sizing = ModelSizing(
        model=cost.model.id,
        kv_precision=cost.kv_precision,
        indexer_precision=cost.indexer_precision,
        layout=cost.options.layout,
        scope=cost.scope,
        estimate_tokens=tokens,
        description=cost.describe(tokens),
        notes=cost.notes,
        length_costs=() if cost.is_linear else _length_costs(cost, input_tokens),
    )
    return cost.bytes_per_token(tokens), sizing


def decimal_text(number: Fraction) -> str:
    """Return a fraction as exact decimal text, or as ``a/b`` where it has none."""
    for digits in range(19):
        scaled = number * 10**digits
        if scaled.denominator == 1:
            whole, part = divmod(scaled.numerator, 10**digits)
            return f"{whole}.{part:0{digits}d}" if digits else str(whole)
    return str(number)


def _length_costs(cost: ModelBytes, input_tokens: npt.NDArray[np.int64]) -> tuple[LengthCost, ...]:
    ordered = np.sort(input_tokens)
    costs = []
    for percent in LENGTH_PERCENTS:
        rank = max(1, -(-percent * ordered.size // 100))
        tokens = max(1, int(ordered[rank - 1]))
        costs.append(LengthCost(percent, tokens, decimal_text(cost.bytes_per_token(tokens))))
    return tuple(costs)

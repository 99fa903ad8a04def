"""Bytes per token of a replay: given, or from a model at the lengths of its trace."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvcap.errors import UsageError
from kvcap.kernels.arrays import nearest_rank
from kvcap.queries import LengthCost, ModelSizing
from kvcap.units import decimal_text, parse_capacity

if TYPE_CHECKING:
    from kvcap.formats.base import ReadReport
    from kvcap.models import ModelBytes
    from kvcap.options import ReplayOptions

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


def with_bytes_of_log(options: ReplayOptions, report: ReadReport) -> ReplayOptions:
    """Return options with the bytes per token that the log itself tells, where no option says them."""
    if options.kv_bytes_per_token is not None or options.model_bytes is not None:
        return options
    if report.kv_bytes_per_token is not None:
        found = Fraction(report.kv_bytes_per_token)
        source = "as shapes and dtypes of the log's own records say"
    elif report.start_up_lines:
        from kvcap.models.calibrate import calibrate

        try:
            found = calibrate("\n".join(report.start_up_lines))
        except UsageError as error:
            report.notice(f"the engine's lines inside the log give no bytes per token: {error}")
            return options
        source = "of one rank, as the engine's start-up lines inside the log say"
    else:
        return options
    report.notice(f"{float(found):,.10g} bytes a token, {source} (--kv-bytes-per-token says it otherwise)")
    return replace(options, kv_bytes_per_token=found)


def max_capacity_blocks(options: ReplayOptions, block_size: int) -> int | None:
    """Return the largest capacity of interest in blocks, before any length is known.

    Raises
    ------
    UsageError
        If it does not parse, or is in bytes and what a token costs is unknown or depends on lengths.
    """
    if options.max_capacity is None:
        return None
    capacity = parse_capacity(options.max_capacity, "--max-capacity")
    per_token, cost = options.kv_bytes_per_token, options.model_bytes
    if cost is not None:
        if capacity.unit == "bytes" and not cost.is_linear and options.estimate_tokens is None:
            raise UsageError(
                f"--max-capacity in bytes: {cost.model.id} is not linear in tokens, expected "
                "--estimate-tokens with it"
            )
        per_token = cost.bytes_per_token(options.estimate_tokens or 1)
    block_bytes = None if per_token is None else math.ceil(per_token * block_size)
    return max(1, capacity.in_blocks("--max-capacity", block_size, block_bytes))


def _length_costs(cost: ModelBytes, input_tokens: npt.NDArray[np.int64]) -> tuple[LengthCost, ...]:
    ordered = np.sort(input_tokens)
    costs = []
    for percent in LENGTH_PERCENTS:
        tokens = max(1, nearest_rank(ordered, Fraction(percent, 100)))
        costs.append(LengthCost(percent, tokens, decimal_text(cost.bytes_per_token(tokens))))
    return tuple(costs)

"""Two replays side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kvcap.analysis.answer import answer
from kvcap.analysis.answer_json import percentile_name
from kvcap.engines.rules import DEFAULT_CAPACITIES
from kvcap.units import parse_capacity

if TYPE_CHECKING:
    from kvcap.analysis.answer import Answer
    from kvcap.queries import Results, RunInfo

RowKind = Literal["count", "rate", "bytes", "tokens"]

DEFINITION_FIELDS: Final = (
    "block_size",
    "coarsen",
    "partial_block",
    "touch_order",
    "target_percent",
    "warm_up_percent",
    "pool_column",
    "kv_bytes_per_token",
    "max_capacity_blocks",
    "compute_last_token",
    "output_blocks",
)
"""What must agree for the numbers of two runs to mean the same."""


@dataclass(frozen=True)
class DiffRow:
    """One number of both runs.

    Attributes
    ----------
    name
        What it is.
    kind
        How to print it: ``count``, ``rate`` (a share of 1), or a capacity in ``bytes`` or ``tokens``.
    a, b
        None where a run does not have it.
    """

    name: str
    kind: RowKind
    a: float | None
    b: float | None


@dataclass(frozen=True)
class Diff:
    """Two runs side by side; ``definitions`` are those that differ, with both values."""

    a: RunInfo
    b: RunInfo
    definitions: dict[str, tuple[object, object]]
    rows: tuple[DiffRow, ...]


def diff(a: Results, b: Results, capacities: str | None = None) -> Diff:
    """Compare two replays.

    Parameters
    ----------
    a, b
        Open replays.
    capacities
        Where to compare hit rates, as ``--capacities`` takes it; None takes those of the usual ones that
        both know, in tokens where one does not know its bytes, and the smaller of their bounds.

    Raises
    ------
    UsageError
        If the capacities do not parse or do not fit both runs.
    """
    capacities = capacities or _grid(a.run, b.run)
    first, second = a.run.scalars(), b.run.scalars()
    differing = {
        name: (first[name], second[name]) for name in DEFINITION_FIELDS if first[name] != second[name]
    }
    rows = [*_rows(answer(a, capacities), answer(b, capacities))]
    if all("explained" in results.table_names for results in (a, b)):
        rows += _explained_rows(a, b)
    return Diff(a.run, b.run, differing, tuple(rows))


def _rows(a: Answer, b: Answer) -> Iterator[DiffRow]:
    first, second = a.together, b.together
    for name in ("requests", "blocks", "input_tokens"):
        yield DiffRow(
            f"measured {name.replace('_', ' ')}",
            "count",
            getattr(first.totals, name),
            getattr(second.totals, name),
        )
    yield DiffRow(
        "mean input tokens", "count", first.totals.mean_input_tokens, second.totals.mean_input_tokens
    )
    unlimited_a, unlimited_b = first.capacities[-1], second.capacities[-1]
    yield DiffRow("ceiling, blocks", "rate", unlimited_a.block_hit_rate, unlimited_b.block_hit_rate)
    yield DiffRow("ceiling, tokens", "rate", unlimited_a.token_hit_rate, unlimited_b.token_hit_rate)
    for row_a, row_b in zip(first.capacities[:-1], second.capacities[:-1], strict=True):
        yield DiffRow(f"block hit rate at {row_a.label}", "rate", row_a.block_hit_rate, row_b.block_hit_rate)
    yield from _capacity_rows(a, b)


def _capacity_rows(a: Answer, b: Answer) -> Iterator[DiffRow]:
    in_bytes = a.run.block_bytes is not None and b.run.block_bytes is not None
    kind: RowKind = "bytes" if in_bytes else "tokens"

    def row(name: str, blocks_a: float | None, blocks_b: float | None) -> DiffRow:
        return DiffRow(name, kind, _scaled(blocks_a, a.run, kind), _scaled(blocks_b, b.run, kind))

    for share_a, share_b in zip(a.together.shares, b.together.shares, strict=True):
        name = f"capacity for {share_a.percent:g} % of the ceiling"
        yield row(name, share_a.capacity_blocks, share_b.capacity_blocks)
    samples_a, samples_b = a.together.samples, b.together.samples
    yield row("required capacity, mean", samples_a.mean_blocks, samples_b.mean_blocks)
    for percent in samples_a.required_blocks or samples_b.required_blocks:
        yield row(
            f"required capacity, {percentile_name(percent)}",
            samples_a.required_blocks.get(percent),
            samples_b.required_blocks.get(percent),
        )


def _explained_rows(a: Results, b: Results) -> Iterator[DiffRow]:
    """Yield what two explained runs say of their caches: limits, and what became of the prompt tokens."""
    in_bytes = a.run.block_bytes is not None and b.run.block_bytes is not None
    kind: RowKind = "bytes" if in_bytes else "tokens"
    capacities = [_scaled(_only(results, "capacity_blocks"), results.run, kind) for results in (a, b)]
    yield DiffRow("effective capacity", kind, *capacities)
    ttls = [_only(results, "ttl_us") for results in (a, b)]
    yield DiffRow("effective TTL, seconds", "count", *(None if ttl is None else ttl / 1e6 for ttl in ttls))
    yield DiffRow("restarts", "count", *(results.table("restarts").num_rows for results in (a, b)))
    sums = [_sums(results) for results in (a, b)]
    for column in sums[0]:
        if column != "input_tokens" and any(total[column] for total in sums):
            name = f"{column.removesuffix('_tokens').replace('_', ' ')}, of prompt tokens"
            yield DiffRow(name, "rate", *(total[column] / max(1, total["input_tokens"]) for total in sums))


def _only(results: Results, column: str) -> int | None:
    """Return the limit that all caches of a run share, or None where they differ or it has none."""
    values = set(results.table("limits", [column]).column(column).to_pylist())
    only: int | None = values.pop() if len(values) == 1 else None
    return only


def _sums(results: Results) -> dict[str, int]:
    table = results.table("explained")
    names = [name for name in table.column_names if name != "request_id" and not name.endswith("_hit_tokens")]
    return {name: int(table.column(name).to_numpy().sum()) for name in names}


def _scaled(blocks: float | None, run: RunInfo, kind: RowKind) -> float | None:
    if blocks is None:
        return None
    return blocks * ((run.block_bytes or 0) if kind == "bytes" else run.block_size)


def _grid(*runs: RunInfo) -> str:
    """Return the usual capacities that all runs know, and the smallest of their bounds."""
    in_bytes = all(run.block_bytes is not None for run in runs)
    unit = "B" if in_bytes else "tokens"
    sizes = [(run, (run.block_bytes or 0) if in_bytes else run.block_size) for run in runs]
    grid = DEFAULT_CAPACITIES.split(",")
    if not in_bytes:
        # Powers of two, up to all distinct blocks of the larger run.
        top = max(run.distinct_blocks * run.block_size for run in runs).bit_length()
        grid = [f"{1 << power}{unit}" for power in range(max(0, top - 11), top + 1)]
    bounds = [run.bound_blocks * size for run, size in sizes if run.bound_blocks is not None]
    if bounds:
        below = [text for text in grid if parse_capacity(text, "a capacity").amount < min(bounds)]
        grid = [*below, f"{min(bounds)}{unit}"]
    return ",".join(grid)

"""How what-ifs of growth are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kvcap.cli.layouts import reading_lines
from kvcap.cli.writer import Column, Layout, Records, Table, as_document
from kvcap.units import format_count, say_rate, say_size

if TYPE_CHECKING:
    from kvcap.analysis.growing.records import BackTest, GrowthAnswer, GrowthRow, Range


def _parts(answer: GrowthAnswer) -> Iterator[str | Table]:
    size = partial(say_size, answer)
    for account in answer.reading:
        yield from reading_lines(account)
    yield f"blocks of {answer.block_size:,} tokens; today first, then each growth on its own"
    yield ""
    yield Table(
        (
            Column("Growth", "name", is_text=True),
            Column("Requests", "requests", format_count),
            Column("Sessions", "sessions", format_count),
            Column("Ceiling", "ceiling_block_hit_rate", say_rate),
            Column("± points", lambda row: _points(row.ceiling_range, row.ceiling_block_hit_rate)),
            Column("95 % of it at", "capacity_for_95_percent_blocks", size),
            Column("p50", "required_p50_blocks", size),
            Column("p90", "required_p90_blocks", size),
            Column("p99", "required_p99_blocks", size),
            Column("p99 from", lambda row: row.required_p99_range and size(row.required_p99_range.low)),
            Column("to", lambda row: row.required_p99_range and size(row.required_p99_range.high)),
            Column("today's p99 x factor", "scaled_p99_blocks", size),
        ),
        answer.rows,
    )
    yield ""
    yield "Block hit rate at each capacity:"
    yield Table(
        (
            Column("Growth", "name", is_text=True),
            *(
                column
                for at, hits in enumerate(answer.rows[0].hits)
                for column in _hit_columns(at, hits.capacity, has_ranges=_has_ranges(answer))
            ),
        ),
        answer.rows,
    )
    yield ""
    if answer.back_test is not None:
        yield _back_test_line(answer.back_test)
    yield from answer.assumptions


def _has_ranges(answer: GrowthAnswer) -> bool:
    return any(row.ceiling_range is not None for row in answer.rows)


def _hit_columns(at: int, header: str, *, has_ranges: bool) -> Iterator[Column]:
    yield Column(header, lambda row: row.hits[at].block_hit_rate, say_rate)
    if has_ranges:
        yield Column("±", lambda row: _points(row.hits[at].block_hit_range, row.hits[at].block_hit_rate))


def _points(spread: Range | None, rate: float) -> str | None:
    """Return how far a range goes from its rate, in percentage points: both ways alike, but for 0 and 1."""
    return None if spread is None else f"{100 * max(spread.high - rate, rate - spread.low):.2f}"


def _back_test_line(test: BackTest) -> str:
    parts = [
        f"ceiling {100 * test.ceiling_error:+.2f} points",
        f"curve off by up to {100 * test.curve_error:.2f} points",
    ]
    for name, ratio in (("p90", test.required_p90_ratio), ("p99", test.required_p99_ratio)):
        if ratio is not None:
            parts.append(f"{name} {100 * (ratio - 1):+.0f} %")
    return (
        f"Back-test: half of the sessions ({test.sessions:,}) grown twofold, against all: {', '.join(parts)}."
    )


def _records(answer: GrowthAnswer) -> Records:
    rows = [_flat(row, at) for row in answer.rows for at in range(len(row.hits))]
    return list(rows[0]), (list(row.values()) for row in rows)


def _flat(row: GrowthRow, at: int) -> dict[str, Any]:
    """Return one growth at one capacity, ranges as two columns each."""
    own = asdict(row)
    del own["hits"]
    ranged = ("ceiling_range", "required_p99_range", "block_hit_range")
    flat = {}
    for name, value in {**own, **asdict(row.hits[at])}.items():
        if name in ranged:
            for end in ("low", "high"):
                flat[f"{name.removesuffix('_range')}_{end}"] = value and value[end]
        else:
            flat[name] = value
    return flat


GROW: Final = Layout(partial(as_document, "kvcap.grow/1"), _parts, _records)
"""CSV has a row for each growth at each capacity."""

"""How explanations are laid out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kvcap.analysis.explain.words import CAUSES
from kvcap.cli.layouts import account_lines
from kvcap.cli.writer import Column, Layout, Table, as_document, records_of
from kvcap.units import format_percent, say_rate, say_size

if TYPE_CHECKING:
    from kvcap.analysis.explain.explanation import CapacityRow, CauseRow, Explanation, RestartRow

SCHEMA: Final = "kvcap.explain/1"

_tokens: Final = "{:,}".format


def explain_layout(by: Sequence[str]) -> Layout:
    """Return the layout of explanations, with what is also to be shown group by group."""
    return Layout(
        partial(as_document, SCHEMA),
        partial(_parts, by),
        lambda answer: records_of(answer.waterfall),
    )


def _parts(by: Sequence[str], answer: Explanation) -> Iterator[str | Table]:
    yield _headline(answer)
    yield from _limit_lines(answer)
    yield from _restart_lines(answer)
    yield from (f"note: {remark}" for remark in answer.remarks)
    yield from account_lines(answer.run.reading)
    yield ""
    yield Table(
        (
            Column("Prompt tokens", _cause, is_text=True),
            Column("Tokens", "tokens", _tokens),
            Column("Share", "share", format_percent),
        ),
        [row for row in answer.waterfall if row.tokens or row.cause in ("expected_hit", "unexplained")],
    )
    if answer.effective_capacity is None and answer.effective_ttl is None and answer.survival:
        yield ""
        yield _survival(answer)
    for name in by:
        yield ""
        yield _groups(name, answer)
    if answer.unexplained.tokens:
        yield ""
        yield _worst(answer)


def _headline(answer: Explanation) -> str:
    seen = answer.observed
    values = (
        "all with a value"
        if seen.requests == seen.requests_with_value
        else (f"{seen.requests_with_value:,} with a value")
    )
    return (
        f"{seen.requests:,} requests, {values}: {seen.input_tokens:,} prompt tokens, "
        f"{format_percent(seen.share)} from cache; expected {format_percent(answer.expected.share)}; "
        f"unlimited storage {format_percent(answer.unlimited.share)}"
    )


def _limit_lines(answer: Explanation) -> Iterator[str]:
    capacity, ttl = answer.effective_capacity, answer.effective_ttl
    if capacity is not None:
        several = len(capacity.limits) > 1
        if capacity.capacity_blocks is not None:
            size = say_size(answer.run, capacity.capacity_blocks)
            yield (
                f"effective capacity {size}{' each' if several else ''}, {_range(answer, capacity.range)}; "
                f"{_cuts(answer)}"
            )
        else:
            yield f"effective capacities, {answer.structure.split(' and ')[0].removeprefix('capacity ')}:"
            yield from (_capacity_line(answer, row) for row in capacity.limits)
            yield _cuts(answer)
    if ttl is not None:
        low, high = ttl.range
        yield f"effective TTL {ttl.seconds:g} s since the last use ({low:,.6g} to {high:,.6g} s do as well)"
    if answer.engine is not None:
        engine = answer.engine
        sizes = ", ".join(dict.fromkeys(say_size(answer.run, blocks) for blocks in engine.capacity_blocks))
        closes = (
            f"closes {format_percent(engine.closed_share)} of the gap of {engine.lru_gap_tokens:,} tokens"
            if engine.lru_gap_tokens
            else "where the limits alone leave no gap"
        )
        yield f"{engine.engine} with {sizes}: {format_percent(engine.share)} from cache, {closes}"
    if answer.structure != "none":
        yield f"{format_percent(1 - answer.misfit)} of what was missed though known is explained by limits"


def _range(answer: Explanation, between: tuple[int, int | None]) -> str:
    low, high = between
    if high is None:
        return f"from {say_size(answer.run, low)} on as well"
    if low == high:
        return "exactly"
    return f"{say_size(answer.run, low)} to {say_size(answer.run, high)} do as well"


def _cuts(answer: Explanation) -> str:
    capacity = answer.effective_capacity
    if capacity is None or not capacity.cuts:
        return "no hit ends inside a run"
    low, high = capacity.cut_quantiles[0], capacity.cut_quantiles[-1]
    where = f"at {low:,}" if low == high else f"at {low:,} to {high:,}"
    return f"{capacity.cuts:,} hits end inside a run, 5 to 95 % of them {where} blocks"


def _capacity_line(answer: Explanation, row: CapacityRow) -> str:
    name = row.instance or "all"
    since = f" since {row.since}" if row.since else ""
    if row.capacity_blocks is None:
        return f"  {name}{since}: none visible, at least {say_size(answer.run, row.range[0])}"
    return f"  {name}{since}: {say_size(answer.run, row.capacity_blocks)}, {_range(answer, row.range)}"


def _restart_lines(answer: Explanation) -> Iterator[str]:
    yield from (_restart(row) for row in answer.restarts)


def _restart(row: RestartRow) -> str:
    name = row.instance or "the cache"
    if row.is_given:
        return f"restart of {name}, as given: between {row.after or 'before'} and {row.until or 'the end'}"
    return (
        f"restart of {name} between {row.after} and {row.until}: {row.requests:,} requests missed "
        f"{row.missed_tokens:,} tokens"
    )


def _cause(row: CauseRow) -> str:
    return CAUSES[row.cause]


def _survival(answer: Explanation) -> Table:
    return Table(
        (
            Column(
                "Since last use", lambda row: _age(row.age_from_seconds, row.age_to_seconds), is_text=True
            ),
            Column("Requests", "requests", _tokens),
            Column("Known tokens", "known_tokens", _tokens),
            Column("Hit", "share", say_rate),
        ),
        answer.survival,
    )


def _age(low: float | None, high: float | None) -> str:
    from kvcap.analysis.plan_words import format_age

    if low is None:
        return "any time"
    return f"from {format_age(low)}" if high is None else f"{format_age(low)} to {format_age(high)}"


def _groups(name: str, answer: Explanation) -> Table:
    return Table(
        (
            Column(name.capitalize(), lambda row: row.group or "(none)", is_text=True),
            Column("Requests", "requests", _tokens),
            Column("Prompt tokens", "input_tokens", _tokens),
            Column("Observed", lambda row: row.observed_tokens / max(1, row.input_tokens), say_rate),
            Column("Expected", lambda row: row.expected_tokens / max(1, row.input_tokens), say_rate),
            Column("Gap tokens", "gap_tokens", _tokens),
            Column("Unexplained", "unexplained_tokens", _tokens),
        ),
        getattr(answer, f"by_{name}"),
    )


def _worst(answer: Explanation) -> Table:
    return Table(
        (
            Column("Worst requests", "request_id"),
            Column("Time", "timestamp", is_text=True),
            Column("Instance", "instance", is_text=True),
            Column("Session", "session_id", is_text=True),
            Column("Prompt tokens", "input_tokens", _tokens),
            Column("Observed", "observed_tokens", _tokens),
            Column("Expected", "expected_tokens", _tokens),
            Column("Cause", lambda row: CAUSES[row.cause], is_text=True),
        ),
        answer.worst_requests,
    )

"""How plans, routing what-ifs, comparisons, checks and lists are laid out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kvcap.cli.writer import Column, Layout, Table, as_document, records_of
from kvcap.units import format_size, say_rate, say_size

if TYPE_CHECKING:
    import pyarrow as pa

    from kvcap.analysis.diff import Diff, DiffRow
    from kvcap.analysis.plan import Plan, Step
    from kvcap.analysis.plan_tiers import TierRow
    from kvcap.analysis.routing.rows import RouteRow, RoutingAnswer
    from kvcap.formats.base import ReadReport
    from kvcap.formats.dialect import Dialect
    from kvcap.queries.run_info import ReadAccount

MANY_TIMES: Final = 10
"""From here on a change is said as a multiple."""

SHARED: Final = "shared pool"


def account_lines(account: ReadReport | ReadAccount) -> list[str]:
    """Return what was left out of a log or found odd, a sentence a line."""
    lines = [f"left out: {count:,} records ({reason})" for reason, count in account.skipped.items()]
    if account.bad_records:
        lines.append(f"left out: {account.bad_records:,} bad records, such as {account.bad_examples[0]}")
    odd = {
        "have more ids than input_length fills: each further block weighs 1 token": account.overfull_requests,
        "have ids for full blocks only: the tail counts as input tokens that never hit": (
            account.underfull_requests
        ),
        "are said to have had more tokens from a cache than they have: all of theirs count": (
            account.clipped_cached_tokens
        ),
    }
    lines += [f"{count:,} requests {what}" for what, count in odd.items() if count]
    if account.backward_timestamps:
        share = say_rate(account.backward_timestamps / max(1, account.requests))
        lines.append(
            f"{account.backward_timestamps:,} requests ({share}) are earlier than the one before them, by up "
            f"to {account.largest_step_back_us / 1e6:,.6g} s: --order time puts them in the order of time"
        )
    return [*lines, *account.notices]


def reading_lines(report: ReadReport | ReadAccount) -> list[str]:
    """Return what a user should know about how logs were read, a sentence a line."""
    first = f"read as {report.format_name}: {report.records:,} records, {report.requests:,} requests"
    return [first, *account_lines(report)]


def _plan_document(plan: Plan) -> dict[str, Any]:
    from kvcap.analysis.plan_words import PLAN_DEFINITIONS

    document = as_document("kvcap.plan/1", plan, definitions=PLAN_DEFINITIONS)
    at_goal = document.pop("at_goal")
    return {**document, "goal_text": plan.goal.text, "goal": at_goal}


def _plan_parts(plan: Plan) -> Iterator[str | Table]:
    """Yield ten lines and one more for each tier."""
    from kvcap.analysis.plan_words import plan_headline, trust_lines

    yield from plan_headline(plan)
    steps = [*zip(plan.tier_steps, plan.tiers, strict=True), (plan.at_goal, None), (plan.largest, None)]
    yield Table(_plan_columns(plan), steps)
    yield from (_tier_line(row, plan) for row in plan.tiers if row.price_per_gib_month is not None)
    yield from trust_lines(plan)
    yield _definitions_line(plan)


PLAN: Final = Layout(_plan_document, _plan_parts)
"""JSON has the fields of :class:`kvcap.analysis.plan.Plan`; ``goal`` is what is reached there."""


def _plan_columns(plan: Plan) -> list[Column]:
    """Return columns over pairs of a step and its tier, which is None for the goal and unlimited storage."""

    def served(header: str, name: str, say: Any) -> Column:
        return Column(header, lambda pair: "" if pair[1] is None else say(getattr(pair[1], name)))

    return [
        Column("Down to", lambda pair: pair[0].label if pair[1] is None else pair[1].name, is_text=True),
        Column("Size", partial(_size_of_step, plan)),
        served("Serves", "token_share", say_rate),
        Column("Sum", lambda pair: pair[0].token_hit_rate, say_rate),
        Column("Speed-up", lambda pair: pair[0].ideal_speed_up, "{:.2f}x".format),
        served("Reads", "read_bytes_per_second", _per_second),
        served("p99", "read_p99_bytes_per_second", _per_second),
        served("Writes", "write_bytes_per_second", _per_second),
        Column(f"Next {plan.step_label}", lambda pair: _further(pair[0])),
        Column("pays below", lambda pair: pair[0].break_even_price_per_gib_month, "{:.3g}".format),
    ]


def _size_of_step(plan: Plan, pair: tuple[Step, TierRow | None]) -> str:
    step, tier = pair
    if tier is None:
        return say_size(plan.run, step.capacity_blocks)
    return say_size(plan.run, tier.size_blocks) if tier.size_bytes is None else format_size(tier.size_bytes)


def _further(step: Step) -> str:
    hours = step.next_gpu_hours_per_day
    if step.next_hit_tokens is None:
        return "-"
    return f"{step.next_hit_tokens:,} tokens" if hours is None else f"{hours:.3g} GPU-h/day"


def _per_second(size_bytes: float | None) -> str:
    return "-" if size_bytes is None else f"{format_size(size_bytes)}/s"


def _tier_line(row: TierRow, plan: Plan) -> str:
    from kvcap.analysis.plan_words import format_age

    parts = [f"{row.name} at {row.price_per_gib_month:g} per GiB-month"]
    if row.cost_per_month is not None:
        parts.append(f"costs {row.cost_per_month:,.0f} a month")
    if row.saves_per_month is not None:
        parts.append(f"saves {row.saves_per_month:,.0f}")
    if row.best_size_blocks is not None:
        best = say_size(plan.run, row.best_size_blocks)
        parts.append(f"earns most at {best}" if row.best_size_blocks else "no size of it pays")
    if row.break_even_age_seconds is not None:
        parts.append(f"a block stops paying after {format_age(row.break_even_age_seconds)} unused")
    return f"{parts[0]} {', '.join(parts[1:])}."


def _definitions_line(plan: Plan) -> str:
    run = plan.run
    traffic = "traffic per day unknown: give --requests-per-day" if plan.days is None else _days(plan)
    return (
        f"Definitions: LRU, {run.touch_order}, blocks of {run.block_size} tokens, "
        f"target {run.target_percent} %, warm-up {run.warm_up_percent} %; {traffic}; a month is 730 h; "
        "Serves and Sum are of tokens."
    )


def _days(plan: Plan) -> str:
    from kvcap.analysis.plan_words import format_age

    requests = plan.run.requests - plan.run.warm_up_requests
    return f"{requests:,} requests stand for {format_age((plan.days or 0) * 86400)}"


def _route_parts(answer: RoutingAnswer) -> Iterator[str | Table]:
    yield from _route_heading(answer)
    yield ""
    drawn = (Column("Drawn", "drawn_share", say_rate), Column("Token hit of draws", _hits_of_draws))
    routed = (*drawn, Column("In flight", "in_flight_peak", "{:,}".format))
    yield Table(
        (
            Column("Instances", "instances", is_text=True),
            Column("Dealing", partial(_dealing, answer), is_text=True),
            Column("Block hit", "block_hit_rate", say_rate),
            Column("Token hit", "token_hit_rate", say_rate),
            Column("Ceiling", "ceiling_block_hit_rate", say_rate),
            Column("Copies held", _copies, _times),
            Column("Peak requests", "requests_peak", _times),
            Column("Peak prompts", "input_tokens_peak", _times),
            Column("Peak computed", "computed_tokens_peak", _times),
            Column("Equals shared at", partial(_matching, answer)),
            *(routed if any(row.checked_against for row in answer.rows) else ()),
        ),
        answer.rows,
    )
    yield ""
    yield from _route_legend(answer)


ROUTE: Final = Layout(
    partial(as_document, "kvcap.route/1"),
    _route_parts,
    lambda answer: records_of(answer.rows, without=["per_instance", "parameters"]),
)
"""The row without a policy is the shared pool; CSV has no instances one by one, and no parameters."""


def _route_heading(answer: RoutingAnswer) -> list[str]:
    first = (
        f"{answer.requests:,} requests, {answer.measured_requests:,} of them measured: {answer.blocks:,} "
        f"blocks of {answer.block_size:,} tokens"
    )
    each = say_size(answer, answer.capacity_blocks)
    return [first, f"dealt to instances with {each} each, against one shared pool of the same total"]


def _dealing(answer: RoutingAnswer, row: RouteRow) -> str:
    return row.policy or f"{SHARED}, {say_size(answer, row.capacity_blocks)}"


def _copies(row: RouteRow) -> float | None:
    return row.held_blocks / row.different_held_blocks if row.different_held_blocks else None


def _matching(answer: RoutingAnswer, row: RouteRow) -> str | None:
    if row.policy is None or row.deals_by_caches:
        return None
    if row.matching_capacity_blocks is None:
        return "never"
    return f"{say_size(answer, row.matching_capacity_blocks)} each"


_times: Final = "{:.2f}x".format


def _route_legend(answer: RoutingAnswer) -> list[str]:
    lines = [
        "Ceiling: unlimited caches.  Copies held: blocks in all caches at the end, per different one.",
        "Peak: the busiest instance against the mean (computed: prompt tokens that did not hit).",
        "Equals shared at: size of each cache at which this dealing hits as many blocks as the shared pool.",
    ]
    if any(row.policy in ("least-loaded", "ideal-prefix") for row in answer.rows):
        span = "in the load window" if answer.has_load_window else "in the whole stream so far"
        lines.append(f"Load of an instance: prompt tokens that it was dealt {span}.")
    if any(row.policy == "ideal-prefix" for row in answer.rows):
        lines.append(
            "ideal-prefix knows at once what every instance holds, and stands for no router; those that "
            "learn it late hit less."
        )
    routers = {row.policy: row for row in answer.rows if row.checked_against is not None}
    if routers:
        lines.append("Drawn: decisions that the router draws among several instances.  In flight: at most.")
    for row in routers.values():
        said = ", ".join(f"{name}={value}" for name, value in (row.parameters or {}).items())
        lines.append(f"{row.policy}: checked against {row.checked_against}; {said}.")
    return [*lines, *answer.notices]


def _hits_of_draws(row: RouteRow) -> str | None:
    if row.draws == 1 or row.token_hit_rate_low is None or row.token_hit_rate_high is None:
        return None
    return f"{say_rate(row.token_hit_rate_low)} - {say_rate(row.token_hit_rate_high)}"


def _diff_parts(found: Diff) -> Iterator[str | Table]:
    for name, run in (("A", found.a), ("B", found.b)):
        yield f"{name}: {', '.join(run.reading.sources)}, replayed {run.created_at}"
    if found.definitions:
        differing = (f"{name} {_or_none(a)} / {_or_none(b)}" for name, (a, b) in found.definitions.items())
        yield f"not the same in both: {'; '.join(differing)}"
    yield ""
    yield Table(
        (
            Column("", "name", is_text=True),
            Column("A", lambda row: _diff_value(row.a, row)),
            Column("B", lambda row: _diff_value(row.b, row)),
            Column("Change", _change),
        ),
        found.rows,
    )


DIFF: Final = Layout(partial(as_document, "kvcap.diff/1"), _diff_parts, lambda found: records_of(found.rows))


def _diff_value(value: float | None, row: DiffRow) -> str:
    if value is None or row.kind == "rate":
        return say_rate(value)
    if row.kind == "bytes":
        return format_size(value)
    return f"{value:,.0f}{' tokens' if row.kind == 'tokens' else ''}"


def _change(row: DiffRow) -> str:
    """Return percentage points between rates, and per cent between everything else."""
    if row.a is None or row.b is None:
        return "-"
    if row.kind == "rate":
        return f"{100 * (row.b - row.a):+.2f} pt"
    if row.a == row.b:
        return "="
    if not row.a:
        return "new"
    ratio = row.b / row.a
    return f"{100 * (ratio - 1):+.1f} %" if ratio < MANY_TIMES else f"{ratio:,.0f} times"


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


CHECKS: Final = Layout(
    lambda checks: {"schema": "kvcap.check/1", "checks": [asdict(one) for one in checks]},
    lambda checks: [_list(("ok" if one.holds else "BROKEN", one.text) for one in checks)],
    records_of,
)


def _rows_parts(table: pa.Table) -> Iterator[Table]:
    columns = [Column(name, itemgetter(at)) for at, name in enumerate(table.column_names)]
    yield Table(columns, [[_cell(value) for value in row] for row in _rows(table)])


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    return str(value)


ROWS: Final = Layout(
    lambda table: table.to_pylist(), _rows_parts, lambda table: (table.column_names, _rows(table))
)
"""Of an Arrow table; JSON is one array of objects."""


def dialect_parts(dialects: Sequence[Dialect]) -> Iterator[str | Table]:
    """Yield a line per log format, and after them those that are recognized and refused."""
    width = max(len(dialect.name) for dialect in dialects)
    for refused in (False, True):
        if refused:
            yield ""
            yield "Recognized, but no log of these can drive a replay:"
        chosen = (dialect for dialect in dialects if (dialect.refusal is not None) == refused)
        yield _list((dialect.name.ljust(width), dialect.summary) for dialect in chosen)


def _list(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return names and what is to be said of them, without headers."""
    return Table([Column("", itemgetter(at), is_text=True) for at in (0, 1)], list(pairs))

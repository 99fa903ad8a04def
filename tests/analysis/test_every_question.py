"""Every question, in every form, of every kind of run: it is answered, or refused for the reason listed.

What arrays say of a run is what the queries say of it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow.parquet as pq
import pytest
from kinds_of_run import (
    AGES,
    BYTES,
    EVERY_REUSE,
    EXPLAINED,
    KINDS,
    MEASURED_BLOCKS,
    OBSERVED,
    ONE_STREAM,
    POLICIES,
    Kind,
)

import kvcap
from kvcap.analysis import answer
from kvcap.analysis.check import check
from kvcap.analysis.check_options import CheckOptions
from kvcap.analysis.diff import diff
from kvcap.analysis.figures import load_figures
from kvcap.analysis.plan import plan
from kvcap.analysis.plan_options import PlanOptions, parse_goal, parse_tier
from kvcap.cli import main
from kvcap.cli.answer_layout import ANSWER
from kvcap.cli.layouts import CHECKS, DIFF, PLAN, ROWS
from kvcap.cli.writer import Layout, write
from kvcap.errors import KvcapError
from kvcap.queries import NamedQuery, list_queries
from kvcap.units import parse_capacity

PERCENTS = (1, 10, 25, 50, 90, 99, 99.9, 100)

REASONS = {
    EVERY_REUSE: "this takes every reuse: replay without engine rules and without --max-capacity",
    AGES: "this trace has no timestamps: ages are unknown",
    BYTES: "in bytes needs --kv-bytes-per-token or --model",
    MEASURED_BLOCKS: "nothing to plan from: the measured requests have no block",
    POLICIES: "this run has no table policies: replay with --policies or --engine",
    EXPLAINED: "this run has no table explained: let `kvcap explain --out` make it",
    OBSERVED: "no request says how many tokens were served from cache",
    ONE_STREAM: r"unrecognized arguments|expected no --pool",
}
"""Why a question is refused of a run that lacks what it needs."""


@dataclass(frozen=True)
class Question:
    """What is asked of an open run, beside the plain one, and how the answer is laid out."""

    ask: Callable[[kvcap.Results, kvcap.Results], Any]
    layout: Layout
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Command:
    """Arguments of ``kvcap``: RESULTS stands for a run's directory, LOG for its log and the options of its
    replay, FILE for a file to write."""

    argv: Sequence[str]
    needs: Sequence[str] = ()
    form: str = "table"


PLANNED = (MEASURED_BLOCKS,)
WORTH = PlanOptions(
    tiers=(parse_tier("a=1GiB:3"),),
    step=parse_capacity("1GiB"),
    window_seconds=30,
    prefill_tokens_per_second=Fraction(5),
    gpu_hour=Fraction(2),
    requests_per_day=Fraction(1000),
)
IN_BLOCKS = PlanOptions(
    goal=parse_goal("ceiling-share 95"), tiers=(parse_tier("a=1blocks:3"),), step=parse_capacity("1blocks")
)
LIMITS = CheckOptions(min_requests=1, min_hit_rate=Fraction(1, 100), min_token_hit_rate=Fraction(1, 100))

QUESTIONS = {
    "answer": Question(lambda run, plain: answer(run), ANSWER),
    "plan": Question(lambda run, plain: plan(run), PLAN, PLANNED),
    "plan of tiers": Question(lambda run, plain: plan(run, WORTH), PLAN, (*PLANNED, BYTES)),
    "plan in blocks": Question(lambda run, plain: plan(run, IN_BLOCKS), PLAN, PLANNED),
    "check": Question(lambda run, plain: check(run, LIMITS), CHECKS),
    "diff": Question(lambda run, plain: diff(run, plain), DIFF),
    "diff the other way": Question(lambda run, plain: diff(plain, run), DIFF),
    "sql": Question(
        lambda run, plain: run.sql("FROM requests JOIN reuse_runs USING (request_id), run"), ROWS
    ),
}

COMMANDS = {
    "report": Command(["report", "RESULTS"], PLANNED),
    "report of tiers": Command(
        ["report", "RESULTS", "--tier", "a=1GiB:3", "--prefill-tokens-per-second", "5"], (*PLANNED, BYTES)
    ),
    "route": Command(
        ["route", "LOG", "--capacity-per-instance", "4blocks", "--instances", "1,3"], [ONE_STREAM]
    ),
    "check of an explanation": Command(["check", "RESULTS", "--max-unexplained", "100%"], [EXPLAINED]),
    "explanation of results": Command(["explain", "RESULTS", "--by", "hour", "--quiet"], [OBSERVED]),
    "parquet": Command(
        ["sql", "RESULTS", "FROM requests", "--format", "parquet", "-o", "FILE"], (), "parquet"
    ),
    "attach": Command(["sql", "RESULTS", "--attach", "FILE"], (), "file"),
}

PARAMETERS = {
    "hit_rate": {"capacity_blocks": "1"},
    "tiers": {"tiers": "a=1, b=p50", "mode": "inclusive"},
}
"""Of the queries that have parameters without a default."""
NEEDS = {
    "block_size_sensitivity": [EVERY_REUSE],
    "explain_by_hour": [EXPLAINED],
    "explain_waterfall": [EXPLAINED],
    "explain_worst_requests": [EXPLAINED],
    "policy_hit_rates": [POLICIES],
    "prefix_hotness": [EVERY_REUSE],
    "ttl_surface": [AGES],
}
"""What queries need that not every run has."""


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module")
def replayed(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the log of a kind of run and its results."""
    return kept_replay(kind, tmp_path_factory.mktemp("kind"))


@pytest.fixture(scope="module")
def results(replayed: Path) -> Iterator[kvcap.Results]:
    with kvcap.open_results(replayed / "results") as opened:
        yield opened


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kvcap.Results]:
    """The plain run."""
    with kvcap.open_results(
        kept_replay(KINDS["plain"], tmp_path_factory.mktemp("plain")) / "results"
    ) as opened:
        yield opened


def kept_replay(kind: Kind, root: Path) -> Path:
    log, answer_file = root / "log.jsonl", root / "answer.txt"
    kind.write_log(log)
    out = ["--out", str(root / "results"), "-o", str(answer_file)]
    assert main([kind.command, str(log), *kind.arguments(), *out]) == 0
    is_table(answer_file.read_text(encoding="utf-8"), answer_file)
    return root


def is_refused(ask: Callable[[], Any], needs: Sequence[str], kind: Kind) -> bool:
    """Whether a question is refused, as it must be, of a run that lacks what it needs."""
    lacking = [REASONS[need] for need in needs if need in kind.lacks]
    if lacking:
        with pytest.raises(KvcapError, match="|".join(lacking)):
            ask()
    return bool(lacking)


def is_written(layout: Layout, found: Any, file: Path) -> None:
    """Check every form of an answer."""
    for form in ("table", "html", "json", "csv"):
        if form != "csv" or layout.records is not None:
            stream = io.StringIO()
            write(layout, found, form, stream)
            CHECKS_OF_FORMS[form](stream.getvalue(), file)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_is_answered_or_refused_for_a_reason(
    question: Question, kind: Kind, results: kvcap.Results, plain: kvcap.Results, tmp_path: Path
) -> None:
    if not is_refused(lambda: question.ask(results, plain), question.needs, kind):
        is_written(question.layout, question.ask(results, plain), tmp_path)


@pytest.mark.parametrize("query", list_queries(), ids=lambda query: query.name)
def test_a_query_is_answered_or_refused_for_a_reason(
    query: NamedQuery, kind: Kind, results: kvcap.Results, tmp_path: Path
) -> None:
    parameters = PARAMETERS.get(query.name, {})
    if is_refused(lambda: results.query(query.name, **parameters), NEEDS.get(query.name, ()), kind):
        return
    table = results.query(query.name, **parameters)
    assert table.column_names == re.findall(r"(\w+) [A-Z]+", re.sub(r"\([^()]*\)", "", query.returns))
    is_written(ROWS, table, tmp_path)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_obeyed_or_refused_for_a_reason(
    command: Command, kind: Kind, replayed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("file.parquet" if command.form == "parquet" else "file")
    places = {
        "RESULTS": [str(replayed / "results")],
        "LOG": [str(replayed / "log.jsonl"), *kind.arguments()],
        "FILE": [str(file)],
    }
    capsys.readouterr()
    code = main([word for part in command.argv for word in places.get(part, [part])])
    out, err = capsys.readouterr()
    lacking = [REASONS[need] for need in command.needs if need in kind.lacks]
    if lacking:
        assert code in (1, 2)
        assert any(re.search(reason, err) for reason in lacking)
        assert (out, err.count("\n")) == ("", 1)
        return
    assert (code, err) == (0, "")
    CHECKS_OF_FORMS[command.form](out, file)


def test_figures_are_those_of_the_queries(results: kvcap.Results) -> None:
    figures = load_figures(results)
    bound = results.run.bound_blocks
    top = results.run.distinct_blocks + 2 if bound is None else bound
    capacities = np.unique(np.linspace(0, top, 25).astype(np.int64))
    rows = results.query("hit_rate_curve", capacities_blocks=capacities.tolist()).to_pylist()
    together = [row for row in rows if row["pool"] is None]
    found = zip(capacities.tolist(), *(hits.tolist() for hits in figures.hits_at(capacities)), strict=True)
    assert list(found) == [(row["capacity_blocks"], row["hit_blocks"], row["hit_tokens"]) for row in together]
    for capacity in capacities[:: 1 + len(capacities) // 3].tolist():
        by_request = results.sql("FROM request_hits($c) ORDER BY request_id", {"c": str(capacity)})
        hit_blocks, hit_tokens = figures.request_hits(capacity)
        assert hit_blocks.tolist() == by_request["hit_blocks"].to_pylist()
        assert hit_tokens.tolist() == by_request["hit_tokens"].to_pylist()

    (totals,) = (row for row in results.query("totals").to_pylist() if row["pool"] is None)
    assert figures.total_blocks == totals["blocks"]
    assert figures.total_input_tokens == totals["input_tokens"]
    assert figures.total_ceiling_blocks == totals["ceiling_blocks"]

    required = results.query("capacity_percentiles", percents=list(PERCENTS)).to_pylist()
    samples = [row for row in required if row["pool"] is None and row["sample"] == "samples"]
    for row in samples:
        assert figures.percentile(Fraction(str(row["percent"])) / 100) == row["required_blocks"]

    for row in results.query("capacity_for_hit_rate", percents=list(PERCENTS)).to_pylist():
        if row["pool"] is None:
            share = Fraction(str(row["percent"])) / 100
            assert figures.capacity_for_ceiling_share(share) == row["capacity_blocks"]
            assert figures.hits(row["capacity_blocks"])[0] == row["hit_blocks"]


def is_table(out: str, file: Path) -> None:
    assert out
    assert not re.search(r"\b(None|nan|inf)\b", out)


def is_json(out: str, file: Path) -> None:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(out, parse_constant=refuse)


def is_csv(out: str, file: Path) -> None:
    header, *rows = csv.reader(io.StringIO(out))
    assert {len(row) for row in rows} <= {len(header)}
    assert not re.search(r"\b(None|nan|inf)\b", out)


def is_parquet(out: str, file: Path) -> None:
    assert pq.read_table(file).num_rows > 0
    assert out == ""


def is_file(out: str, file: Path) -> None:
    assert file.stat().st_size > 0
    assert out == ""


CHECKS_OF_FORMS = {
    "table": is_table,
    "html": is_table,
    "json": is_json,
    "csv": is_csv,
    "parquet": is_parquet,
    "file": is_file,
}

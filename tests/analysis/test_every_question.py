"""Every question, in every form, of every kind of run: it is answered, or refused for the reason listed.

What arrays say of a run is what the queries say of it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow.parquet as pq
import pytest
from kinds_of_run import AGES, BYTES, EVERY_REUSE, KINDS, MEASURED_BLOCKS, ONE_STREAM, POLICIES, Kind

import kvcap
from kvcap.analysis.figures import load_figures
from kvcap.cli import main
from kvcap.cli.layouts import ROWS
from kvcap.cli.writer import write
from kvcap.errors import KvcapError
from kvcap.queries import NamedQuery, list_queries

PERCENTS = (1, 10, 25, 50, 90, 99, 99.9, 100)

REASONS = {
    EVERY_REUSE: "this takes every reuse: replay without engine rules and without --max-capacity",
    AGES: "this trace has no timestamps: ages are unknown",
    BYTES: "in bytes needs --kv-bytes-per-token or --model",
    MEASURED_BLOCKS: "nothing to plan from: the measured requests have no block",
    POLICIES: "this run has no table policies: replay with --policies or --engine",
    ONE_STREAM: r"unrecognized arguments|expected no --pool",
}
"""Why a question is refused of a run that lacks what it needs."""


@dataclass(frozen=True)
class Question:
    """Arguments of ``kvcap``: RESULTS stands for a run's directory, PLAIN for that of the plain run, LOG for
    the log of the run and the options it is replayed with, FILE for a file to write."""

    argv: Sequence[str]
    needs: Sequence[str] = ()
    form: str = "table"


def in_forms(name: str, forms: str, *argv: str, needs: Sequence[str] = ()) -> dict[str, Question]:
    """The same question in several forms."""
    return {f"{name} as {form}": Question([*argv, "--format", form], needs, form) for form in forms.split()}


PLANNED = (MEASURED_BLOCKS,)
WORTH = ("--prefill-tokens-per-second", "5", "--gpu-hour", "2", "--requests-per-day", "1000")
TIERS = ("--tier", "a=1GiB:3", "--step", "1GiB", "--window-seconds", "30", *WORTH)
BLOCK_TIERS = ("--tier", "a=1blocks:3", "--step", "1blocks", "--goal", "ceiling-share", "95")
LIMITS = ("--min-requests", "1", "--min-hit-rate", "0.01", "--min-token-hit-rate", "0.01")
PARAMETERS = {
    "hit_rate": {"capacity_blocks": "1"},
    "tiers": {"tiers": "a=1, b=p50", "mode": "inclusive"},
}
"""Of the queries that have parameters without a default."""
NEEDS = {
    "block_size_sensitivity": [EVERY_REUSE],
    "policy_hit_rates": [POLICIES],
    "prefix_hotness": [EVERY_REUSE],
    "ttl_surface": [AGES],
}
"""What queries need that not every run has."""

QUESTIONS = {
    **in_forms("replay", "table json csv", "replay", "LOG"),
    **in_forms("plan", "table json", "plan", "RESULTS", needs=PLANNED),
    **in_forms("plan of tiers", "table json", "plan", "RESULTS", *TIERS, needs=(*PLANNED, BYTES)),
    "plan in blocks": Question(["plan", "RESULTS", *BLOCK_TIERS], PLANNED),
    "report": Question(["report", "RESULTS"], PLANNED),
    "report of tiers": Question(["report", "RESULTS", *TIERS], (*PLANNED, BYTES)),
    **in_forms("check", "table json", "check", "RESULTS", *LIMITS),
    **in_forms("diff", "table csv", "diff", "RESULTS", "PLAIN"),
    **in_forms("diff the other way", "json", "diff", "PLAIN", "RESULTS"),
    "route": Question(
        ["route", "LOG", "--capacity-per-instance", "4blocks", "--instances", "1,3"], [ONE_STREAM]
    ),
    **in_forms(
        "sql", "table csv json", "sql", "RESULTS", "FROM requests JOIN reuse_runs USING (request_id), run"
    ),
    "sql as parquet": Question(
        ["sql", "RESULTS", "FROM requests", "--format", "parquet", "-o", "FILE"], form="parquet"
    ),
    "attach": Question(["sql", "RESULTS", "--attach", "FILE"], form="file"),
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module")
def replayed(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the log of a kind of run and its results."""
    return kept_replay(kind, tmp_path_factory.mktemp("kind"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the plain run."""
    return kept_replay(KINDS["plain"], tmp_path_factory.mktemp("plain"))


def kept_replay(kind: Kind, root: Path) -> Path:
    log = root / "log.jsonl"
    kind.write_log(log)
    answer, out = str(root / "answer.txt"), str(root / "results")
    assert main(["replay", str(log), *kind.arguments(), "--out", out, "-o", answer]) == 0
    return root


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_is_answered_or_refused_for_a_reason(
    question: Question,
    kind: Kind,
    replayed: Path,
    plain: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    places = {
        "RESULTS": [str(replayed / "results")],
        "PLAIN": [str(plain / "results")],
        "LOG": [str(replayed / "log.jsonl"), *kind.arguments()],
        "FILE": [str(file)],
    }
    capsys.readouterr()
    code = main([word for part in question.argv for word in places.get(part, [part])])
    out, err = capsys.readouterr()
    lacking = [REASONS[need] for need in question.needs if need in kind.lacks]
    if lacking:
        assert code in (1, 2)
        assert any(re.search(reason, err) for reason in lacking)
        assert (out, err.count("\n")) == ("", 1)
        return
    # A limit may be broken.
    assert (code, err) == (0, "") or (question.argv[0], code, err) == ("check", 1, "")
    CHECKS[question.form](out, file)


@pytest.fixture(scope="module")
def results(replayed: Path) -> Iterator[kvcap.Results]:
    with kvcap.open_results(replayed / "results") as opened:
        yield opened


@pytest.mark.parametrize("query", list_queries(), ids=lambda query: query.name)
def test_a_query_is_answered_or_refused_for_a_reason(
    query: NamedQuery, kind: Kind, results: kvcap.Results, tmp_path: Path
) -> None:
    lacking = [REASONS[need] for need in NEEDS.get(query.name, ()) if need in kind.lacks]
    if lacking:
        with pytest.raises(KvcapError, match="|".join(lacking)):
            results.query(query.name, **PARAMETERS.get(query.name, {}))
        return
    table = results.query(query.name, **PARAMETERS.get(query.name, {}))
    assert table.column_names == re.findall(r"(\w+) [A-Z]+", re.sub(r"\([^()]*\)", "", query.returns))
    for form in ("table", "csv", "json"):
        stream = io.StringIO()
        write(ROWS, table, form, stream)
        CHECKS[form](stream.getvalue(), tmp_path)


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


CHECKS = {"table": is_table, "json": is_json, "csv": is_csv, "parquet": is_parquet, "file": is_file}

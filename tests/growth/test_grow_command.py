"""``kvcap grow``: today's row first, each growth exactly, what is refused, what is said."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import kvcap
from kvcap.analysis.figures import load_figures
from kvcap.analysis.growing.answer import grow_log
from kvcap.analysis.growing.options import GrowOptions
from kvcap.analysis.growing.records import GrowthAnswer, GrowthRow
from kvcap.cli import main
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions
from kvcap.options import ReplayOptions
from tests import oracles_growth as oracle
from tests.shared_data import shared_path

CAPACITIES = "10blocks,50blocks,200blocks,1000blocks"
BLOCK_SIZE = 64


def shared_documents(n_sessions: int = 40) -> list[dict[str, Any]]:
    """Two turns in each session, behind one of seven documents."""
    rows = []
    for i in range(2 * n_sessions):
        session, turn = i % n_sessions, i // n_sessions
        document, own = 100 * (session % 7), 5000 + 20 * session
        ids = [*range(document, document + 9), *range(own, own + 6 + 6 * turn)]
        rows.append(
            {
                "timestamp": 1000 * i * i,
                "session_id": f"s{session}",
                "hash_ids": ids,
                "input_length": BLOCK_SIZE * len(ids) - 5,
                "block_size": BLOCK_SIZE,
            }
        )
    return rows


def written(path: Path, rows: list[dict[str, Any]], *without: str) -> str:
    lines = [json.dumps({name: row[name] for name in row if name not in without}) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return written(tmp_path / "log.jsonl", shared_documents())


def asked(log: str, **options: Any) -> GrowthAnswer:
    return grow_log(log, GrowOptions(**{"capacities": CAPACITIES, "interval": False, **options}))


def hits_of(row: GrowthRow) -> dict[str, int]:
    return {str(hits.capacity_blocks): round(hits.block_hit_rate * row.blocks) for hits in row.hits}


GOLDEN = {
    "grow1500000": ("users", Fraction(3, 2)),
    "grow2000000": ("users", Fraction(2)),
    "grow3000000": ("users", Fraction(3)),
    "grow4000000": ("users", Fraction(4)),
    "longer3_2": ("context", Fraction(3, 2)),
    "turns2": ("turns", Fraction(2)),
    "faster2": ("faster", Fraction(2)),
}


@pytest.mark.parametrize("name", ["rag", "chat", "median", "few"])
def test_golden_summaries_are_equal(name: str) -> None:
    folder = shared_path("golden/growth")
    expected = json.loads((folder / f"{name}_summary.json").read_text())
    if name == "chat":
        # Its sessions last above 15 % of the log.
        with pytest.raises(UsageError, match="--turns is not reliable"):
            asked(str(folder / "chat.jsonl"), turns=(Fraction(2),))
        del expected["turns2"]
    for what, summary in expected.items():
        kind, factor = GOLDEN[what]
        _, row = asked(str(folder / f"{name}.jsonl"), **{kind: (factor,)}).rows
        assert {
            "requests": row.requests,
            "blocks": row.blocks,
            "distinct": row.distinct_blocks,
            "sessions": row.sessions,
            "ceiling_blocks": round(row.ceiling_block_hit_rate * row.blocks),
            "hits": hits_of(row),
            "required_p50_p90_p99": [
                row.required_p50_blocks,
                row.required_p90_blocks,
                row.required_p99_blocks,
            ],
        } == summary


@pytest.mark.parametrize(
    "options",
    [
        ReplayOptions(),
        ReplayOptions.of(touch_order="head-first", warm_up=Fraction(1, 4), target=Fraction(1, 2)),
        ReplayOptions.of(partial_block="drop"),
    ],
    ids=["plain", "head-first", "partial blocks dropped"],
)
def test_today_is_what_replay_says(log: str, options: ReplayOptions) -> None:
    grown = GrowOptions(context=(Fraction(1),), capacities=CAPACITIES)
    today, unchanged = grow_log(log, grown, options).rows
    with kvcap.replay(log, options) as results:
        figures = load_figures(results)
    for hits in today.hits:
        blocks, tokens = figures.hits(hits.capacity_blocks)
        assert hits.block_hit_rate == blocks / figures.total_blocks
        assert hits.token_hit_rate == tokens / figures.total_input_tokens
    assert today.required_p99_blocks == figures.percentile(Fraction(99, 100))
    needed = figures.capacity_for_ceiling_share(Fraction(95, 100))
    assert today.capacity_for_95_percent_blocks == needed
    assert today.ceiling_block_hit_rate == figures.total_ceiling_blocks / figures.total_blocks
    # Once as long is today again.
    known = {"name", "kind", "factor", "scaled_p99_blocks"}
    pairs = zip(asdict(today).items(), asdict(unchanged).items(), strict=True)
    assert all(mine == theirs for mine, theirs in pairs if mine[0] not in known)


def test_once_the_users_is_today_and_no_row_of_its_own(log: str) -> None:
    assert [row.name for row in asked(log, users=(Fraction(1), Fraction(2))).rows] == ["today", "2 x users"]


def test_capacity_times_factor_stands_beside_p99_where_it_says_something(log: str) -> None:
    today, users, context, fast = asked(
        log, users=(Fraction(3, 2),), context=(Fraction(2),), faster=(Fraction(2),)
    ).rows
    p99 = today.required_p99_blocks
    assert users.scaled_p99_blocks == math.ceil(p99 * 1.5)
    assert context.scaled_p99_blocks == 2 * p99
    assert today.scaled_p99_blocks is fast.scaled_p99_blocks is None


def test_ranges_hold_their_values_and_only_what_is_sampled_has_one(log: str) -> None:
    answer = asked(log, users=(Fraction(2),), context=(Fraction(2),), interval=True)
    for row in answer.rows:
        spreads = [row.ceiling_range, row.required_p99_range, *(hits.block_hit_range for hits in row.hits)]
        if row.kind != "users":
            assert spreads == [None] * len(spreads)
            continue
        values = [row.ceiling_block_hit_rate, row.required_p99_blocks]
        values += [hits.block_hit_rate for hits in row.hits]
        for spread, value in zip(spreads, values, strict=True):
            assert spread is not None
            assert spread.low <= value * (1 + 1e-12)
            assert spread.high >= value * (1 - 1e-12)
        assert any(spread is not None and spread.low < spread.high for spread in spreads)
    assert any("sampling alone" in text for text in answer.assumptions)


def test_back_test_grows_the_half_of_even_draws_and_is_shown_with_users_alone(log: str) -> None:
    answer = asked(log, users=(Fraction(2),), seed=5)
    assert answer.back_test is not None
    assert answer.back_test.sessions == sum(oracle.draw(5, 0, 9, i) % 2 == 0 for i in range(40))
    assert asked(log, context=(Fraction(2),)).back_test is None


@pytest.mark.parametrize(
    ("name", "curve_error", "ceiling_error"), [("conversation", 0.02, 0.01), ("synthetic", 0.09, 0.05)]
)
def test_back_test_of_a_real_log_is_within_what_is_stated(
    name: str, curve_error: float, ceiling_error: float
) -> None:
    # Stated are means over many halves: curves within 1.4 and 5.4 points, ceilings within 0.2 and 3.2.
    path = shared_path(f"traces/mooncake_{name}.jsonl.gz")
    test = asked(str(path), users=(Fraction(2),)).back_test
    assert test is not None
    assert test.curve_error < curve_error
    assert abs(test.ceiling_error) < ceiling_error
    assert test.required_p99_ratio is not None
    assert abs(test.required_p99_ratio - 1) < 0.2


def test_sessions_that_no_log_names_are_found_and_that_is_said(log: str, tmp_path: Path) -> None:
    nameless = written(tmp_path / "nameless.jsonl", shared_documents(), "session_id")
    named, found = (asked(path, users=(Fraction(2),)) for path in (log, nameless))
    # Each second turn knows all of the first one's blocks but none of another session's.
    assert found.rows == named.rows
    assert any("found in the prefixes" in text for text in found.assumptions)
    assert not any("found in the prefixes" in text for text in named.assumptions)


def test_an_added_log_shares_nothing_and_keeps_its_clock_where_both_ran_at_once(
    log: str, tmp_path: Path
) -> None:
    rows = shared_documents()
    later = [{**row, "timestamp": row["timestamp"] + 10**7} for row in rows]
    moved = written(tmp_path / "later.jsonl", later)
    together, apart = (asked(log, add=(path,)) for path in (log, moved))
    assert [hits_of(row) for row in together.rows] == [hits_of(row) for row in apart.rows]
    today, both = together.rows
    assert both.distinct_blocks == 2 * today.distinct_blocks
    assert both.ceiling_block_hit_rate == today.ceiling_block_hit_rate
    assert any("by the times of both logs" in text for text in together.assumptions)
    assert any("began at the same time" in text for text in apart.assumptions)


def test_a_log_that_runs_backwards_is_taken_in_order_of_time(log: str, tmp_path: Path) -> None:
    rows = shared_documents()
    backwards = written(tmp_path / "backwards.jsonl", [*rows[40:], *rows[:40]])
    as_it_stands = grow_log(
        backwards, GrowOptions(users=(Fraction(2),), capacities=CAPACITIES), reading=ReadOptions(order="file")
    )
    in_order = asked(log, users=(Fraction(2),), interval=True)
    assert as_it_stands.rows == in_order.rows
    assert any("ran backwards" in text for text in as_it_stands.assumptions)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "nothing grows: expected --users"),
        (["--users", "0.5"], "expected numbers from 1 to 1024"),
        (["--users", "1.0000001"], "at most six decimals"),
        (["--users", "two"], "--users is 'two', expected a number above 0"),
        (["--turns", "0.5"], "--turns is '0.5', expected numbers from 1"),
        (["--context", "0"], "--context is '0', expected a number above 0"),
        (["--context", "0.00001"], "expected numbers from 0.001 to 1024"),
        (["--sample-sessions", "25"], "expected a whole number from 26"),
        (["--sample-sessions", "30", "--context", "2"], "expected no other growth"),
        (["--faster", "1e30"], "expected numbers from 0.001 to 1024"),
        (["--users", "2", "--seed", "9223372036854775808"], "expected at most 9223372036854775807"),
        (["--seed", "-1"], "--seed is '-1', expected a whole number from 0"),
        (["--users", "2", "--pool", "session_id"], "expected no --pool"),
        (["--users", "2", "--capacities", "5GiB"], "needs --kv-bytes-per-token or --model"),
        (["--users", "2", "--add", "blocks.jsonl"], "blocks of 64 and 32 tokens"),
    ],
)
def test_a_bad_question_is_one_line_and_exit_2(
    argv: list[str], message: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "blocks.jsonl", [{**row, "block_size": 32} for row in shared_documents()])
    assert main(["grow", "log.jsonl", "--no-interval", "--quiet", *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvcap: error: ")
    assert message in " ".join(error.split())


def test_a_log_that_cannot_foretell_is_refused_for_that_question_alone(tmp_path: Path) -> None:
    few = written(tmp_path / "few.jsonl", shared_documents(25))
    with pytest.raises(UsageError, match="25 sessions, of which nothing foretells more users"):
        asked(few, users=(Fraction(2),))
    assert len(asked(few, context=(Fraction(2),), faster=(Fraction(2),)).rows) == 3
    timeless = written(tmp_path / "timeless.jsonl", shared_documents(), "timestamp")
    for moved in ({"users": (Fraction(2),)}, {"faster": (Fraction(2),)}, {"add": (few,)}):
        with pytest.raises(UsageError, match="cannot be moved in time"):
            asked(timeless, **moved)
    assert len(asked(timeless, context=(Fraction(2),)).rows) == 2


def test_a_sample_of_all_sessions_is_the_log_itself(log: str) -> None:
    previewed = asked(log, sample_sessions=40, users=(Fraction(2),))
    assert previewed.rows == asked(log, users=(Fraction(2),)).rows
    assert not any("Preview" in text for text in previewed.assumptions)


def test_a_preview_is_within_its_range_and_needs_500_sessions_for_percentiles() -> None:
    path = str(Path(__file__).parents[2] / "sample_traces" / "rag.hash_ids.jsonl.gz")
    capacities = "100blocks,1000blocks,10000blocks,100000blocks"
    (true,) = asked(path, users=(Fraction(1),), capacities=capacities).rows
    for n_sessions in (200, 500):
        answer = asked(path, sample_sessions=n_sessions, capacities=capacities)
        (today,) = answer.rows
        assert f"Preview: {n_sessions} of 1,959 sessions" in answer.assumptions[0]
        assert today.sessions == pytest.approx(true.sessions, rel=0.1)
        for found, right in zip(today.hits, true.hits, strict=True):
            spread = found.block_hit_range
            assert spread is not None
            assert spread.high - found.block_hit_rate == pytest.approx(0.95 / math.sqrt(n_sessions))
            assert spread.low <= right.block_hit_rate <= spread.high
        assert (today.required_p99_blocks is None) == (n_sessions < 500)
        assert today.required_p99_range is None


def test_a_preview_needs_the_sessions_of_a_log(tmp_path: Path) -> None:
    nameless = written(tmp_path / "nameless.jsonl", shared_documents(), "session_id")
    with pytest.raises(UsageError, match="--sample-sessions needs the session of every request"):
        asked(nameless, sample_sessions=30)


def test_what_reading_left_out_is_counted_in_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    written(path, shared_documents())
    path.write_text(path.read_text() + '{"hash_ids": "none"}\n')
    argv = ["grow", str(path), "--context", "2", "--skip-bad", "1", "--capacities", CAPACITIES, "--quiet"]
    assert main(argv) == 0
    assert "left out: 1 bad records" in capsys.readouterr().out
    assert main([*argv, "--format", "json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)["reading"]
    assert (account["requests"], account["bad_records"]) == (80, 1)


def test_a_growth_that_no_memory_holds_is_refused(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.analysis.growing.answer.MOST_TOUCHES", 3000)
    with pytest.raises(UsageError, match=r"2\.5 times a log that touches 1,440 blocks") as refusal:
        asked(log, users=(Fraction(3, 2),), context=(Fraction(5, 2),))
    assert "smaller factor" in str(refusal.value)


def test_forms_of_one_answer_agree_and_repeat(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["grow", log, "--users", "1,2", "--context", "1.5", "--capacities", CAPACITIES, "--quiet"]
    shown = []
    for form in ("json", "json", "csv", "table", "html"):
        assert main([*argv, "--format", form]) == 0
        shown.append(capsys.readouterr().out)
    answer = json.loads(shown[0])
    assert shown[0] == shown[1]
    assert answer["schema"] == "kvcap.grow/1"
    assert [row["name"] for row in answer["rows"]] == ["today", "2 x users", "1.5 x context"]
    names, *lines = csv.reader(shown[2].splitlines())
    assert len(lines) == 3 * 4
    at = names.index("block_hit_rate")
    assert [float(line[at]) for line in lines] == [
        hits["block_hit_rate"] for row in answer["rows"] for hits in row["hits"]
    ]
    for text in (
        "Back-test: half of the sessions",
        "sampling alone",
        "biased low where rare shared documents",
    ):
        assert text in shown[3]
        assert text in shown[4]

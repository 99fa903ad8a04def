"""Transcripts of agents: each call begins with all that was there after the one before it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from reading import read_log, write_log
from shared_data import shared_path
from transcript_calls import CALLS, TIMES, TRANSCRIPTS, claude, openhands, pi

from kvcap.errors import EmptyTraceError, RecordError


def log(tmp_path: Path, *records: Any) -> Path:
    return write_log(tmp_path / "log", *(json.dumps(record) for record in records))


def shared(table: Any, first: int = 0, second: int = 1) -> int:
    """Return how many tokens two prompts begin with alike, the first with what was generated after it."""
    rows = table.to_pylist()
    before = rows[first]["token_ids"] + (rows[first]["output_ids"] or [])
    after = rows[second]["token_ids"]
    alike = (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    return next(alike, min(len(before), len(after)))


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_session_only_appends_and_says_what_was_read(name: str, tmp_path: Path) -> None:
    table, report = read_log(log(tmp_path, *TRANSCRIPTS[name]))
    assert report.format_name == name
    rows = table.to_pylist()
    assert [(r["input_length"], r["observed_cached_tokens"], r["output_length"]) for r in rows] == list(CALLS)
    assert [len(row["token_ids"]) for row in rows] == [1000, 1200]
    assert shared(table) == 1050
    assert {(row["session_id"], row["model"]) for row in rows} == {("s", "m")}
    assert [str(row["timestamp"])[11:] for row in rows] == ["10:00:00", "10:01:00"]
    assert any("what sessions share is known only" in notice for notice in report.notices)


def test_a_session_of_gemini_may_be_written_line_by_line(tmp_path: Path) -> None:
    (document,) = TRANSCRIPTS["gemini-cli"]
    header = {key: value for key, value in document.items() if key != "messages"}
    table, report = read_log(log(tmp_path, header, *document["messages"]))
    assert (report.format_name, shared(table)) == ("gemini-cli", 1050)
    assert table["session_id"].to_pylist() == ["s", "s"]


def test_a_trajectory_of_openhands_counts_each_response_once(tmp_path: Path) -> None:
    events = [openhands(0), openhands(0), {"source": "user", "observation": "run"}, openhands(1)]
    path = tmp_path / "traj.json"
    path.write_text(json.dumps(events))
    table, report = read_log(path)
    assert (report.format_name, table.num_rows, shared(table)) == ("openhands", 2, 1050)


def test_the_last_line_of_a_call_counts_with_the_most_generated_tokens(tmp_path: Path) -> None:
    lines = [
        claude("b0", None, (1000, 0, 1)),
        claude("b1", "b0", (1000, 0, 50)),
        claude("b2", "b1", (1000, 0, 7)),
    ]
    table, _ = read_log(log(tmp_path, *lines))
    assert table["output_length"].to_pylist() == [50]


def test_answers_between_the_lines_of_a_call_and_copies_of_it_make_no_further_call(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        claude("b0", None, (1000, 0, 1)),
        claude("u0", "b0", None),
        claude("b1", "u0", (1000, 0, 50)),
        claude("u1", "b1", None),
        claude("c0", "u1", (1200, 1000, 9)),
        claude("b0", None, (1000, 0, 50), sessionId="resumed"),
        claude("c0", "b0", (1200, 1000, 9), sessionId="resumed"),
        claude("d0", "c0", (1300, 1200, 9), sessionId="resumed"),
    )
    table, _ = read_log(path)
    assert table["input_length"].to_pylist() == [1000, 1200, 1300]
    assert table["output_length"].to_pylist() == [50, 9, 9]
    assert [shared(table, 0, 1), shared(table, 1, 2)] == [1050, 1209]


def test_calls_of_two_sessions_that_used_alike_are_two(tmp_path: Path) -> None:
    first = TRANSCRIPTS["codex"][:3]
    second = [{**first[0], "payload": {"id": "t"}}, *first[1:]]
    table, _ = read_log(log(tmp_path, *first, *second))
    assert table["session_id"].to_pylist() == ["s", "t"]
    assert shared(table) == 600


def test_a_fork_begins_where_it_leaves(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        claude("b0", None, (1000, 0, 50)),
        claude("c0", "b0", (1500, 1000, 10)),
        claude("d0", "b0", (1200, 1000, 10)),
        claude("e0", "c0", (1600, 1500, 10)),
    )
    table, _ = read_log(path)
    assert [shared(table, 0, n) for n in (1, 2, 3)] == [1050, 1050, 1050]
    assert shared(table, 1, 2) == 1050
    assert shared(table, 1, 3) == 1510


@pytest.mark.parametrize("cached", [0, 300])
def test_after_a_compaction_a_call_shares_what_it_says_was_read(cached: int, tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "s",
        "uuid": "c0",
        "parentUuid": None,
    }
    path = log(tmp_path, claude("b0", None, (1000, 0, 50)), boundary, claude("d0", "c0", (2000, cached, 1)))
    assert shared(read_log(path)[0]) == cached
    compaction = {"type": "compaction", "timestamp": TIMES[0]}
    later = pi(1)
    later["message"]["usage"] = {"input": 2000 - cached, "cacheRead": cached, "output": 1}
    path = log(tmp_path, TRANSCRIPTS["pi"][0], pi(0), compaction, later)
    assert shared(read_log(path)[0]) == cached


def test_a_prompt_that_is_shorter_than_the_one_before_was_cut(tmp_path: Path) -> None:
    path = log(tmp_path, claude("b0", None, (1000, 0, 50)), claude("c0", "b0", (900, 200, 1)))
    assert shared(read_log(path)[0]) == 200


def test_a_subagent_shares_what_it_says_was_read_at_its_start(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        claude("b0", None, (1000, 0, 50)),
        claude("c0", None, (700, 400, 9), agentId="a", isSidechain=True),
        claude("d0", "c0", (800, 700, 9), agentId="a", isSidechain=True),
        claude("e0", "b0", (1100, 1000, 9)),
    )
    table, _ = read_log(path)
    assert table["session_id"].to_pylist() == ["s", "s/a", "s/a", "s"]
    assert [shared(table, 0, 1), shared(table, 1, 2), shared(table, 0, 3)] == [400, 709, 1050]


def test_calls_of_another_model_share_nothing(tmp_path: Path) -> None:
    other = claude("c0", "b0", (1200, 1000, 9))
    other["message"]["model"] = "n"
    lone = pi(1)
    lone["message"]["model"] = "n"
    path = log(tmp_path, TRANSCRIPTS["pi"][0], pi(0), lone)
    assert shared(read_log(path)[0]) == 0
    assert shared(read_log(log(tmp_path, claude("b0", None, (1000, 0, 50)), other))[0]) == 0


def test_calls_that_the_agent_made_up_or_did_not_count_are_left_out(tmp_path: Path) -> None:
    synthetic = claude("b0", None, (1000, 0, 50))
    synthetic["message"]["model"] = "<synthetic>"
    plain = claude("c0", None, (1000, 0, 50))
    del plain["message"]["usage"]
    with pytest.raises(EmptyTraceError, match=r"1 calls without usage, .*: export them anew"):
        read_log(log(tmp_path, synthetic, plain))


def test_a_call_without_bounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"log:1: usage is of 99,999,999,\d* tokens, expected at most"):
        read_log(log(tmp_path, claude("b0", None, (99_999_999_000, 0, 50)), claude("c0", "b0", (1, 0, 1))))


def test_a_real_transcript_agrees_with_what_it_says_was_cached() -> None:
    path = shared_path("cases/samples/real_pi_usage_471_calls.jsonl.gz")
    table, report = read_log(path)
    rows = table.select(["input_length", "output_length", "observed_cached_tokens"]).to_pylist()
    tokens = sum(row["input_length"] for row in rows)
    assert (table.num_rows, report.records, tokens) == (471, 1003, 56_382_684)
    said = sum(row["observed_cached_tokens"] for row in rows)
    assert round(100 * said / tokens, 2) == 97.0
    near = 0
    known: set[int] = set()
    for row, ids in zip(rows, table["token_ids"], strict=True):
        prompt = ids.values.to_numpy()
        seen = len(known.intersection(prompt[:1].tolist())) and int(prompt.size)
        while seen and int(prompt[seen - 1]) not in known:
            seen -= 1
        known.update(prompt.tolist())
        near += abs(seen - row["observed_cached_tokens"]) <= 0.02 * row["input_length"]
    assert near == 460
    with gzip.open(path, "rt") as lines:
        assert sum(1 for _ in lines) == report.records


def test_a_wrong_time_of_the_last_call_is_an_error_of_its_line(tmp_path: Path) -> None:
    path = log(tmp_path, claude("b0", None, (1000, 0, 50)), claude("c0", "b0", (1200, 0, 1), timestamp=True))
    with pytest.raises(RecordError, match=r"log:2: timestamp is true, expected a number"):
        read_log(path)
    table, report = read_log(path, skip_bad=1)
    assert (table.num_rows, report.bad_records) == (1, 1)


def test_a_real_rollout_agrees_with_what_it_says_was_cached_to_a_block() -> None:
    table, _ = read_log(shared_path("cases/samples/real_codex_rollout_redacted.jsonl"))
    assert table["input_length"].to_pylist() == [17_091, 19_268]
    block = 128
    predicted = shared(table) // block * block
    assert 0 <= predicted - table["observed_cached_tokens"][1].as_py() <= block

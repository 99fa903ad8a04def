"""kvcap plan, diff and check on the command line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from replayed import replayed

import kvcap
from kvcap.analysis import answer
from kvcap.cli import main


@pytest.fixture(scope="module")
def results_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results") / "run"
    log = directory.with_suffix(".jsonl")
    lines = [
        {"timestamp": 1000 * i, "input_length": 8, "hash_ids": [i % 7, i % 5], "block_size": 4}
        for i in range(60)
    ]
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    arguments = ["replay", str(log), "--kv-bytes-per-token", str(1 << 28), "--out", str(directory), "--quiet"]
    assert main([*arguments, "-o", str(directory.with_suffix(".txt"))]) == 0
    return directory


def test_plan_says_the_answer_first_and_its_definitions_last(
    results_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers = ["--tier", "hbm=10GiB", "--tier", "dram=1TiB:4.5"]
    costs = ["--prefill-tokens-per-second", "9000", "--gpu-hour", "2.5", "--step", "5GiB"]
    assert main(["plan", str(results_dir), *tiers, *costs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 14
    assert "99 % of requests get at least 99 % of the hits they could have" in lines[0]
    assert any(line.startswith("dram at 4.5 per GiB-month costs 4,608 a month, saves") for line in lines)
    assert "Next 5 GiB" in lines[2]
    assert lines[-1].startswith("Definitions: LRU, tail-first, blocks of 4 tokens, target 99 %")


def test_plan_as_json_has_every_number_of_the_text(
    results_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(results_dir), "--goal", "ceiling-share", "95", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kvcap.plan/1"
    assert document["goal_text"] == "ceiling-share 95"
    assert document["goal"]["capacity_bytes"] == document["goal"]["capacity_blocks"] << 30
    assert {"ceiling", "p99_blocks", "prefixes", "doubts"} <= set(document["trust"])


def test_a_goal_out_of_reach_is_a_usage_error(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(results_dir), "--goal", "hit-rate", "0.99"]) == 2
    assert "out of reach" in capsys.readouterr().err


def test_check_exits_1_when_a_limit_is_broken(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(results_dir), "--max-p99", "1TiB", "--min-requests", "60"]) == 0
    assert capsys.readouterr().out.count("ok ") == 2
    assert main(["check", str(results_dir), "--max-p99", "1GiB", "--min-requests", "60"]) == 1
    assert "BROKEN  p99 of required capacity" in capsys.readouterr().out
    assert main(["check", str(results_dir)]) == 2


@pytest.mark.parametrize("missing", ["no such directory", ""])
def test_check_exits_2_when_there_is_nothing_to_check(missing: str, tmp_path: Path) -> None:
    assert main(["check", str(tmp_path / missing), "--min-requests", "1"]) == 2


def test_check_as_json(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--min-hit-rate", "0.99", "--capacity", "10GiB", "--format", "json"]
    assert main(["check", str(results_dir), *limits]) == 1
    (one,) = json.loads(capsys.readouterr().out)["checks"]
    assert (one["name"], one["holds"], one["limit"]) == ("min_hit_rate", False, 0.99)


def test_diff_of_two_directories(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(results_dir), str(results_dir), "--capacities", "10GiB"]) == 0
    out = capsys.readouterr().out
    assert "block hit rate at 10 GiB" in out
    assert "not the same in both" not in out
    assert main(["diff", str(results_dir), str(results_dir), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["name"] for row in rows} >= {"measured requests", "ceiling, blocks", "required capacity, p99"}
    assert all(row["a"] == row["b"] for row in rows)


def test_diff_as_json_holds_both_runs(results_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(results_dir), str(results_dir), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["a"] == found["b"]
    assert (found["a"]["target_percent"], found["a"]["rules"]["capacity_factor"]) == ("99", "1")


def test_a_large_change_is_said_as_a_multiple(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    from kvcap.analysis.diff import diff
    from kvcap.cli.layouts import DIFF
    from kvcap.cli.writer import write

    with replayed([[1], [1]]) as a, replayed([[1]] * 50) as b:
        write(DIFF, diff(a, b), "table", sys.stdout)
    assert "25 times" in capsys.readouterr().out


@pytest.mark.parametrize("asked", [["plan"], ["check", "--min-requests", "1"]])
def test_what_asks_no_sql_loads_no_duckdb(results_dir: Path, asked: list[str]) -> None:
    argv = [asked[0], str(results_dir), *asked[1:]]
    script = f"import sys; from kvcap.cli import main; print(main({argv!r}), 'duckdb' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert said.stdout.splitlines()[-1] == "0 False"


def test_the_answer_of_a_plain_replay_is_one_statement(
    results_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = kvcap.Results.query

    def counted(results: kvcap.Results, name: str, **parameters: object) -> object:
        asked.append(name)
        return query(results, name, **parameters)

    monkeypatch.setattr(kvcap.Results, "query", counted)
    with kvcap.open_results(results_dir) as results:
        answer(results)
    assert len(asked) == 1

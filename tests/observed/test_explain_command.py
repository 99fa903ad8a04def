"""``kvcap explain``: text, JSON, tables and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from observed_fleet import EPOCH, Fleet, Logging, logged, serve, traffic

import kvcap
from kvcap.analysis.explain.stored import stored_log
from kvcap.cli import main
from kvcap.kernels.observed.waterfall import CLASSES
from kvcap.queries import open_results
from kvcap.schema import MISS_CAUSES

BLOCK = 64
EXACT = Logging()
FIELDS = ("--cached-field", "cached", "--instance-field", "instance", "--ttft-field", "ttft_us")
KEYS = {
    "observed",
    "expected",
    "effective_capacity",
    "effective_ttl",
    "unlimited",
    "structure",
    "restarts",
    "waterfall",
    "unexplained",
    "more_than_expected",
    "survival",
    "by_hour",
    "by_instance",
    "by_session",
    "by_model",
    "worst_requests",
}


def test_the_causes_of_tables_are_those_of_the_kernel():
    assert (*MISS_CAUSES, "expected") == CLASSES


def written(path: Path, fleet: Fleet, logging: Logging = EXACT, sessions: int = 120) -> list[str]:
    """Write the log of a fleet, and return arguments that explain it."""
    requests = traffic(sessions, 7200, BLOCK, 5)
    serve(requests, fleet, BLOCK)
    rows = logged(requests, BLOCK, logging)
    for row in rows:
        row["timestamp"] /= 1e6
        row["cached"] = row.pop("observed_cached_tokens")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ["explain", str(path), *FIELDS, "--quiet"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two instances of 1500 blocks; the first one restarts in the middle."""
    fleet = Fleet([1500, 1500], router="sticky", strays=0.05, restarts=[(3600.0, 0)])
    return written(tmp_path_factory.mktemp("log") / "log.jsonl", fleet)


def as_json(arguments, capsys):
    assert main([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_answer_says_what_was_observed_and_why(log, capsys):
    assert main([*log, "--by", "instance"]) == 0
    out = capsys.readouterr().out
    assert "from cache; expected" in out.splitlines()[0]
    assert "effective capacity 1,500 blocks each, exactly" in out
    assert "restart of i0 between" in out
    assert "on another instance only" in out
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["i0", "i1"]


def test_json_has_the_fixed_keys_and_a_waterfall_that_adds_up(log, capsys):
    answer = as_json(log, capsys)
    assert answer["schema"] == "kvcap.explain/1"
    assert set(answer) >= KEYS
    assert sum(row["tokens"] for row in answer["waterfall"]) == answer["observed"]["input_tokens"]
    assert set(answer["waterfall"][0]) == {"cause", "tokens", "share"}
    for name in ("by_hour", "by_instance", "by_session"):
        for key in ("input_tokens", "observed_tokens"):
            total = answer["observed"]["tokens" if key == "observed_tokens" else key]
            assert sum(row[key] for row in answer[name]) == total
    capacity = answer["effective_capacity"]
    assert set(capacity) >= {"capacity_blocks", "capacity_bytes", "explained_share", "range", "cuts"}
    assert (capacity["capacity_blocks"], capacity["range"]) == (1500, [1500, 1500])
    assert answer["effective_ttl"] is None
    assert answer["unexplained"]["share"] < 0.001


def test_results_are_kept_with_the_explanation_beside_them_and_explain_again(log, capsys, tmp_path):
    first = as_json([*log, "--out", str(tmp_path / "results")], capsys)
    with open_results(tmp_path / "results") as results:
        assert {"explained", "limits", "restarts", "survival"} <= set(results.table_names)
        steps = results.query("explain_waterfall").to_pylist()
        assert {row["cause"]: row["tokens"] for row in steps} == {
            row["cause"]: row["tokens"] for row in first["waterfall"]
        }
        worst = results.query("explain_worst_requests", rows=5).to_pylist()
        limits = results.table("limits").to_pylist()
        restarts = results.table("restarts").to_pylist()
    shown = first["worst_requests"][:5]
    assert [row["unexplained_tokens"] for row in worst] == [row["unexplained_tokens"] for row in shown]
    assert {(row["instance"], row["capacity_blocks"]) for row in limits} == {("i0", 1500), ("i1", 1500)}
    assert [row["instance"] for row in restarts] == ["i0"]
    again = as_json(["explain", str(tmp_path / "results"), "--quiet"], capsys)
    assert {key: again[key] for key in KEYS} == {key: first[key] for key in KEYS}


def test_given_limits_are_judged_and_not_fitted(log, capsys):
    right, wrong = (as_json([*log, "--capacity", f"{blocks}blocks"], capsys) for blocks in (1500, 3000))
    assert right["structure"] == wrong["structure"] == "capacity"
    assert right["misfit"] < 0.01 < wrong["misfit"]
    assert wrong["unexplained"]["tokens"] > right["unexplained"]["tokens"]
    unlimited = as_json([*log, "--capacity", "none", "--ttl", "none"], capsys)
    assert unlimited["structure"] == "none"
    assert unlimited["expected"]["tokens"] >= wrong["expected"]["tokens"]


def test_a_restart_that_is_given_takes_its_part(log, capsys):
    none = as_json([*log, "--ttl", "none"], capsys)
    given = as_json([*log, "--ttl", "none", "--restart", f"{EPOCH + 3600:.3f}@i0"], capsys)
    (row,) = given["restarts"]
    assert (row["instance"], row["is_given"]) == ("i0", True)
    tokens = {cause["cause"]: cause["tokens"] for cause in given["waterfall"]}
    assert tokens["restart"] >= {cause["cause"]: cause["tokens"] for cause in none["waterfall"]}["restart"]


def test_too_much_that_is_unexplained_ends_with_1(log, tmp_path, capsys):
    assert main([*log, "--capacity", "3000blocks", "--max-unexplained", "0"]) == 1
    assert main([*log, "--max-unexplained", "1%", "--out", str(tmp_path / "results")]) == 0
    assert main(["check", str(tmp_path / "results"), "--max-unexplained", "1%"]) == 0
    assert main(["check", str(tmp_path / "results"), "--max-unexplained", "0"]) in (0, 1)


def test_two_explained_runs_are_compared(log, tmp_path, capsys):
    for name, blocks in (("a", 1500), ("b", 3000)):
        assert main([*log, "--capacity", f"{blocks}blocks", "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    capacity = rows["effective capacity"]
    assert (capacity["a"], capacity["b"]) == (1500 * BLOCK, 3000 * BLOCK)
    assert rows["observed, of prompt tokens"]["a"] == rows["observed, of prompt tokens"]["b"]
    assert rows["unexplained, of prompt tokens"]["b"] > rows["unexplained, of prompt tokens"]["a"]


def test_without_pressure_the_answer_says_what_was_kept_at_least(tmp_path, capsys):
    arguments = written(tmp_path / "log.jsonl", Fleet([None]), sessions=40)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "note: no limit is visible: each cache kept at least" in out
    assert "Since last use" in out


def test_a_log_that_starts_warm_is_told_from_one_that_lacks_requests(tmp_path, capsys):
    arguments = written(tmp_path / "log.jsonl", Fleet([2500]), Logging(cut=0.4))
    assert main(arguments) == 0
    assert "note: cached before the log starts:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--restart", "yesterday"], "--restart is 'yesterday', expected TIME or TIME@INSTANCE"),
        (["--ttl", "soon"], "--ttl is 'soon', expected a number above 0"),
        (["--capacity", "5"], "--capacity is '5', expected a size above 0"),
        (["--step", "-1"], "--step is '-1', expected a whole number from 0"),
        (["--max-unexplained", "x"], "--max-unexplained is 'x', expected a percentage"),
    ],
)
def test_an_option_that_cannot_be_meant_is_named(log, options, message, capsys):
    assert main([*log, *options]) == 2
    assert capsys.readouterr().err.startswith(f"kvcap: error: {message}")


def test_a_log_that_tells_of_no_cache_is_refused(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text('{"hash_ids": [1, 2], "input_length": 8, "block_size": 4}\n', encoding="utf-8")
    assert main(["explain", str(path), "--quiet"]) == 2
    assert "name the field with --cached-field" in capsys.readouterr().err


def test_results_without_a_trace_are_refused(log, tmp_path, capsys):
    results = tmp_path / "results"
    assert main([*log, "--out", str(results)]) == 0
    (results / "trace.parquet").unlink()
    capsys.readouterr()
    assert main(["explain", str(results), "--quiet"]) == 2
    assert "keeps no trace" in capsys.readouterr().err


def test_an_engine_is_simulated_at_the_capacity_that_it_is_seen_to_have(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    written(path, Fleet([None]), sessions=60)
    options = kvcap.ReplayOptions.of(
        "sglang", capacities="1500blocks", request_hits=True, output_blocks=False
    )
    with kvcap.replay(path, options) as results:
        hits = results.table("policy_requests").column("hit_blocks").to_pylist()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, blocks in zip(rows, hits, strict=True):
        row["cached"] = BLOCK * blocks
        del row["ttft_us"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["explain", str(path), "--cached-field", "cached", "--quiet", "--engine", "sglang"]
    engine = as_json(arguments, capsys)["engine"]
    assert engine["engine"] == "sglang"
    assert 0 <= engine["gap_tokens"] <= engine["lru_gap_tokens"]
    assert engine["closed_share"] == 1 - engine["gap_tokens"] / engine["lru_gap_tokens"]
    assert 0.95 * 1500 <= engine["capacity_blocks"][0] <= 1.05 * 1500


def test_a_report_of_an_explained_run_has_the_waterfall(log, tmp_path):
    results, page = tmp_path / "results", tmp_path / "report.html"
    assert main([*log, "--out", str(results)]) == 0
    assert main(["report", str(results), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "What the caches really did" in text
    assert "on another instance only" in text


def test_results_of_one_cache_explain_from_their_tables_as_from_their_trace(tmp_path, capsys):
    arguments = written(tmp_path / "log.jsonl", Fleet([1500], 900.0), sessions=60)
    arguments = [part for part in arguments if part not in ("--instance-field", "instance")]
    out = tmp_path / "results"
    first = as_json([*arguments, "--out", str(out)], capsys)
    with open_results(out) as results:
        assert stored_log(results) is not None
    again = as_json(["explain", str(out), "--quiet"], capsys)
    assert {key: again[key] for key in KEYS} == {key: first[key] for key in KEYS}

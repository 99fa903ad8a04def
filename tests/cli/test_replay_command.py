"""``kvcap replay`` and ``kvcap sql`` as a user runs them: answers, forms, errors in one line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kvcap
from kvcap.cli import main

Run = Callable[..., tuple[int, str, str]]

HASH_LINES = [
    '{"hash_ids": [1, 2, 3], "input_length": 11, "block_size": 4, "tenant": "a"}',
    '{"hash_ids": [1, 2], "input_length": 8, "block_size": 4, "tenant": "b"}',
    '{"hash_ids": [1, 2, 3], "input_length": 11, "block_size": 4, "tenant": "a"}',
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(HASH_LINES) + "\n")
    return path


def one_error_line(err: str) -> str:
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("kvcap: error: "), err
    return lines[0]


def test_the_table_names_counts_definitions_and_every_capacity(run: Run, trace: Path) -> None:
    code, out, err = run("replay", trace, "--kv-bytes-per-token", "100", "--capacities", "400B,1.2KB,2blocks")
    assert (code, err) == (0, "")
    assert out.startswith("3 requests, 8 blocks of 4 tokens, 3 distinct, ceiling 62.50 % of blocks (63.33 %")
    assert "LRU, tail-first; warm-up 0 %; partial last block kept; 400 B per block (100 B/token)" in out
    rows = [line.split() for line in out.splitlines() if line.endswith("%") and "hit" not in line]
    assert next(row[:2] for row in rows if row[0] != "unlimited") == ["400", "B"]
    assert "2 blocks" in out
    assert "unlimited" in out


def test_json_has_the_documented_schema_with_all_numbers(run: Run, trace: Path) -> None:
    code, out, _ = run("replay", trace, "--kv-bytes-per-token", "100", "--format", "json", "--pool", "tenant")
    answer = json.loads(out)
    assert code == 0
    assert list(answer) == ["schema", "run", "definitions", "together", "pools"]
    assert answer["schema"] == "kvcap.answer/1"
    assert [pool["pool"] for pool in answer["pools"]] == ["a", "b"]
    together = answer["together"]
    assert together["totals"]["ceiling_blocks"] == 3
    assert together["capacities"][-1]["label"] == "unlimited"
    assert together["required_capacity"]["samples"]["percentiles"]["p999"] == {
        "required_blocks": 3,
        "required_bytes": 1200,
    }
    assert answer["run"]["reading"]["records"] == 3


def test_csv_has_a_line_per_pool_and_capacity(run: Run, trace: Path) -> None:
    code, out, _ = run("replay", trace, "--format", "csv", "--pool", "tenant", "--capacities", "1blocks")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["pool"], row["capacity_blocks"], row["hit_blocks"]) for row in rows] == [
        ("", "1", "1"),
        ("", "5", "3"),
        ("a", "1", "1"),
        ("a", "5", "3"),
        ("b", "1", "0"),
        ("b", "5", "0"),
    ]


def test_without_bytes_per_token_answers_are_in_blocks_and_tokens(run: Run, trace: Path) -> None:
    code, out, _ = run("replay", trace, "--capacities", "2blocks,8tokens")
    assert code == 0
    assert "8 tokens" in out
    assert "iB" not in out
    code, _, err = run("replay", trace, "--capacities", "1GiB")
    assert code == 2
    assert "needs --kv-bytes-per-token" in one_error_line(err)


def test_a_trace_on_stdin_and_several_files_replay_in_the_order_given(tmp_path: Path) -> None:
    paths = [tmp_path / "first.jsonl.gz", tmp_path / "second.jsonl"]
    paths[0].write_bytes(gzip.compress((HASH_LINES[0] + "\n").encode()))
    paths[1].write_text(HASH_LINES[1])
    command = [sys.executable, "-m", "kvcap", "replay", "--format", "json"]
    files = subprocess.run([*command, *map(str, paths)], capture_output=True, check=True)
    stdin = "\n".join(HASH_LINES[:2]).encode()
    piped = subprocess.run([*command, "-"], input=stdin, capture_output=True, check=True)
    assert json.loads(files.stdout)["together"] == json.loads(piped.stdout)["together"]
    assert json.loads(files.stdout)["together"]["totals"]["ceiling_blocks"] == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"hash_ids": [1, 2, 3, 1.5], "input_length": 16}', "hash_ids[3] is 1.5, expected an integer"),
        ('{"hash_ids": [true], "input_length": 4}', "hash_ids[0] is true, expected"),
        ('{"hash_ids": [1]}', "input_length"),
        ('{"hash_ids": [1], "input_length": -4}', "input_length is -4, expected"),
        ('{"hash_ids": [1], "input_length": 4, "block_tokens": [2, 2]}', "block_tokens"),
        ('{"hash_ids": [1], "input_length": 4, "block_size": 8}', "block_size is 8, expected 4"),
        ('{"hash_ids": [1], "input_len', ""),
    ],
)
def test_a_bad_record_is_one_line_with_file_line_field_and_what_was_expected(
    run: Run, trace: Path, line: str, message: str
) -> None:
    trace.write_text("\n".join([*HASH_LINES, line]) + "\n")
    code, out, err = run("replay", trace)
    assert (code, out) == (1, "")
    assert f"{trace}:4: " in one_error_line(err)
    assert message in err
    code, out, err = run("replay", trace, "--skip-bad", "1")
    assert (code, err) == (0, "")
    assert f"left out: 1 bad records, such as {trace}:4: " in out


@pytest.mark.parametrize(
    "line", ["[1, -2, 3]", "[1, 2.0]", "[1, true]", '{"input_ids": ["a"]}', "[4294967296]"]
)
def test_a_bad_token_is_refused_with_its_place(run: Run, tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens.jsonl"
    path.write_text("[1, 2, 3]\n\n" + line)
    code, out, err = run("replay", path)
    assert (code, out) == (1, "")
    assert f"{path}:3: " in one_error_line(err)


def test_missing_empty_cut_off_and_undecodable_files_are_one_line(run: Run, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.jsonl", tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress("\n".join(HASH_LINES * 200).encode())[:-20])
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(HASH_LINES[0].encode() + b"\n\xff\xfe{}\n")
    for path in (missing, empty, cut, latin):
        code, out, err = run("replay", path)
        assert (code, out) == (1, ""), path
        assert path.name in one_error_line(err)


def test_no_block_size_anywhere_names_the_option(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"hash_ids": [1], "input_length": 4}\n')
    code, _, err = run("replay", path)
    assert code in (1, 2)
    assert "--block-size" in one_error_line(err)
    assert run("replay", path, "--block-size", "4")[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--kv-bytes-per-token", "-3"],
        ["--kv-bytes-per-token", "nan"],
        ["--target-hit-rate-percent", "0"],
        ["--target-hit-rate-percent", "101"],
        ["--warm-up-percent", "-1"],
        ["--warm-up-percent", "half"],
        ["--coarsen", "0"],
        ["--touch-order", "sideways"],
        ["--capacities", "10"],
        ["--capacities", "-1GiB"],
        ["--capacities", "0blocks"],
        ["--pool", "nobody"],
        ["--keep", "nothing"],
        ["--model", "glm-5.2", "--kv-bytes-per-token", "1"],
        ["--model", "glm-5.2", "--kv-precision", "fp3"],
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(run: Run, trace: Path, options: list[str]) -> None:
    code, out, err = run("replay", trace, *options)
    assert (code, out) == (2, "")
    one_error_line(err)


def test_an_unknown_model_exits_1_and_says_where_to_look(run: Run, trace: Path) -> None:
    code, _, err = run("replay", trace, "--model", "glm-52")
    assert code == 1
    assert "glm-5.2" in one_error_line(err)


def test_a_percentage_may_carry_its_sign(run: Run, trace: Path) -> None:
    plain = run("replay", trace, "--warm-up-percent", "34", "--format", "json")
    signed = run("replay", trace, "--warm-up-percent", "34%", "--format", "json")
    assert json.loads(plain[1])["together"] == json.loads(signed[1])["together"]
    assert json.loads(plain[1])["run"]["warm_up_requests"] == 1


def test_an_output_file_appears_whole_and_is_overwritten_only_with_force(
    run: Run, trace: Path, tmp_path: Path
) -> None:
    answer = tmp_path / "answer.json"
    arguments = ["replay", trace, "--format", "json", "-o", answer]
    assert run(*arguments) == (0, "", "")
    before = answer.read_bytes()
    code, _, err = run(*arguments)
    assert code == 2
    assert "--force" in one_error_line(err)
    assert run(*arguments, "--capacities", "nonsense", "--force")[0] == 2
    assert answer.read_bytes() == before
    assert run(*arguments, "--force")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.json", "trace.jsonl"]


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m kvcap synth agent --requests 3000 | head -n 1 > /dev/null"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_sql_runs_over_kept_results_in_every_form(run: Run, trace: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert run("replay", trace, "--out", results, "--keep", "tenant")[0] == 0
    text = "SELECT tenant, count(*) AS n FROM requests GROUP BY tenant ORDER BY tenant"
    code, out, _ = run("sql", results, text)
    assert (code, out.split()) == (0, ["tenant", "n", "a", "2", "b", "1"])
    assert run("sql", results, text, "--format", "csv")[1] == "tenant,n\na,2\nb,1\n"
    assert json.loads(run("sql", results, text, "--format", "json")[1])[0] == {"tenant": "a", "n": 2}
    target = tmp_path / "rows.parquet"
    assert run("sql", results, text, "--format", "parquet", "-o", target)[0] == 0
    assert pq.read_table(target).to_pylist() == [{"tenant": "a", "n": 2}, {"tenant": "b", "n": 1}]


def test_named_queries_are_listed_and_take_parameters(run: Run, trace: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    run("replay", trace, "--out", results)
    listed = run("sql", "--list")[1]
    assert "hit_rate: " in listed
    assert "-p capacity_blocks=..." in listed
    code, out, _ = run("sql", results, "--query", "hit_rate", "-p", "capacity_blocks=2", "--format", "json")
    assert code == 0
    assert json.loads(out)[0]["hit_blocks"] == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["SELECT nonsense FROM requests"], 1),
        (["SELEC 1"], 1),
        (["--query", "nothing"], 2),
        (["--query", "hit_rate"], 2),
        (["--query", "hit_rate", "-p", "capacity_blocks=many"], 1),
        (["--query", "hit_rate", "-p", "capacity_blocks=1", "-p", "other=1"], 2),
        (["--query", "hit_rate", "-p", "nonsense"], 2),
        (["SELECT capacity_blocks('1GiB')"], 1),
        ([], 2),
    ],
)
def test_wrong_sql_is_one_line(
    run: Run, trace: Path, tmp_path: Path, arguments: list[str], code: int
) -> None:
    results = tmp_path / "results"
    run("replay", trace, "--out", results)
    found, out, err = run("sql", results, *arguments)
    assert (found, out) == (code, "")
    one_error_line(err)


def test_version_and_module_entry_point() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvcap", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("kvcap ")


def test_threads_bound_the_pools_of_all_libraries(tmp_path: Path, trace: Path) -> None:
    program = """
import sys
from kvcap.cli import main

main(sys.argv[1:])
import polars, pyarrow
print(pyarrow.cpu_count(), polars.thread_pool_size())
"""
    arguments = ["replay", str(trace), "--threads", "3", "--quiet", "--output", str(tmp_path / "answer")]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "3"]
    with kvcap.replay(str(trace), reading=kvcap.ReadOptions(threads=3)) as results:
        assert results.sql("SELECT current_setting('threads') AS n")["n"].to_pylist() == [3]

"""``kvcap replay`` with policies and engines as a user runs it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvcap.cli import main

Run = Callable[..., tuple[int, str, str]]


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
    """Belady's own example of a FIFO that falls, in blocks of 4 tokens."""
    path = tmp_path / "trace.jsonl"
    lines = (
        json.dumps({"hash_ids": [page], "input_length": 4, "block_size": 4, "output_length": 6})
        for page in [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def policy_table(out: str) -> list[list[str]]:
    """Return the cells of the policy table, header first."""
    lines = out.split("Token hit rate by policy")[1].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("Capacity"))
    table = lines[first : next(i for i, line in enumerate(lines) if line.startswith("Ceiling"))]
    return [[cell for cell in line.split("  ") if cell.strip()] for line in table]


def test_the_policy_table_follows_the_tables_of_the_one_pass(run: Run, trace: Path) -> None:
    plain = run("replay", trace, "--capacities", "3blocks,4blocks,9blocks")[1]
    code, out, err = run(
        "replay", trace, "--capacities", "3blocks,4blocks,9blocks", "--policies", "lru,fifo,optimal"
    )
    assert (code, err) == (0, "")
    assert out.startswith(plain)
    header, *rows = policy_table(out)
    assert [cell.strip() for cell in header[:5]] == [
        "Capacity",
        "Blocks",
        "lru hit",
        "fifo hit",
        "optimal hit",
    ]
    assert rows[0][0] == "3 blocks"
    assert [cell.strip() for cell in rows[0][2:]] == [
        "16.67 %",
        "25.00 %",
        "41.67 %",
        "1.20x",
        "1.33x",
        "1.71x",
        "25.00 points",
    ]
    assert rows[2][0].startswith("9 blocks *")
    assert "Ceiling 58.33 % of 48 measured tokens." in out
    assert "FIFO hits less at 4 blocks than at 3 blocks: 4 tokens fewer" in out
    assert "* the trace does not fill this capacity" in out


def test_an_engine_prints_what_it_sets_and_what_overrides_it(run: Run, trace: Path) -> None:
    out = run("replay", trace, "--engine", "vllm", "--capacities", "4blocks")[1]
    assert "vllm: --partial-block drop --compute-last-token --output-blocks on --policies vllm-lru\n" in out
    options = ["--no-compute-last-token", "--reserve-blocks", "2", "--output-blocks", "off"]
    options += ["--policies", "lru", "--oversize", "drop"]
    out = run("replay", trace, "--engine", "vllm", *options, "--capacities", "4blocks,1blocks")[1]
    assert "vllm: --partial-block drop --reserve-blocks 2 --oversize drop --policies lru\n" in out
    header, row, _ = policy_table(out)
    assert [cell.strip() for cell in header] == [
        "Capacity",
        "Blocks",
        "lru hit",
        "lru at most",
        "lru speed-up",
        "Left out",
    ]
    assert [cell.strip() for cell in row] == ["4 blocks", "4", "0.00 %", "33.33 %", "1.00x", "0"]
    assert "hit: with --reserve-blocks 2; at most: without" in out


def test_rules_without_an_engine_are_printed_as_options(run: Run, trace: Path) -> None:
    options = ["--policies", "lru", "--capacity-factor", "0.5", "--capacities", "4blocks"]
    assert "rules: --capacity-factor 0.5\n" in run("replay", trace, *options)[1]
    assert "rules:" not in run("replay", trace, "--policies", "lru", "--capacities", "4blocks")[1]


def test_json_and_csv_have_every_policy_row(run: Run, trace: Path) -> None:
    options = ["replay", trace, "--policies", "lru,fifo", "--capacities", "3blocks,4blocks"]
    answer = json.loads(run(*options, "--format", "json")[1])
    rows = answer["together"]["policies"]
    assert [(row["policy"], row["capacity_blocks"], row["hit_blocks"]) for row in rows] == [
        ("lru", 3, 2),
        ("lru", 4, 4),
        ("fifo", 3, 3),
        ("fifo", 4, 2),
    ]
    assert answer["run"]["rules"]["policies"] == ["lru", "fifo"]
    assert answer["together"]["fifo_falls"] == [
        {"smaller": "3 blocks", "larger": "4 blocks", "lost_hit_tokens": 4}
    ]
    table = list(csv.DictReader(io.StringIO(run(*options, "--format", "csv")[1])))
    assert [int(row["hit_blocks"]) for row in table] == [row["hit_blocks"] for row in rows]


def test_underfilled_capacities_can_be_left_out(run: Run, trace: Path) -> None:
    options = ["replay", trace, "--policies", "lru", "--capacities", "3blocks,9blocks"]
    out = run(*options, "--omit-underfilled")[1]
    assert [row[0] for row in policy_table(out)[1:]] == ["3 blocks"]
    assert "not under pressure" not in out


def test_hits_by_request_are_kept_with_the_results(run: Run, trace: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = ["--policies", "fifo", "--capacities", "3blocks", "--request-hits", "--out", results]
    assert run("replay", trace, *options)[0] == 0
    sql = "SELECT string_agg(hit_blocks, '' ORDER BY request_id) AS hits FROM policy_requests"
    assert run("sql", results, sql)[1].split() == ["hits", "000000011001"]


def test_another_eviction_policy_of_sglang_is_simulated_in_place_of_lru(run: Run, trace: Path) -> None:
    options = ["--engine", "sglang", "--radix-eviction-policy", "filo", "--capacities", "9blocks"]
    code, out, _ = run("replay", trace, *options, "--format", "json")
    assert code == 0
    assert [row["policy"] for row in json.loads(out)["together"]["policies"]] == ["sglang-filo"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", ","], "--policies is empty, expected names with commas between them"),
        (
            ["--policies", "lru,mru"],
            "policy is 'mru', expected one of lru, fifo, optimal, vllm-lru, sglang-lru, sglang-lfu, ",
        ),
        (["--omit-underfilled"], "--omit-underfilled goes with --policies or --engine"),
        (["--policies", "lru", "--request-hits"], "--request-hits goes with --out"),
        (["--reserve-blocks", "1"], "expected policies with them"),
        (["--policies", "lru", "--capacity-factor", "2"], "capacity factor is 2, expected a number above 0"),
        (
            ["--policies", "lru", "--capacity-factor", "x"],
            "--capacity-factor is 'x', expected a number above",
        ),
        (["--engine", "lmcache", "--coarsen", "2"], "expected no coarsening"),
        (["--engine", "lmcache", "--chunk-tokens", "6"], "blocks of 4 tokens do not make chunks of 6 tokens"),
        (["--radix-eviction-policy", "lfu"], "--radix-eviction-policy is SGLang's: expected --engine sglang"),
        (
            ["--engine", "sglang", "--radix-eviction-policy", "lfu", "--policies", "lru"],
            "expected --engine sglang and no --policies",
        ),
        (["--output-blocks", "on"], "--output-blocks on needs --partial-block drop"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    run: Run, trace: Path, options: list[str], message: str
) -> None:
    code, out, err = run("replay", trace, *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("kvcap: error: ")
    assert message in err

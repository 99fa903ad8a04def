"""``kvcap replay --engine vllm`` with a model of several kinds of layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvcap.analysis import answer as answer_of
from kvcap.cli import main
from kvcap.queries import open_results

Run = Callable[..., tuple[int, str, str]]
MODEL = ["--engine", "vllm", "--model", "gpt-oss-20b"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three prompts: the second and the third leave the first one behind its second id."""
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": place, "input_length": 256, "output_length": 40, "hash_ids": [1, 2, *rest]}
        for place, rest in enumerate([[3, 4], [5, 6], [7, 8]])
    ]
    path.write_text("".join(json.dumps({**row, "block_size": 64}) + "\n" for row in rows))
    return path


def answer(run: Run, *args: object) -> dict:
    code, out, err = run("replay", *args, "--format", "json")
    assert code == 0, err
    return json.loads(out)


def test_the_hits_of_the_engine_stand_beside_those_at_the_mean_bytes_per_token(run: Run, trace: Path) -> None:
    found = answer(run, trace, *MODEL, "--capacities", "200blocks")
    rows = {row["policy"]: row for row in found["together"]["policies"]}
    assert list(rows) == ["lru", "vllm-hybrid"]
    # Full attention has two ids for both; a window in front of their end only once prompts have parted there.
    assert rows["lru"]["hit_tokens"] == 256
    assert rows["vllm-hybrid"]["hit_tokens"] == 128
    assert rows["vllm-hybrid"]["capacity_blocks"] == 200
    hybrid = found["run"]["hybrid"]
    assert hybrid["ceiling_tokens"] == 128
    assert hybrid["alignment_tokens"] == 16
    assert hybrid["block_bytes"] * 201 == rows["vllm-hybrid"]["capacity_bytes"]
    assert [group["kind"] for group in hybrid["groups"]] == ["window", "full"]


def test_windows_kept_everywhere_hit_what_full_attention_hits(run: Run, trace: Path) -> None:
    dense = ["--prefix-cache-retention-interval", "none"]
    found = answer(run, trace, *MODEL, *dense, "--capacities", "200blocks")
    assert found["run"]["hybrid"]["ceiling_tokens"] == 256


def test_generated_tokens_take_blocks_unless_told_otherwise(run: Run, trace: Path) -> None:
    # 16 blocks for a prompt in full attention, 2 more for what it generates; windows take as many and let go.
    hits = {}
    for outputs in ("on", "off"):
        found = answer(run, trace, *MODEL, "--capacities", "34blocks", "--output-blocks", outputs)
        hits[outputs] = found["together"]["policies"][1]["hit_tokens"]
    assert hits["on"] < hits["off"]


def test_kept_results_answer_again(run: Run, trace: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = [*MODEL, "--capacities", "200blocks,1GiB", "--request-hits", "--out", results]
    assert run("replay", trace, *options)[0] == 0
    with open_results(results) as kept:
        rows = answer_of(kept).together.policies
    assert [(row.policy, row.label) for row in rows] == [
        (policy, label) for policy in ("lru", "vllm-hybrid") for label in ("200 blocks", "1 GiB")
    ]
    sql = "SELECT sum(hit_tokens) AS tokens FROM policy_requests WHERE policy = 'vllm-hybrid'"
    assert run("sql", results, sql)[1].split() == ["tokens", "256"]


def test_the_text_says_what_the_pool_is_and_where_ids_are_too_coarse(run: Run, trace: Path) -> None:
    code, out, _ = run("replay", trace, *MODEL, "--capacities", "200blocks")
    assert code == 0
    text = " ".join(out.split())
    assert "12 layers of window (128 tokens) in blocks of 16; 12 layers of full in blocks of 16" in text
    assert "--cut-prompts-at-ids is the other reading" in text


def test_prompts_cut_where_ids_end_are_one_token_longer_than_their_whole_ids(run: Run, trace: Path) -> None:
    found = answer(run, trace, *MODEL, "--capacities", "200blocks", "--cut-prompts-at-ids")
    assert found["together"]["totals"]["input_tokens"] == 3 * (3 * 64 + 1)


def test_a_policy_of_full_attention_may_be_asked_for_beside_a_hybrid_model(run: Run, trace: Path) -> None:
    found = answer(run, trace, *MODEL, "--policies", "vllm-lru", "--capacities", "1GiB")
    assert [row["policy"] for row in found["together"]["policies"]] == ["vllm-lru"]
    assert found["run"]["hybrid"] is None


def test_an_engine_block_size_alone_simulates_full_attention_in_blocks_of_the_engine(
    run: Run, trace: Path
) -> None:
    options = ["--engine", "vllm", "--model", "qwen3-8b", "--engine-block-size", "16"]
    found = answer(run, trace, *options, "--capacities", "200blocks")
    assert found["together"]["policies"][1]["hit_tokens"] == 256
    assert [group["kind"] for group in found["run"]["hybrid"]["groups"]] == ["full"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine-block-size", "16"], "--engine vllm with a --model"),
        (
            ["--engine", "vllm", "--model", "deepseek-v4.1-flash"],
            "expected --policies vllm-lru, which takes every layer as full attention",
        ),
        ([*MODEL, "--policies", "vllm-lru", "--engine-block-size", "16"], "as policy vllm-hybrid: expected"),
        (["--engine", "vllm", "--prefix-cache-retention-interval", "none"], "--engine vllm with a --model"),
        ([*MODEL, "--prefix-cache-retention-interval", "all"], "is 'all', expected none, 0 or a number"),
        (["--policies", "vllm-hybrid"], "as policy vllm-hybrid: expected these"),
        ([*MODEL, "--max-capacity", "1GiB"], "--max-capacity bounds plain LRU"),
        ([*MODEL, "--tp", "2", "--scope", "replica"], "expected --scope rank"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    run: Run, trace: Path, options: list[str], message: str
) -> None:
    code, out, err = run("replay", trace, *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err

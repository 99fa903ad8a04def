"""The command line's figures equal the public C++ simulator's at every budget it reports."""

from __future__ import annotations

import json
import lzma

import pytest
from shared_data import shared_path

from kvcap.cli import main

MODEL = ["--model", "glm-5.2", "--kv-precision", "fp8_int8", "--indexer-precision", "fp4_int4"]
TRACES = {
    "conversation": ("mooncake_conversation.jsonl.gz", 512),
    "synthetic": ("mooncake_synthetic.jsonl.gz", 512),
    "agentic": ("agentic_coding.jsonl.xz", 64),
}


def golden(name):
    return json.loads(shared_path(f"golden/kvcache_simulator_{name}.json").read_text())


def answered(name, tmp_path, *options):
    """Return the JSON answer, at the budgets of the golden file."""
    trace, block_size = TRACES[name]
    path = shared_path(f"traces/{trace}")
    if path.suffix == ".xz":
        unpacked = tmp_path / path.stem
        with lzma.open(path) as packed, unpacked.open("wb") as plain:
            while chunk := packed.read(1 << 24):
                plain.write(chunk)
        path = unpacked
    budgets = ",".join(f"{point['gib']:g}GiB" for point in golden(name)["points"])
    out = tmp_path / "answer.json"
    argv = ["replay", str(path), "--block-size", str(block_size), *MODEL, "--capacities", budgets]
    argv += [
        "--namespace",
        "none",
        "--warm-up-percent",
        "50",
        "--format",
        "json",
        "-o",
        str(out),
        "--force",
        *options,
    ]
    assert main(argv) == 0
    return json.loads(out.read_text())


def hit_tokens(answer, policy):
    return [row["hit_tokens"] for row in answer["together"]["policies"] if row["policy"] == policy]


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_fifo_and_optimal_equal_the_public_simulator_at_every_budget(name, tmp_path):
    expected = golden(name)
    answer = answered(name, tmp_path, "--policies", "fifo,optimal")
    for policy in ("fifo", "optimal"):
        assert hit_tokens(answer, policy) == [point[policy] for point in expected["points"]]
    blocks = [row["capacity_blocks"] for row in answer["together"]["policies"] if row["policy"] == "fifo"]
    assert blocks == [point["cache_blocks"] for point in expected["points"]]


@pytest.mark.parametrize(
    "name", ["conversation", "synthetic", pytest.param("agentic", marks=pytest.mark.slow)]
)
def test_lru_equals_the_public_simulator_where_every_request_fits(name, tmp_path):
    expected = golden(name)
    answer = answered(name, tmp_path, "--policies", "lru")
    largest = answer["run"]["largest_request_blocks"]
    compared = [
        (ours, point["lru"])
        for ours, point in zip(hit_tokens(answer, "lru"), expected["points"], strict=True)
        if point["cache_blocks"] >= largest
    ]
    assert len(compared) >= 6
    assert all(ours == theirs for ours, theirs in compared)
    curve = [row["hit_tokens"] for row in answer["together"]["capacities"][:-1]]
    assert curve == hit_tokens(answer, "lru")


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_the_answer_has_every_count_that_the_public_simulator_reports(name, tmp_path):
    expected = golden(name)
    answer = answered(name, tmp_path, "--policies", "optimal")
    run, totals = answer["run"], answer["together"]["totals"]
    assert float(run["kv_bytes_per_token"]) == expected["bytes_per_token"]
    assert run["block_bytes"] == expected["bytes_per_block"]
    assert run["requests"] == expected["requests"]
    assert run["warm_up_requests"] == expected["warm_up_requests"]
    assert run["distinct_blocks"] == expected["unique_blocks"]
    assert run["mean_input_tokens"] == expected["average_input_tokens"]
    assert run["sizing"]["estimate_tokens"] == round(expected["average_input_tokens"])
    assert totals["input_tokens"] == expected["measured_tokens"]
    assert totals["ceiling_tokens"] == expected["ceiling_hit_tokens"]
    sizing = run["sizing"]
    assert (sizing["model"], sizing["kv_precision"], sizing["indexer_precision"]) == (
        "glm-5.2",
        "fp8_int8",
        "fp4_int4",
    )
    assert run["reading"]["skipped"] == {}


def test_budgets_that_the_warm_up_does_not_fill_are_the_ones_that_the_public_simulator_omits(tmp_path):
    answer = answered("synthetic", tmp_path, "--policies", "lru", "--capacities", "pow2")
    filled = [row["label"] for row in answer["together"]["policies"] if row["filled"]]
    assert len(filled) == len(golden("synthetic")["points"])
    omitted = answered(
        "synthetic", tmp_path, "--policies", "lru", "--capacities", "pow2", "--omit-underfilled"
    )
    assert [row["label"] for row in omitted["together"]["policies"]] == filled

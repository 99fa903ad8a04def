"""All three policies at 15 budgets, whole process, beside the public C++ simulator on the same machine.

``KVCAP_PEER_SIMULATOR=PATH pytest -m bench tests/bench/test_bench_policies.py -s`` prints seconds of wall
clock and of processor, the best of a few interleaved runs each, and their ratios. Where the simulator is not
installed, kvcap's own are printed alone.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from golden_traces import golden_trace
from shared_data import shared_path

from kvcap.kernels.optimal import optimal_hit_blocks
from kvcap.kernels.reuse_runs import ReuseRunScanner

pytestmark = pytest.mark.bench

PEER = os.environ.get("KVCAP_PEER_SIMULATOR")
MODEL = ["--model", "glm-5.2", "--kv-precision", "fp8_int8", "--indexer-precision", "fp4_int4"]
BUDGETS_GIB = [2**power for power in range(15)]


class Seconds(NamedTuple):
    """Of one process."""

    wall: float
    processor: float


def plain_trace(name: str, n_requests: int | None, path: Path) -> Path:
    """Unpack a public trace, or its first requests, as both tools read it best: plain JSON Lines."""
    packed = shared_path(f"traces/{name}")
    with (lzma if packed.suffix == ".xz" else gzip).open(packed, "rb") as lines, path.open("wb") as plain:
        plain.writelines(islice(lines, n_requests))
    return path


def timed(command: list[str]) -> tuple[Seconds, Any]:
    """Run a command and return its time and the JSON that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(wall, processor), json.loads(done.stdout)


def commands(trace: Path, block_size: int) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "kvcap", "replay", str(trace), "--block-size", str(block_size), *MODEL]
    ours += ["--capacities", "pow2", "--policies", "lru,fifo,optimal", "--warm-up-percent", "50"]
    found = {"kvcap": [*ours, "--format", "json"]}
    if PEER:
        peer = [PEER, "run", "--trace", str(trace), "--block-size", str(block_size), *MODEL]
        budgets = ",".join(map(str, BUDGETS_GIB))
        found["peer"] = [*peer, "--budgets-gib", budgets, "--no-progress", "--format", "json"]
    return found


def best(times: list[Seconds]) -> Seconds:
    return Seconds(min(time.wall for time in times), min(time.processor for time in times))


@pytest.mark.parametrize(
    ("name", "n_requests", "block_size", "repeats"),
    [("mooncake_conversation.jsonl.gz", None, 512, 7), ("agentic_coding.jsonl.xz", 6000, 64, 2)],
)
def test_three_policies_at_fifteen_budgets(
    name: str, n_requests: int | None, block_size: int, repeats: int, tmp_path: Path
) -> None:
    trace = plain_trace(name, n_requests, tmp_path / "trace.jsonl")
    asked = commands(trace, block_size)
    timed(asked["kvcap"])
    times: dict[str, list[Seconds]] = {tool: [] for tool in asked}
    answers = {}
    for _ in range(repeats):
        for tool, command in asked.items():
            seconds, answers[tool] = timed(command)
            times[tool].append(seconds)
    ours = best(times["kvcap"])
    blocks = answers["kvcap"]["run"]["blocks"]
    text = f"\n{name}, {blocks:,} blocks: kvcap {ours.wall:.2f} s ({ours.processor:.2f} of processor)"
    if "peer" in answers:
        theirs = best(times["peer"])
        text += f", peer {theirs.wall:.2f} s ({theirs.processor:.2f}): ratio {theirs.wall / ours.wall:.2f}"
        text += f" ({theirs.processor / ours.processor:.2f})"
        assert_equal_hits(answers["kvcap"], answers["peer"])
    print(text)


def assert_equal_hits(ours: Any, theirs: Any) -> None:
    found = {(row["policy"], row["label"]): row["hit_tokens"] for row in ours["together"]["policies"]}
    assert theirs["points"]
    for point in theirs["points"]:
        label = f"{point['gib']:g} GiB" if point["gib"] < 1024 else f"{point['gib'] / 1024:g} TiB"
        for policy in ("fifo", "optimal"):
            assert found[policy, label] == point["results"][policy]["hitTokens"]


def test_optimal_at_fifteen_budgets_after_the_pass() -> None:
    trace = golden_trace("agentic_coding.jsonl.xz")
    runs = ReuseRunScanner().feed(trace.block_keys, trace.request_offsets)
    capacities = np.array([gib * 2**30 // 2961408 for gib in BUDGETS_GIB])
    optimal_hit_blocks(runs, len(trace.input_tokens), capacities[:1])
    started = time.perf_counter()
    optimal_hit_blocks(runs, len(trace.input_tokens), capacities)
    print(f"\nagentic_coding: optimal at 15 budgets {time.perf_counter() - started:.2f} s after the pass")

"""How much traffic the estimator and the service take; prints figures, asserts that all was answered."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_process import serving

from kvcap.online import Estimator, EstimatorOptions, RequestBatch

pytestmark = pytest.mark.bench

OPTIONS = EstimatorOptions(tuple(range(0, 1_400_000, 100_000)), 1_400_000, block_bytes=3_936_320)
BLOCKS = 200


def batches(n_requests: int, size: int) -> list[RequestBatch]:
    """Requests of 200 blocks, 150 of which begin one of 500 conversations."""
    rng = np.random.default_rng(0)
    heads = rng.integers(0, 2**63, (500, 150), np.uint64)
    made = []
    for first in range(0, n_requests, size):
        n = min(size, n_requests - first)
        tails = rng.integers(0, 2**63, (n, BLOCKS - 150), np.uint64)
        ids = np.concatenate([heads[rng.integers(0, 500, n)], tails], axis=1).ravel()
        made.append(RequestBatch("hash_ids", ids, np.arange(n + 1, dtype=np.int64) * BLOCKS))
    return made


@pytest.mark.parametrize("size", [1, 8, 64, 512])
def test_requests_of_200_blocks(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = Estimator(OPTIONS)
    estimator.observe(hash_ids=[1])
    made = batches(20_000, size)
    begin = time.perf_counter()
    for batch in made:
        estimator.observe_many(batch)
    took = time.perf_counter() - begin
    assert estimator.n_requests == 20_001
    with capsys.disabled():
        print(f"\nestimator, {size} at once: {20_000 / took:,.0f} requests/s of {BLOCKS} blocks")


@pytest.mark.parametrize(
    ("bound", "n_requests", "blocks", "known", "size"),
    [(500_000, 10_000_000, 2, 0, 500), (18_000_000, 1_200_000, BLOCKS, 50, 5)],
)
def test_no_call_waits_for_what_is_remembered(
    bound: int, n_requests: int, blocks: int, known: int, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator = Estimator(EstimatorOptions((bound // 5,), bound))
    estimator.observe(hash_ids=[1])
    rng = np.random.default_rng(0)
    heads = rng.integers(0, 2**63, (500, known), np.uint64)
    offsets = np.arange(size + 1, dtype=np.int64) * blocks
    calls, memory = [], []
    for _ in range(n_requests // size):
        ids = rng.integers(0, 2**63, (size, blocks), np.uint64)
        ids[:, :known] = heads[rng.integers(0, 500, size)]
        batch = RequestBatch("hash_ids", ids.ravel(), offsets)
        begin = time.perf_counter()
        estimator.observe_many(batch)
        calls.append(time.perf_counter() - begin)
        memory.append(resident_bytes())
    half = len(memory) // 2
    assert max(memory[half:]) <= 1.02 * max(memory[:half])
    assert 2 * bound <= estimator.snapshot().tracked_blocks <= 2 * bound + 2 * blocks
    longest = sorted(calls)[-3:]
    # The machine itself may stop a call or two.
    assert longest[0] < seconds_of_a_large_copy() / 2
    with capsys.disabled():
        print(
            f"\n{n_requests:,} requests of {blocks} blocks, {known} of them known, up to {bound:,} blocks: "
            f"{sum(calls) / n_requests * 1e6:.2f} us each, longest calls of {size} "
            f"{', '.join(f'{1000 * call:.0f}' for call in longest)} ms, {max(memory) / 1e6:.0f} MB resident"
        )


def seconds_of_a_large_copy() -> float:
    """How long this machine takes to copy what a bound of 18 million blocks remembers, keys alone."""
    keys = np.ones(36_000_000, np.uint64)
    begin = time.perf_counter()
    keys.copy()
    return time.perf_counter() - begin


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    ("form", "rate", "per_body"),
    [("arrow", 500, 1), ("arrow", 1000, 1), ("arrow", 1000, 8), ("json", 75, 1), ("json", 150, 1)],
)
def test_service_under_load(
    form: str, rate: int, per_body: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--kv-bytes-per-token", "61505", "--record", str(tmp_path / "log"))
    with serving(*flags) as service:
        for seconds in (1, 10):
            found = load(service.url, form, rate, per_body, seconds)
        assert set(found["statuses"]) == {"200"}
        assert service.terminate() == 0
    with capsys.disabled():
        print(f"\nservice, {form} at {rate}/s, {per_body} to a body: {found}")


def load(url: str, form: str, rate: int, per_body: int, seconds: int) -> dict[str, Any]:
    script = Path(__file__).with_name("load_generator.py")
    flags = {"--form": form, "--rate": rate, "--per-body": per_body, "--seconds": seconds}
    done = subprocess.run(
        [sys.executable, script, url, *(str(part) for pair in flags.items() for part in pair)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found

"""How much work is done, counted in instructions: these fail when a pass becomes slower by its nature."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from counting import instructions

import kvcap
from kvcap.formats import log_trace

SCRIPT = Path(__file__).with_name("kernel_instructions.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, int]]:
    """Instructions of each kernel, by requests and blocks of each."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, SCRIPT, "100x20", "800x20", "100x200"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    counted: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counted


def test_keying_takes_the_same_few_instructions_for_every_block(kernels: dict[str, dict[str, int]]) -> None:
    assert kernels["100x20"]["key"] <= 75 * 100 * 20
    assert kernels["800x20"]["key"] <= 1.05 * 8 * kernels["100x20"]["key"]
    assert kernels["100x200"]["key"] <= 1.05 * 10 * kernels["100x20"]["key"]


def test_the_pass_costs_by_request_and_not_by_block(kernels: dict[str, dict[str, int]]) -> None:
    for step, most_a_request in (("scan", 1500), ("split", 170)):
        assert kernels["100x20"][step] <= most_a_request * 100
        assert kernels["100x200"][step] <= 1.1 * kernels["100x20"][step]


def test_the_pass_grows_with_the_log_by_no_more_than_its_logarithm(
    kernels: dict[str, dict[str, int]],
) -> None:
    for step in ("scan", "split"):
        assert kernels["800x20"][step] <= 1.3 * 8 * kernels["100x20"][step]


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[[int, int], str]:
    def write(n_requests: int, n_blocks: int) -> str:
        path = tmp_path / f"{n_requests}x{n_blocks}.jsonl"
        with path.open("w") as stream:
            for request in range(n_requests):
                ids = [*range(n_blocks // 2), *range(request << 20, (request << 20) + n_blocks // 2)]
                record = {"timestamp": request, "input_length": 16 * n_blocks, "hash_ids": ids}
                stream.write(json.dumps(record) + "\n")
        return str(path)

    return write


@pytest.mark.parametrize("compiled", [False, True])
def test_the_main_job_runs_no_python_for_a_block_and_little_for_a_request(
    write_log: Callable[[int, int], str], monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    monkeypatch.setattr(log_trace, "PLAIN_BYTES", 0 if compiled else 1 << 30)

    def replayed(n_requests: int, n_blocks: int) -> int:
        path = write_log(n_requests, n_blocks)
        reading = kvcap.ReadOptions(block_size=16, threads=1)
        kvcap.replay(path, kvcap.ReplayOptions.of(block_size=16), reading=reading).close()
        results, count = instructions(
            lambda: kvcap.replay(path, kvcap.ReplayOptions.of(block_size=16), reading=reading)
        )
        results.close()
        return count

    few, many, longer = replayed(100, 20), replayed(300, 20), replayed(100, 200)
    assert longer <= 1.02 * few
    assert many - few <= 200 * 2000


@pytest.mark.parametrize("trace", ["chat.token_ids.jsonl.gz", "agent.hash_ids.jsonl.gz"])
def test_a_first_run_compiles_few_functions_and_no_error_messages(tmp_path: Path, trace: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT.with_name("first_run.py"), ROOT / "sample_traces" / trace],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    modules: dict[str, int] = json.loads(done.stdout)
    # A slice that is assigned to brings the text of the error that it may raise: 30 functions, 4 s.
    assert "numba.cpython.unicode" not in modules
    assert sum(modules.values()) <= 60

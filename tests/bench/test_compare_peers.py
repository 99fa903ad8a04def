"""The script that compares peers: its table, its interleaving, and what it does without peers."""

from __future__ import annotations

import gzip
import importlib.util
import json
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "compare_peers", Path(__file__).with_name("compare_peers.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_trace(path: Path) -> Path:
    lines = [
        {"hash_ids": [1, 2, r], "input_length": 1500, "timestamp": r, "output_length": 1} for r in range(4)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_contenders_run_round_after_round_and_a_row_is_their_median(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def fake_run(contender: object) -> object:
        order.append(contender.name)
        return script.Run(float(len(order)), 2**20)

    monkeypatch.setattr(script, "run", fake_run)
    trace = write_trace(tmp_path / "trace.jsonl")
    contenders = [script.Contender("a", "1", [], compiles=True), script.Contender("b", "10", [])]
    results = script.rounds(contenders, 3)
    assert order == ["a"] + ["a", "b"] * 3
    lines = script.table(trace, contenders, results)
    assert "| a | 1 | 4.00 | 2.00 to 6.00 | 1 |" in lines
    assert "| b | 10 | 5.00 | 3.00 to 7.00 | 1 |" in lines


def test_peers_that_are_not_there_are_left_out(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(script, "run", lambda contender: names.append(contender.name) or script.Run(1.0, 1))
    for variable in ("KVCAP_PEER_SIMULATOR", "KVCAP_PEER_LIBCACHESIM"):
        monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "table.md"
    assert script.main([str(write_trace(tmp_path / "trace.jsonl.gz")), "--runs", "1", "-o", str(out)]) == 0
    assert {name.split()[0].rstrip(",") for name in names} == {"kvcap"}
    assert "| kvcap --threads 1 |" in out.read_text()


def test_a_contender_that_fails_stops_the_comparison_with_its_message(script: ModuleType) -> None:
    failing = script.Contender("broken", "1", [sys.executable, "-c", "raise SystemExit('no such trace')"])
    with pytest.raises(SystemExit, match="broken failed: no such trace"):
        script.run(failing)
    fine = script.run(script.Contender("fine", "1", [sys.executable, "-c", "pass"]))
    assert fine.seconds > 0
    assert fine.peak_bytes > 2**20


def test_block_accesses_are_laid_out_for_libcachesim(script: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "accesses.bin"
    assert script.write_oracle_general(write_trace(tmp_path / "trace.jsonl"), out) == 12
    records = list(struct.iter_unpack("<IQIq", out.read_bytes()))
    assert records[3:6] == [(1, 1, 1, -1), (1, 2, 1, -1), (1, 1, 1, -1)]

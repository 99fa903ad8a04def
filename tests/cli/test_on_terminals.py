"""Every answer on pseudo-terminals of usual widths: nothing is wider, no number is cut."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import sys
import termios
import threading
from pathlib import Path

import pytest

from kvcap.cli import main
from kvcap.cli.fitting import cell_width

COSTS = ["--prefill-tokens-per-second", "9000", "--gpu-hour", "2.5"]
TIERS = ["--tier", "hbm=640KiB:30", "--tier", "dram=2GiB:4.5"]
ANSWERS = {
    "replay": ["replay", "log.jsonl", "--kv-bytes-per-token", "61505"],
    "replay of a model": ["replay", "log.jsonl", "--model", "glm-5.2"],
    "replay of blocks": ["replay", "log.jsonl", "--capacities", "5blocks,500blocks"],
    "replay of pools": ["replay", "log.jsonl", "--pool", "tenant", "--kv-bytes-per-token", "61505"],
    "replay with a bound": ["replay", "log.jsonl", "--max-capacity", "9blocks", "--capacities", "5blocks"],
    "policies": [
        *("replay", "log.jsonl", "--policies", "lru,fifo,optimal,vllm-lru", "--reserve-blocks", "2"),
        *("--capacities", "9blocks,90blocks", "--oversize", "drop"),
    ],
    "engine": ["replay", "log.jsonl", "--engine", "sglang", "--kv-bytes-per-token", "61505"],
    "plan": ["plan", "results", *TIERS, *COSTS],
    "diff": ["diff", "results", "pools"],
    "check": ["check", "results", "--max-p99", "2TiB", "--min-hit-rate", "0.3", "--min-requests", "10"],
    "route": [
        *("route", "log.jsonl", "--instances", "2,16", "--policy", "round-robin,prefix"),
        *("--capacity-per-instance", "1GiB", "--kv-bytes-per-token", "61505"),
    ],
    "grow": [
        *("grow", "log.jsonl", "--users", "1,2,4", "--context", "1.5", "--add", "log.jsonl"),
        *("--capacities", "1GiB,2GiB,4GiB", "--kv-bytes-per-token", "61505"),
    ],
    "query": ["sql", "results", "--query", "hit_rate_curve"],
    "rows": ["sql", "results", "SELECT * FROM requests LIMIT 5"],
    "queries": ["sql", "--list"],
    "one query": ["sql", "--list", "--query", "tiers"],
    "catalog": ["models"],
    "model": ["models", "glm-5.2"],
    "pools of vLLM": ["models", "qwen3.6-35b-a3b", "--engine", "vllm", "--memory", "5.98GiB"],
    "pools of SGLang": ["models", "mimo-v2.5", "--engine", "sglang", "--tp", "4", "--memory", "20GiB"],
    "formats": ["formats"],
}
"""What is asked, by name, in a directory with a log and the results of two replays."""


@pytest.fixture(scope="module")
def asked_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("asked")
    tenants = ["a tenant of some length", "\x1b[31mred", "=1+1", "日本語"]
    lines = [
        {
            "hash_ids": [*range(i % 7 * 100, i % 7 * 100 + i % 40), 10**6 + i],
            "input_length": 512 * (i % 40) + 17,
            "output_length": 99,
            "timestamp": 1000 * i,
            "block_size": 512,
            "tenant": tenants[i % 4],
        }
        for i in range(120)
    ]
    (directory / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(directory)
        for out, more in (("results", []), ("pools", ["--pool", "tenant", "--warm-up-percent", "20"])):
            assert main([*ANSWERS["replay"], *more, "--out", out, "-o", os.devnull]) == 0
    return directory


def on_terminal(argv: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command whose standard output is a terminal, and return what it shows."""
    monkeypatch.delenv("COLUMNS", raising=False)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown = io.BytesIO()

    def collect() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(master, 1 << 16):
                shown.write(data)

    reader = threading.Thread(target=collect)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        assert main(argv) == 0
    reader.join()
    os.close(master)
    return shown.getvalue().decode().replace("\r\n", "\n")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_fits_the_terminal_and_shows_every_number(
    name: str, asked_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(asked_in)
    assert main(ANSWERS[name]) == 0
    numbers = set(re.findall(r"(?<!\S)[-+]?\d[\d,.]*(?: [a-zA-Z%]\S*)?(?!\S)", capsys.readouterr().out))
    for columns in (60, 80, 120):
        shown = on_terminal(ANSWERS[name], columns, monkeypatch)
        lines = shown.split("\n")
        assert all(line.isprintable() for line in lines)
        # A word that is wider than the terminal, such as an address, stays whole.
        assert [line for line in lines if cell_width(line) > columns and len(line.split()) > 1] == []
        assert "…" not in shown
        whole = " ".join(shown.split())
        assert [number for number in numbers if f" {number} " not in f" {whole} "] == []


def test_csv_of_a_log_runs_nothing_in_a_spreadsheet_unless_it_is_raw(
    asked_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(asked_in)
    asked = ("SELECT DISTINCT pool, -1 AS below FROM requests", ANSWERS["replay of pools"])
    for argv in (["sql", "pools", asked[0], "--format", "csv"], [*asked[1], "--format", "csv"]):
        for raw, shown in (([], "'=1+1"), (["--raw"], "=1+1")):
            assert main([*argv, *raw]) == 0
            cells = {row.split(",")[0] for row in capsys.readouterr().out.splitlines()}
            assert shown in cells
            assert len({"=1+1", "'=1+1"} & cells) == 1


def test_an_error_shows_names_as_escapes(
    asked_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(asked_in)
    for argv, code in ((["replay", "no\x1b[31m\x07.jsonl"], 1), (["replay", "log.jsonl", "--no\x1b[2J"], 2)):
        assert main(argv) == code
        error = capsys.readouterr().err
        assert error.startswith("kvcap: error: ")
        assert all(line.isprintable() for line in error.splitlines())
        assert "\\x1b" in error


def test_one_page_of_html_shows_every_cell_of_the_table(
    asked_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(asked_in)
    for argv in ANSWERS.values():
        if argv[0] == "formats" or "--list" in argv:
            continue
        assert main(argv) == 0
        numbers = re.findall(r"(?<!\S)\d[\d,.]*(?!\S)", capsys.readouterr().out)
        assert main([*argv, "--format", "html"]) == 0
        page = re.sub(r"<[^>]*>", " ", capsys.readouterr().out)
        assert set(numbers) <= set(page.split())

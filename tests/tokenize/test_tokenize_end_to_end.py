"""From a log to the answer: in two steps and in one, and with another number of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from shared_data import shared_path

from kvcap.cli.main import main

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

SYSTEM = {"role": "system", "content": "You are a helpful assistant. Book, modify or cancel. " * 8}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Conversations turn by turn, completions with several prompts, and what is not text."""
    lines = []
    for number in range(40):
        session, turn = number % 7, number // 7
        messages = [SYSTEM]
        for past in range(turn + 1):
            messages.append(
                {"role": "user", "content": f"Question {past} of {session}: the flight is delayed"}
            )
            messages.append({"role": "assistant", "content": f"Answer {past}"})
        lines.append({"model": "m", "messages": messages[:-1]})
    lines.append({"model": "m", "prompt": ["Book a seat", "Book a seat for the user"]})
    lines.append({"model": "m", "prompt": [list(range(50)), list(range(60))]})
    lines.append({"model": "m", "input": "Cancel", "instructions": SYSTEM["content"]})
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--quiet"]) == 0
    return capsys.readouterr().out


# Lines of token ids say nothing of these.
OF_THE_LOG = ("model", "namespace", "session_id")
REPLAY = ("--block-size", "16", "--kv-bytes-per-token", "61505", "--format", "csv")


def compare(
    log: Path, tokenizer_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *reading: str
) -> None:
    model = ("--tokenizer", str(tokenizer_dir))
    lines, trace = str(tmp_path / "ids.jsonl"), str(tmp_path / "ids.parquet")
    output(capsys, "tokenize", str(log), *model, "--tokenize-workers", "1", "-o", lines, *reading)
    output(capsys, "tokenize", str(log), *model, "-o", trace, *reading)
    runs = {"one": (str(log), *model, *reading), "lines": (lines,), "trace": (trace,)}
    answers = {
        name: output(capsys, "replay", *given, *REPLAY, "--out", str(tmp_path / name))
        for name, given in runs.items()
    }
    assert answers["one"] == answers["lines"] == answers["trace"]
    assert answers["one"].count("\n") > 3
    for table in ("requests", "reuse_runs", "curve"):
        first, *others = (pq.read_table(tmp_path / name / f"{table}.parquet") for name in runs)
        columns = [name for name in first.column_names if name not in OF_THE_LOG]
        assert all(other.select(columns).equals(first.select(columns)) for other in others), table


def test_tokenize_then_replay_is_replay(
    log: Path, tokenizer_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(log, tokenizer_dir, tmp_path, capsys)


def test_tokenize_then_replay_is_replay_on_tau_bench(
    tokenizer_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = shared_path("traces/tau_bench_airline_openai.jsonl.gz")
    compare(log, tokenizer_dir, tmp_path, capsys, "--max-requests", "150")


def test_a_bad_line_is_named(log: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"model": "m", "messages": [{"role": "user", "content": 3}]}) + "\n")
    for command in ("tokenize", "replay"):
        assert main([command, str(log), "--tokenizer", str(tokenizer_dir)]) == 1
        assert f"{log}:44: messages[0].content is 3" in capsys.readouterr().err
        assert main([command, str(log), "--tokenizer", str(tokenizer_dir), "--skip-bad", "1"]) == 0
        capsys.readouterr()

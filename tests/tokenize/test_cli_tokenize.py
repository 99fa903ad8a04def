from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kvcap.cli.main import main
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.prompts import ChatPrompt, PromptSource

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TURNS = ["Cancel the flight", "Book a seat", "naïve café"]


@pytest.fixture
def log(text_trace: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand in for the reader: bodies come from this list."""
    bodies: list[Any] = [{"messages": [{"role": "user", "content": turn}]} for turn in TURNS]
    monkeypatch.setattr("kvcap.formats.open_trace", lambda paths, options: text_trace(bodies))
    return bodies


def expected(directory: Path) -> list[list[int]]:
    backend = create_backend(TokenizeOptions(tokenizer=str(directory)))
    bodies = [{"messages": [{"role": "user", "content": turn}]} for turn in TURNS]
    return [backend.encode(ChatPrompt(PromptSource("", 0), body)).tolist() for body in bodies]


def test_each_line_is_one_array_of_ids(
    log: list[Any], tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenize", "log.jsonl", "--tokenizer", str(tokenizer_dir)]) == 0
    captured = capsys.readouterr()
    ids = [json.loads(line) for line in captured.out.splitlines()]
    assert ids == expected(tokenizer_dir)
    assert "read as openai: 3 records, 3 requests" in captured.err
    assert f"{sum(map(len, ids))} tokens in " in captured.err


def test_a_file_and_a_trace_hold_the_same_ids(log: list[Any], tokenizer_dir: Path, tmp_path: Path) -> None:
    lines, trace = tmp_path / "ids.jsonl", tmp_path / "ids.parquet"
    for path, workers in ((lines, "1"), (trace, "4")):
        arguments = ["tokenize", "log.jsonl", "--tokenizer", str(tokenizer_dir), "-o", str(path), "--quiet"]
        assert main([*arguments, "--tokenize-workers", workers]) == 0
    ids = [json.loads(line) for line in lines.read_text().splitlines()]
    assert ids == pq.read_table(trace).column("token_ids").to_pylist() == expected(tokenizer_dir)
    provenance = json.loads(pq.read_metadata(trace).metadata[b"kvcap.provenance"])
    assert provenance["tokenize_options"]["tokenizer"] == str(tokenizer_dir)
    assert provenance["report"]["requests"] == 3


def test_an_error_leaves_no_file(
    log: list[Any], tokenizer_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append({"messages": []})
    for name in ("ids.jsonl", "ids.parquet"):
        arguments = ["tokenize", "log.jsonl", "--tokenizer", str(tokenizer_dir), "-o", str(tmp_path / name)]
        assert main(arguments) == 1
        assert "kvcap: error: log.jsonl:40: messages is an empty list" in capsys.readouterr().err
        assert main([*arguments, "--skip-bad", "1"]) == 0
        assert "left out: 1 bad records" in capsys.readouterr().err
        assert main(arguments) == 2
        assert "exists" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.jsonl", "ids.parquet"]


def test_a_tokenizer_is_asked_for(log: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "log.jsonl"]) == 2
    assert "the huggingface backend needs --tokenizer" in capsys.readouterr().err

"""Cases from public reports about logs of text come out right, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_path

from kvcap.cli.main import main


def run(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, str, str]:
    """Run a report's command inside its folder; return exit code, output and errors."""
    folder = shared_path(f"cases/reports/{name}")
    monkeypatch.chdir(folder)
    code = main([*(folder / "cmd").read_text().split(), *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answer(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    code, out, err = run(name, capsys, monkeypatch, "--format", "json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("05-litellm-redacted", "was replaced by the logger"),
        ("06-litellm-truncated", "was cut by LiteLLM"),
    ],
)
def test_a_log_whose_prompts_are_gone_is_refused(
    name: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(name, capsys, monkeypatch)
    assert (code, err.count("\n")) == (1, 1)
    assert message in err


def test_an_anthropic_system_prompt_is_the_first_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer("09-anthropic-system", capsys, monkeypatch)
    assert found["run"]["input_tokens"] == 3837
    assert (found["run"]["blocks"], found["run"]["distinct_blocks"]) == (237, 79)
    assert found["together"]["totals"]["ceiling_blocks"] == 158


def test_calls_of_the_messages_api_through_litellm_are_requests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer("08-litellm-anthropic-messages", capsys, monkeypatch)["run"]["requests"] == 6


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("10-otel-parallel-tool-results", ("rainy 11", "sunny 22")),
        ("12-langfuse-input-tool-calls", ("<tool_call>f<k>1</tool_call>",)),
    ],
)
def test_every_part_of_a_conversation_is_in_the_prompt(
    name: str,
    texts: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    path = tmp_path / "tokens.parquet"
    code, _, err = run(name, capsys, monkeypatch, "-o", str(path))
    assert code == 0, err
    ids = pq.read_table(path)["token_ids"][0].as_py()
    tokenizer = Tokenizer.from_file(str(shared_path("cases/tok/tokenizer.json")))
    prompt = tokenizer.decode(ids, skip_special_tokens=False)
    assert all(text in prompt for text in texts)


@pytest.mark.parametrize(
    ("name", "blocks", "ceiling"),
    [
        ("23-one-line-json-array", 4, 2),
        ("27-parquet-json-string", 4, 2),
        ("28-csv-hash-ids", 4, 2),
        ("30-prompt-of-ids-needs-no-tokenizer", 8, 4),
    ],
)
def test_ids_are_read_in_every_container_and_need_no_tokenizer(
    name: str, blocks: int, ceiling: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer(name, capsys, monkeypatch)
    assert (found["run"]["requests"], found["run"]["blocks"]) == (2, blocks)
    assert found["together"]["totals"]["ceiling_blocks"] == ceiling

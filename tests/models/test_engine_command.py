"""``kvcap models --engine``: groups, blocks, and what the engine prints, as text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcap.cli import main
from kvcap.models import catalog


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(["models", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_vllm_lines_stand_as_the_engine_prints_them(run: Any) -> None:
    options = ("--kv-precision", "fp8", "--memory", "5.98GiB", "--max-model-len", "131072")
    out = run("qwen3.6-35b-a3b", "--engine", "vllm", *options)[1].splitlines()
    assert out[-2:] == [
        "GPU KV cache size: 567,978 tokens",
        "Maximum concurrency for 131,072 tokens per request: 4.33x",
    ]
    assert "5.98 GiB: 299 blocks, one of them held back" in out
    assert any(line.split() == ["full", "layers", "full", "10", "2,096", "21,463,040", "63"] for line in out)


def test_sglang_lines_name_all_pools(run: Any) -> None:
    out = run("mimo-v2.5", "--engine", "sglang", "--tp", "4", "--memory", "20GiB", "--dp", "2")[1]
    assert out.splitlines()[-3:] == [
        "20 GiB: max_total_num_tokens=469950",
        "window pool: 375,960 tokens",
        "note: each of 2 engines (dp) has pools like these",
    ]
    assert (
        "states: 186 of 24.56 MiB"
        in run("qwen3.5-9b", "--engine", "sglang", "--tp", "2", "--memory", "9.48GiB")[1]
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("model", catalog(), ids=lambda model: model.id)
def test_every_model_of_the_catalog_has_pools(run: Any, model: Any, engine: str) -> None:
    code, out, _ = run(model.id, "--engine", engine, "--memory", "100GiB", "--tp", "8", "--format", "json")
    answer = json.loads(out)
    assert code == 0
    assert answer["engine"] == engine
    assert answer["options"]["layout"] == engine
    assert answer["printed_tokens"] > 100_000
    assert answer["block_bytes"] * answer["pool_blocks"] <= answer["memory_bytes"] == 100 << 30
    assert {group["kind"] for group in answer["groups"]} <= {"full", "window", "chunked", "state", "ring"}
    if engine == "vllm":
        widest = max(group["group_bytes"] for group in answer["groups"])
        assert answer["block_bytes"] == widest
        assert answer["request_blocks"] == sum(group["request_blocks"] for group in answer["groups"])
        expected = int(answer["pool_blocks"] / answer["request_blocks"] * answer["max_model_len"])
        assert answer["printed_tokens"] == expected


def test_without_memory_the_figures_that_need_it_are_null(run: Any) -> None:
    answer = json.loads(run("gemma-4-31b", "--engine", "vllm", "--format", "json")[1])
    assert (answer["pool_blocks"], answer["printed_tokens"], answer["max_concurrency"]) == (None,) * 3
    assert answer["block_bytes"] == 10 * 32 * 8192
    assert "with --memory" in run("gemma-4-31b", "--engine", "sglang")[1]


def test_a_pool_too_small_for_one_request_is_said_to_be(run: Any) -> None:
    few, enough = (
        run("qwen3-32b", "--engine", "vllm", "--max-model-len", "16384", "--memory", memory)[1]
        for memory in ("4GiB", "5GiB")
    )
    assert few.splitlines()[-1] == "too few for one request of 16,384 tokens: vLLM does not start"
    assert "does not start" not in enough


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("qwen3-32b", "--memory", "1GiB"), "--memory needs --engine vllm or sglang"),
        (("qwen3-32b", "--engine", "vllm", "--memory", "5blocks"), "expected bytes with a unit"),
        (
            ("qwen3-32b", "--engine", "sglang", "--swa-full-tokens-ratio", "x"),
            "--swa-full-tokens-ratio is 'x'",
        ),
        (("mimo-v2.5", "--engine", "vllm", "--tp", "2", "--dcp", "2"), "expected 1"),
    ],
)
def test_wrong_use_is_one_line(run: Any, argv: tuple[str, ...], message: str) -> None:
    code, out, err = run(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_context_that_no_one_knows_is_asked_for(run: Any, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 512,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    code, _, err = run(str(path), "--engine", "vllm")
    assert code == 2
    assert "is unknown, expected --max-model-len" in err
    assert run(str(path), "--engine", "vllm", "--max-model-len", "4096")[0] == 0


def test_start_up_lines_are_held_against_the_pools(run: Any, tmp_path: Path) -> None:
    lines = (
        "Available KV cache memory: 77.53 GiB\nGPU KV cache size: 1,513,358 tokens\n"
        "Maximum concurrency for 131,072 tokens per request: 11.55x\n"
    )
    log = tmp_path / "server.log"
    log.write_text(f"INFO starting\n{lines}INFO ready\n")
    for given in (lines, str(log)):
        code, out, _ = run("deepseek-v4-flash", "--tp", "8", "--calibrate", given)
        assert code == 0
        assert out.splitlines()[-2:] == [
            "the engine's lines: 83,062 blocks",
            "the engine's lines: a block of 1,002,229.70 B, computed 1,002,240 B "
            "(the same to the digits printed)",
        ]
    answer = json.loads(run("deepseek-v4-flash", "--calibrate", lines, "--format", "json")[1])
    assert answer["calibration"]["pool_blocks"] == 83_062
    assert answer["calibration"]["measured"][0]["agrees"] is True
    assert run("--calibrate", lines)[2].startswith("kvcap: error: --calibrate needs a MODEL")

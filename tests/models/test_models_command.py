"""``kvcap models`` on the command line."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models_configs import CONFIGS

from kvcap.cli import main
from kvcap.cli.options import add_model_options, model_bytes_options
from kvcap.models import LAYOUTS, SCOPES, SPARSE_BACKENDS, ModelBytesOptions, catalog


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(["models", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_list_is_aligned_in_a_pipe(run: Any) -> None:
    code, out, err = run()
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", len(catalog()) + 1)
    assert lines[0].split() == ["id", "name", "family", "attention", "context", "facts", "read"]
    attention = lines[0].index("attention")
    assert all(line[attention - 1] == " " and line[attention] != " " for line in lines)
    assert len({len(line) for line in lines}) == 1


def test_the_list_as_json_has_the_facts(run: Any) -> None:
    models = json.loads(run("--format", "json")[1])
    assert [model["id"] for model in models] == [model.id for model in catalog()]
    glm = next(model for model in models if model["id"] == "glm-5.2")
    assert (glm["kind"], glm["facts"]["indexer_layers"]) == ("dsa_mla", 21)


def test_a_model_that_was_not_read_is_marked_in_every_form(run: Any) -> None:
    listed = {line.split()[0]: line.split()[-1] for line in run()[1].splitlines()[1:]}
    assert {name for name, read in listed.items() if read == "no"} == {m.id for m in catalog() if m.basis}
    assert listed["glm-5.2"] == "2026-06-17"
    shown = run("step-3.5-flash")[1]
    assert "; facts not read, to be checked against https://huggingface.co/stepfun-ai/" in shown
    assert "note: step-3.5-flash: its config.json was not read; its facts rest on copies" in shown
    assert "note: approximate: " in shown
    model = json.loads(run("step-3.5-flash", "--format", "json")[1])["model"]
    assert model["retrieved"] is None
    assert model["basis"].startswith("copies of the config of Step 3.7")


def test_a_model_shows_every_term_and_the_gap_between_layouts(run: Any) -> None:
    argv = ("glm-5.2", "--tokens", "12035", "--kv-precision", "fp8", "--indexer-precision", "fp4")
    code, out, err = run(*argv)
    assert (code, err) == (0, "")
    words = [line.split() for line in out.splitlines()]
    assert "GLM-5.2: 46,272 B/token (logical bytes, KV fp8_int8, indexer fp4_int4" in out
    assert [
        "latents",
        "kv",
        "every",
        "token",
        "(512",
        "+",
        "64)",
        "x",
        "1",
        "B",
        "78",
        "576",
        "44,928",
    ] in words
    assert [
        "index",
        "keys",
        "indexer",
        "every",
        "token",
        "128",
        "x",
        "0.5",
        "B",
        "21",
        "64",
        "1,344",
    ] in words
    assert ["logical", "12,035", "46,272", "531.09", "MiB", "1.000"] in words
    assert ["sglang", "12,035", "53,940", "619.09", "MiB", "1.166"] in words
    assert ["vllm", "12,035", "53,940", "619.09", "MiB", "1.166"] in words


def test_a_hybrid_shows_windows_and_states_apart_and_several_lengths(run: Any) -> None:
    out = run("inkling")[1]
    assert "45,056 B/token + 450,560 B/token up to 512 tokens + 6.06 MiB per resumable state" in out
    assert "the last 512 tokens" in out
    assert "once a resumable state, not counted" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("logical ")] == [
        "1,024",
        "8,192",
        "65,536",
    ]


def test_json_has_exact_numbers_terms_and_the_layouts_refused(run: Any) -> None:
    answer = json.loads(run("deepseek-v4-pro", "--tokens", "12035", "--format", "json")[1])
    assert answer["totals"][0] == {
        "layout": "logical",
        "tokens": 12035,
        "bytes_per_token": 126486528 / 12035,
        "total_bytes": 126486528,
    }
    assert answer["refused_layouts"] == {}
    refused = json.loads(
        run("qwen3-32b", "--kv-precision", "mxfp8", "--layout", "sglang", "--format", "json")[1]
    )
    assert set(refused["refused_layouts"]) == {"logical", "vllm"}
    assert answer["linear"] is False
    assert [term["name"] for term in answer["terms"]] == [
        "1:4 latents",
        "1:4 index keys",
        "1:128 latents",
        "windows of all layers",
    ]


def test_a_config_file_is_taken_in_place_of_a_name(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["gemma-4-e2b"]))
    answer = json.loads(run(str(path), "--tokens", "1024", "--format", "json")[1])
    assert answer["totals"][0]["total_bytes"] == 12582912


def test_the_answer_goes_to_a_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    assert run("llama-3.1-8b", "-o", str(path))[:2] == (0, "")
    assert "131,072 B/token" in path.read_text()
    assert run("llama-3.1-8b", "-o", str(path))[0] == 2


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("glm52",), 1, "did you mean glm-5.2"),
        (("glm-5.2", "--kv-precision", "fp7"), 2, "kv precision is 'fp7', expected bf16_fp16"),
        (("qwen3-32b", "--tp", "3"), 2, "tensor parallelism is 3 for 8 KV heads, expected one of 1, 2, 4, 8"),
        (("qwen3-32b", "--tp", "0"), 2, "is '0', expected a whole number from 1"),
        (("qwen3-32b", "--layout", "vllm", "--kv-precision", "mxfp8"), 2, "expected bf16_fp16 or fp8_int8"),
        (("gemma-4-31b", "--assume", "gqa"), 2, "expected a config.json with it"),
        (("glm-5.2", "--models-file", "no-such.json"), 1, "no-such.json: No such file"),
    ],
)
def test_errors_are_one_line_on_stderr(run: Any, argv: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = run(*argv)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("kvcap: error: ")
    assert message in err


def test_model_options_have_the_defaults_and_choices_of_the_library() -> None:
    parser = argparse.ArgumentParser()
    add_model_options(parser)
    args = parser.parse_args([])
    assert model_bytes_options(args) == ModelBytesOptions()
    assert (args.model, args.calibrate) == (None, None)
    choices = {action.dest: action.choices for action in parser._actions if action.choices}
    assert choices == {
        "layout": list(LAYOUTS),
        "scope": list(SCOPES),
        "sparse_backend": list(SPARSE_BACKENDS),
    }
    line = (
        "--model glm-5.2 --kv-precision fp8_int8 --indexer-precision fp4_int4 --layout sglang --tp 8 --pp 2 "
        "--dp-attention 4 --scope replica --include-draft-kv-cache --include-state --state-precision fp32 "
        "--dcp 2 --sparse-backend trtllm --kv-unquantized-layers 3 --num-speculative-tokens 5 "
        "--engine-version 0.5.22"
    )
    args = parser.parse_args(line.split())
    assert model_bytes_options(args) == ModelBytesOptions(
        kv_precision="fp8_int8",
        indexer_precision="fp4_int4",
        state_precision="fp32",
        include_draft_kv_cache=True,
        include_state=True,
        layout="sglang",
        tp=8,
        pp=2,
        dp_attention=4,
        scope="replica",
        dcp=2,
        sparse_backend="trtllm",
        unquantized_layers=3,
        num_speculative_tokens=5,
        engine_version="0.5.22",
    )


@pytest.mark.parametrize(
    ("engine", "given", "layout"),
    [
        (None, [], "logical"),
        ("vllm", [], "vllm"),
        ("sglang", [], "sglang"),
        ("lmcache", [], "logical"),
        ("vllm", ["--layout", "logical"], "logical"),
    ],
)
def test_an_engine_takes_its_own_layout_unless_one_is_given(
    engine: str | None, given: list[str], layout: str
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine")
    add_model_options(parser)
    args = parser.parse_args([*given, *([] if engine is None else ["--engine", engine])])
    assert model_bytes_options(args).layout == layout


def test_models_imports_nothing_heavy() -> None:
    script = (
        "import sys, kvcap.cli.model_layout\n"
        "heavy = {'numba', 'polars', 'duckdb', 'pyarrow', 'numpy', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

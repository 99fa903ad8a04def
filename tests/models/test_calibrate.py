"""Bytes per token from start-up lines, as engines print them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcap.errors import UsageError
from kvcap.models import (
    Calibration,
    ModelBytesOptions,
    calibrate,
    calibrated,
    calibration,
    model_bytes,
    read_start_up,
    resolve_model,
)
from kvcap.models.pools import VllmOptions

GIB = 1024**3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "GPU KV cache size: 1,234,560 tokens ... 61.23 GiB",
            Fraction("61.23") * GIB / 1_234_560,
        ),
        (
            "INFO [gpu_worker.py:359] Available KV cache memory: 52.36 GiB\n"
            "INFO [kv_cache_utils.py:1286] GPU KV cache size: 686,320 tokens\n"
            "INFO Maximum concurrency for 100,000 tokens per request: 6.86x",
            Fraction("52.36") * GIB / 686_320,
        ),
        (
            "Model loading took 75.17 GiB\nAvailable KV cache memory: 24.05 GiB\n"
            "GPU KV cache size: 482,080 tokens",
            Fraction("24.05") * GIB / 482_080,
        ),
        (
            "num_gpu_blocks: 1000, block_size=16, Available KV cache memory: 2 GiB",
            Fraction(2 * GIB, 16_000),
        ),
        (
            "[2025-11-04 05:27:13 DP0 TP0] KV Cache is allocated. #tokens: 524288, KV size: 17.16 GB",
            Fraction("17.16") * GIB / 524_288,
        ),
        (
            "KV Cache is allocated. #tokens: 350257, K size: 0.21 GB, V size: 0.21 GB",
            Fraction("0.42") * GIB / 350_257,
        ),
    ],
)
def test_bytes_per_token_are_memory_over_tokens(line: str, expected: Fraction) -> None:
    assert calibrate(line) == expected


def test_the_line_of_glm_5_2_agrees_with_its_layout_to_the_digits_printed() -> None:
    # 61,464 B for each of 1,000,000 tokens are 57.24 of SGLang's GB.
    assert round(calibrate("KV Cache is allocated. #tokens: 1000000, KV size: 57.24 GB") / 61_464, 3) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "calibration line is 'hello', expected vLLM's"),
        ("GPU KV cache size: 1,000 tokens", "has 0 sizes in GiB, expected 'Available KV cache memory"),
        ("GPU KV cache size: 1,000 tokens, 3 GiB, 4 GiB", "has 2 sizes in GiB"),
        ("GPU KV cache size: 0 tokens, 3 GiB", "GPU KV cache size as 0, expected one number above 0"),
        ("GPU KV cache size: 1,000 tokens, 0 GiB", "a size of 0 GiB"),
        ("#tokens: 100", "expected SGLang's 'KV size: X GB' with it"),
        (
            "#tokens: 100, KV size: 1 GB\n#tokens: 200, KV size: 1 GB\n#tokens: 300, KV size: 1 GB",
            "#tokens as 100, 200, 300, expected one number",
        ),
        (
            "GPU KV cache size: 1,600 tokens\nGPU KV cache size: 3,200 tokens\n"
            "Available KV cache memory: 2 GiB",
            "GPU KV cache size as 1,600, 3,200, expected one number",
        ),
        ("x" * 300, r"xxx\.\.\.', expected"),
    ],
)
def test_a_line_that_is_not_understood_is_refused(line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        calibrate(line)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "(TP0) Available KV cache memory: 8.11 GiB\n(TP1) Available KV cache memory: 8.11 GiB\n"
            "GPU KV cache size: 178,880 tokens",
            Fraction("8.11") * GIB / 178_880,
        ),
        (
            "(TP0) Available KV cache memory: 8.21 GiB\n(TP1) Available KV cache memory: 8.02 GiB\n"
            "GPU KV cache size: 178,880 tokens\nGPU KV cache size: 178,880 tokens",
            Fraction("8.02") * GIB / 178_880,
        ),
        (
            "TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
            "TP1] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
            "Draft KV Cache is allocated. #tokens: 367404, K size: 0.10 GB, V size: 0.10 GB",
            Fraction("16.46") * GIB / 367_404,
        ),
    ],
)
def test_lines_of_several_ranks_count_once_and_the_least_memory_decides(
    lines: str, expected: Fraction
) -> None:
    assert calibrate(lines) == expected


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ("Available KV cache memory: 77.53 GiB\nGPU KV cache size: 1,513,358 tokens", "no multiple of 16"),
        (
            "Available KV cache memory: 5.69 GiB\nGPU KV cache size: 148,816 tokens\n"
            "Maximum concurrency for 32,768 tokens per request: 12.91x",
            "its concurrency is not that of its tokens",
        ),
        (
            "Add 6 padding layers, may waste at most 15.38% KV cache memory\n"
            "Available KV cache memory: 49.18 GiB\nGPU KV cache size: 6,969,984 tokens",
            "'Add 6 padding layers'",
        ),
        (
            "Setting attention block size to 1568 tokens to ensure\nAvailable KV cache memory: 5 GiB\n"
            "GPU KV cache size: 1,600 tokens",
            "'attention block size to 1568 tokens'",
        ),
        ("#tokens: 200, KV size: 1 GB\n#tokens: 160, KV size: 9 GB", "two pools of different tokens"),
        (
            "#tokens: 327310, K size: 2.50 GB, V size: 2.50 GB\nmax_mamba_cache_size: 186, "
            "conv_state size: 0.10GB, ssm_state size: 4.38GB",
            "Mamba Cache",
        ),
    ],
)
def test_lines_of_hybrids_are_never_taken_for_a_rate(lines: str, shown: str) -> None:
    with pytest.raises(UsageError, match="whose tokens are no rate; expected --model") as error:
        calibrate(lines)
    assert shown in str(error.value)


def test_tokens_of_blocks_of_one_are_a_rate_where_the_lines_say_so() -> None:
    lines = "block_size=1\nAvailable KV cache memory: 98.26 GiB\nGPU KV cache size: 3,002,821 tokens"
    assert round(calibrate(lines) / (61 * 576), 4) == 1


def held(name: str, lines: str, options: VllmOptions | None = None, **deployment: object) -> Calibration:
    settings = ModelBytesOptions(**deployment)  # type: ignore[arg-type]
    return calibration(resolve_model(name), settings, read_start_up(lines), options)


def test_a_hybrids_tokens_lead_to_the_blocks_of_its_pool() -> None:
    lines = (
        "Available KV cache memory: 5.98 GiB\nGPU KV cache size: 567,978 tokens, "
        "Maximum concurrency for 131,072 tokens per request: 4.33x"
    )
    found = held("qwen3.6-35b-a3b", lines, kv_precision="fp8")
    (block,) = found.measured
    assert (found.pool_blocks, block.formula_bytes, block.agrees) == (299, 21_463_040, True)
    without = lines.partition(", Maximum")[0]
    with pytest.raises(UsageError, match="or --max-model-len"):
        held("qwen3.6-35b-a3b", without, kv_precision="fp8")
    given = held("qwen3.6-35b-a3b", without, VllmOptions(max_model_len=131_072), kv_precision="fp8")
    assert given.pool_blocks == 299
    wrong = held("qwen3.6-35b-a3b", lines)
    assert not wrong.measured[0].agrees


def test_lines_of_old_releases_are_known_by_their_concurrency() -> None:
    lines = (
        "Available KV cache memory: 5.69 GiB\nGPU KV cache size: 148,816 tokens\n"
        "Maximum concurrency for 32,768 tokens per request: 12.91x"
    )
    found = held("qwen3.5-35b-a3b", lines, kv_precision="fp8")
    assert found.pool_blocks == 284
    assert found.measured[0].agrees


def test_every_pool_of_sglang_is_held_against_its_own_lines() -> None:
    windows = (
        "Use sliding window memory pool. full_layer_tokens=375360, swa_layer_tokens=300288\n"
        "#tokens: 300288, K size: 8.38 GB, V size: 5.59 GB\n#tokens: 375360, K size: 1.21 GB, V size: 0.80 GB"
    )
    found = held("mimo-v2.5", windows, tp=4)
    assert [(figure.what, figure.formula_bytes, figure.agrees) for figure in found.measured] == [
        ("a token of full attention", 5760, True),
        ("a token of windows", 49_920, True),
    ]
    states = (
        "#tokens: 327310, K size: 2.50 GB, V size: 2.50 GB\n"
        "Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, ssm_state size: 4.38GB"
    )
    assert [figure.agrees for figure in held("qwen3.5-9b", states, tp=2).measured] == [True, True]
    with pytest.raises(UsageError, match="have a state, which Qwen3-32B has not"):
        held("qwen3-32b", states)


def test_bytes_are_scaled_where_the_lines_measure_others_and_only_noted_where_they_agree() -> None:
    model = resolve_model("qwen3-235b-a22b")
    deployment = ModelBytesOptions(tp=4, layout="vllm")
    cost = model_bytes(model, deployment)
    off = "Available KV cache memory: 8.11 GiB\nGPU KV cache size: 178,880 tokens"
    scaled = calibrated(cost, calibration(model, deployment, read_start_up(off)))
    assert scaled.bytes_per_token(1) == Fraction("8.11") * GIB / 178_880
    assert scaled.notes[-1].endswith("+1.15% of what is computed, and all are scaled by it")
    near = "Available KV cache memory: 8.11 GiB\nGPU KV cache size: 180,928 tokens"
    same = calibrated(cost, calibration(model, deployment, read_start_up(near)))
    assert same.bytes_per_token(1) == cost.bytes_per_token(1)
    assert same.notes[-1].endswith("by the engine's lines, as computed")

"""Bytes per token from start-up lines, as engines print them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcap.errors import UsageError
from kvcap.models import calibrate

GIB = 1024**3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "GPU KV cache size: 1,234,567 tokens ... 61.23 GiB",
            Fraction("61.23") * GIB / 1_234_567,
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
            "#tokens: 100, KV size: 1 GB\n#tokens: 200, KV size: 1 GB",
            "#tokens as 100, 200, expected one number",
        ),
        ("x" * 300, r"xxx\.\.\.', expected"),
    ],
)
def test_a_line_that_is_not_understood_is_refused(line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        calibrate(line)

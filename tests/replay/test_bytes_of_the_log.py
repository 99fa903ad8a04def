"""Bytes per token that a log itself tells are taken where no option says them, and the answer says so."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from reading import write_log

import kvcap

LOOKUP = {"timestamp": 1.5, "model_name": "m", "chunk_size": 256, "seq_len": 256, "chunk_hashes": ["0xa"]}
VLLM = (
    "INFO 07-31 10:00:00 [worker.py:1] Available KV cache memory: 47.40 GiB",
    "INFO 07-31 10:00:01 [kv.py:2] GPU KV cache size: 1,000,000 tokens",
    "INFO 07-31 10:00:02 [kv.py:3] Maximum concurrency for 131,072 tokens per request: 7.63x",
)
REQUEST = (
    "INFO 07-31 10:01:00 [logger.py:1] Received request a: prompt: 'x', params: P(), "
    "prompt_token_ids: [1, 2, 3], prompt_embeds shape: None, lora_request: None."
)


def replayed(path: Path, **options: Any) -> tuple[Fraction | None, str]:
    with kvcap.replay(str(path), kvcap.ReplayOptions.of(**options)) as results:
        found = results.run.kv_bytes_per_token
        return None if found is None else Fraction(found), "; ".join(results.run.reading.notices)


@pytest.mark.parametrize(
    ("shapes", "kinds", "expected"),
    [
        ([[32, 256, 128]], ["float8_e4m3fn"], 4096),
        ([[2, 4, 256, 64]], ["torch.bfloat16"], 1024),
        ([[4, 256], [4, 256, 8]], ["float32", "uint8"], 16 + 32),
        ([[3, 5]], ["float16"], Fraction(30, 256)),
    ],
)
def test_shapes_of_chunks_tell_the_bytes_of_a_token(
    tmp_path: Path, shapes: Any, kinds: Any, expected: Any
) -> None:
    path = write_log(tmp_path / "log", json.dumps({**LOOKUP, "shapes": shapes, "dtypes": kinds}))
    found, notices = replayed(path)
    assert found == expected
    assert "as shapes and dtypes of the log's own records say" in notices
    assert replayed(path, kv_bytes_per_token=Fraction(7))[0] == 7


@pytest.mark.parametrize(
    ("shapes", "kinds"),
    [([[0, 2]], ["float16"]), ([[2]], ["mystery"]), ([[2], [2]], ["float16"]), ("2", "float16"), ([2], [2])],
)
def test_shapes_that_do_not_say_it_say_nothing(tmp_path: Path, shapes: Any, kinds: Any) -> None:
    path = write_log(tmp_path / "log", json.dumps({**LOOKUP, "shapes": shapes, "dtypes": kinds}))
    assert replayed(path)[0] is None


def test_records_that_differ_are_told_of(tmp_path: Path) -> None:
    kinds = [{"shapes": [[size, 256]], "dtypes": ["uint8"]} for size in (8, 16)]
    path = write_log(tmp_path / "log", *(json.dumps({**LOOKUP, **kind}) for kind in kinds))
    found, notices = replayed(path)
    assert found == 8
    assert "different bytes per token" in notices


def test_start_up_lines_inside_a_log_of_vllm_tell_it(tmp_path: Path) -> None:
    found, notices = replayed(write_log(tmp_path / "log", *VLLM, REQUEST))
    assert found is not None
    assert abs(found / (Fraction("47.40") * 2**30 / 1_000_000) - 1) < Fraction(1, 1000)
    assert "start-up lines inside the log" in notices


def test_start_up_lines_that_give_no_rate_are_told_of(tmp_path: Path) -> None:
    found, notices = replayed(write_log(tmp_path / "log", VLLM[0], REQUEST))
    assert found is None
    assert "give no bytes per token" in notices

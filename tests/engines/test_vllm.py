"""vLLM's own cache manager against predictions, where ``KVCAP_VLLM_PYTHON`` names a Python that has vLLM."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def vllm_python() -> str:
    python = os.environ.get("KVCAP_VLLM_PYTHON")
    if not python:
        pytest.skip("KVCAP_VLLM_PYTHON names no Python with vLLM")
    return python


@pytest.fixture
def check_vllm() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_vllm", Path(__file__).with_name("check_vllm.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("trace", "block_size", "capacities"),
    [("chat.token_ids.jsonl.gz", 16, [300, 1000, 5000]), ("agent.hash_ids.jsonl.gz", 64, [1500, 3000])],
)
def test_sample_traces_hit_as_predicted(
    vllm_python: str, check_vllm: ModuleType, trace: str, block_size: int, capacities: list[int]
) -> None:
    _, comparisons = check_vllm.compare(
        str(ROOT / "sample_traces" / trace),
        capacities,
        block_size=block_size,
        max_requests=200,
        vllm_python=vllm_python,
    )
    assert len(comparisons) == len(capacities)
    for comparison in comparisons:
        assert comparison.vllm.sum() > 0
        assert comparison.n_differing == 0


def test_turns_that_repeat_answers_and_prompts_of_whole_blocks_hit_as_predicted(
    vllm_python: str, check_vllm: ModuleType, tmp_path: Path
) -> None:
    draw = random.Random(7)
    contexts: list[list[int]] = []
    trace = tmp_path / "turns.jsonl"
    with trace.open("w") as lines:
        for _ in range(400):
            context = draw.choice(contexts[-9:]) if contexts and draw.random() < 0.7 else []
            prompt = [*context, *(draw.randrange(999) for _ in range(draw.randrange(60)))] or [0]
            if draw.random() < 0.3:
                prompt = prompt[: len(prompt) // 16 * 16] or prompt
            output = [draw.randrange(999) for _ in range(draw.randrange(60))]
            contexts.append(prompt + output)
            lines.write(json.dumps({"token_ids": prompt, "output_ids": output}) + "\n")
    _, comparisons = check_vllm.compare(str(trace), [6, 40, 100, 300], vllm_python=vllm_python)
    _, without = check_vllm.compare(str(trace), [300], output_blocks=False, vllm_python=vllm_python)
    assert all(comparison.n_differing == 0 for comparison in [*comparisons, *without])
    assert comparisons[-1].vllm.sum() > without[0].vllm.sum()

"""vLLM itself, on a CPU with a tiny model of random weights, loads the plugin and exports what it counts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_process import ROOT

from kvcap.blocks import BlockOptions
from kvcap.online import Estimator, EstimatorOptions

pytestmark = pytest.mark.service

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPTS = [[7] * 80, [7] * 40 + [8] * 40, [9] * 16, [7] * 80]


@contextmanager
def engine(model: Path, plugins: Path, port: int, log: Path) -> Iterator[str]:
    """A vLLM server that finds the plugin by its entry point, as an installed kvcap has it."""
    url = f"http://127.0.0.1:{port}"
    flags = ["--load-format", "dummy", "--enforce-eager", "--max-model-len", "256", "--dtype", "float32"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{plugins}{os.pathsep}{ROOT}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "KVCAP_KV_BYTES_PER_TOKEN": "1000",
        "KVCAP_BLOCK_SIZE": "16",
        "KVCAP_CAPACITIES": "2blocks,1000blocks",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
                *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), *flags),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Away from the terminal, which would stop it.
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 900
            while not _answers(f"{url}/health"):
                assert process.poll() is None, log.read_text()[-5000:]
                assert time.monotonic() < deadline, log.read_text()[-5000:]
                time.sleep(1)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=120)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def complete(url: str, prompt: list[int]) -> Any:
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_the_engine_s_own_metrics_say_what_its_prompts_need(
    tmp_path: Path, word_tokenizer: Path, free_port: int
) -> None:
    if find_spec("vllm") is None:
        pytest.skip("needs vLLM")
    (word_tokenizer / "config.json").write_text(json.dumps(CONFIG))
    group, entry = re.search(
        r'\[project.entry-points."(vllm\.\w+)"\]\n(kvcap = ".*")', (ROOT / "pyproject.toml").read_text()
    ).groups()  # type: ignore[union-attr]
    installed = tmp_path / "plugins" / "kvcap_entry_point-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kvcap-entry-point\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")
    with engine(word_tokenizer, tmp_path / "plugins", free_port, tmp_path / "engine.log") as url:
        for prompt in PROMPTS:
            assert complete(url, prompt)["usage"]["prompt_tokens"] == len(prompt)
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    found = {
        (sample.name, sample.labels.get("capacity_bytes")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("kvcap_") and "quantile" not in sample.labels
    }
    assert any(line.startswith("vllm:") for line in text.splitlines()), "beside the engine's own"
    estimator = Estimator(EstimatorOptions((2, 1000), 1000, blocks=BlockOptions(16)))
    for prompt in PROMPTS:
        estimator.observe(prompt)
    totals = estimator.snapshot().totals
    assert totals.ceiling_blocks > 0
    assert found["kvcap_block_accesses_total", None] == totals.blocks
    assert found["kvcap_reusable_block_accesses_total", None] == totals.ceiling_blocks
    for row, size in zip(totals.capacities, ("32000", "16000000"), strict=True):
        assert found["kvcap_prefix_hit_blocks_total", size] == row.hit_blocks

"""Memory left for the cache: facts of GPUs and weights, formulas, and lines that state their terms."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from shared_data import shared_path

from kvcap.cli import main
from kvcap.errors import ModelError, UsageError
from kvcap.models import ModelBytesOptions, catalog
from kvcap.models.hardware import default_sparse_backend, find_gpu, find_weights, gpus, weights
from kvcap.models.memory import MemoryOptions, sglang_fraction, sglang_memory, vllm_memory

GIB = 1 << 30
TOLERANCE_GIB = 3.5
"""How far typical terms were from what engines measured."""

DEVICES = {"H100": "h100", "MI355X": "mi355x", "GH200 96GB": "gh200-96gb"}
"""Those with lines that state weights and utilization, but for two that share memory with the host."""

EXPERTS = ("Kimi", "GLM", "MiMo", "deepseek")
UNLIKE = {3_002_821: "16 GiB beside weights and cache, unlike its five siblings"}


def test_every_device_and_weight_has_its_source() -> None:
    assert len({gpu.id for gpu in gpus()}) == len(gpus()) == 22
    for gpu in gpus():
        assert gpu.source, gpu.id
        assert gpu.usable_source, gpu.id
        assert (gpu.usable_confidence == "recalled") == gpu.usable_source.startswith("recalled"), gpu.id
        unread = "recalled" in gpu.source or "not opened" in gpu.source
        assert gpu.confidence == ("recalled" if unread else "read"), gpu.id
        assert 0.85 * gpu.memory_gb * 1e9 < gpu.usable_gib * GIB < 1.11 * gpu.memory_gb * 1e9, gpu.id
    known = {model.id for model in catalog()}
    for entry in weights():
        assert entry.source, entry.model
        assert entry.model in known
        assert entry.basis in {"measured", "checkpoint", "inferred", "estimate"}
        assert (entry.basis == "inferred") == ("model inferred" in entry.how), entry.model


def test_devices_and_weights_are_found_by_name() -> None:
    assert find_gpu("H100") == find_gpu("h100 sxm")
    with pytest.raises(ModelError, match="'h2000' is not known, expected one such as h200, h20"):
        find_gpu("h2000")
    assert find_weights("qwen3.8-27b").precision == "bf16"
    assert find_weights("qwen3.8-27b", "fp8").weights_gib == 28.56
    with pytest.raises(ModelError, match=r"known in bf16, fp8, nvfp4.*, expected --weights"):
        find_weights("qwen3.8-27b", "int3")


@pytest.mark.parametrize(
    ("gpu", "vllm", "sglang"),
    [
        ("h100", "flashmla", "flashmla"),
        ("b200", "flashinfer", "trtllm"),
        ("rtx-pro-6000", "flashmla", "trtllm"),
        ("mi355x", "trtllm", "trtllm"),
    ],
)
def test_the_device_decides_the_kernel_of_sparse_attention(gpu: str, vllm: str, sglang: str) -> None:
    assert default_sparse_backend(find_gpu(gpu), "vllm") == vllm
    assert default_sparse_backend(find_gpu(gpu), "sglang") == sglang


@pytest.mark.parametrize(("gpu", "expected"), [("h100", 0.799), ("h200", 0.886), ("b200", 0.844)])
def test_sglang_reserves_by_formula(gpu: str, expected: float) -> None:
    total = Fraction(str(find_gpu(gpu).usable_gib)) * 1024
    found = sglang_fraction(total, ModelBytesOptions(tp=8), latent=True)
    # Its own total is that of the driver, up to half a per cent above what a process sees.
    assert abs(found - Fraction(str(expected))) <= Fraction(2, 1000)


def test_sglang_formula_by_hand() -> None:
    total = Fraction(24 * 1024)
    reserved = 512 + 1.5 * 4096 + 1024 * 2 / 8 + 2 * 48 + 8 * (8 + 14 + 8 + 8 + 12)
    deployment = ModelBytesOptions(tp=2)
    assert sglang_fraction(total, deployment, latent=False) == Fraction(
        str(round(float(1 - reserved / (24 * 1024)), 3))
    )
    attention = ModelBytesOptions(tp=8, dp_attention=8)
    dense = sglang_fraction(Fraction(80 * 1024), attention, latent=True)
    wide = 512 + 1.5 * 8192 + 1024 + 2 * 512 + 512 * 8 * 4.5 + 1536
    assert float(dense) == round(1 - wide / (80 * 1024), 3)


def test_terms_add_up_and_are_overridable() -> None:
    gpu, deployment = find_gpu("h100"), ModelBytesOptions(tp=2)
    options = MemoryOptions(weights_bytes=40 * GIB, utilization=Fraction(9, 10), reserve_bytes=5 * GIB)
    found = vllm_memory(gpu, deployment, options)
    assert abs(found.left_bytes / GIB - (79.19 * 0.9 - 20 - 5)) < 1e-6
    assert not found.is_typical
    typical = vllm_memory(gpu, deployment, MemoryOptions(weights_bytes=40 * GIB, experts=True))
    assert typical.is_typical
    assert abs(typical.left_bytes / GIB - (79.19 * 0.92 - 20 - 2 - 2.8 - 0.5)) < 1e-6
    static = sglang_memory(gpu, deployment, options, latent=False)
    assert abs(static.left_bytes / GIB - (79.19 - 5 - 20)) < 1e-6
    with pytest.raises(UsageError, match="no memory is left for the cache"):
        vllm_memory(gpu, deployment, MemoryOptions(weights_bytes=400 * GIB))
    with pytest.raises(UsageError, match="memory utilization is 2, expected above 0"):
        MemoryOptions(weights_bytes=1, utilization=Fraction(2))


def test_typical_terms_are_near_what_engines_found() -> None:
    facts = json.loads(shared_path("facts/reality.json").read_text())
    off = {}
    for fact in facts:
        if not (
            fact.get("utilization") and fact.get("weights_gib") and fact["model"] and fact["gpu"] in DEVICES
        ):
            continue
        options = MemoryOptions(
            weights_bytes=int(fact["weights_gib"] * fact["tp"] * GIB),
            experts=fact["model"].startswith(EXPERTS),
            utilization=Fraction(str(fact["utilization"])),
        )
        found = vllm_memory(find_gpu(DEVICES[fact["gpu"]]), ModelBytesOptions(tp=fact["tp"]), options)
        off[fact["kv_tokens"]] = found.left_bytes / GIB - fact["kv_gib"]
    far = {tokens for tokens, gib in off.items() if abs(gib) > TOLERANCE_GIB}
    assert (far, len(off)) == (set(UNLIKE), 14)


def test_a_gpu_stands_for_the_memory_that_it_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["models", *argv])
        return (code, *capsys.readouterr())

    answer: dict[str, Any] = json.loads(
        run(
            "glm-5.2",
            "--engine",
            "vllm",
            "--gpu",
            "b200",
            "--tp",
            "8",
            "--kv-precision",
            "fp8",
            "--format",
            "json",
        )[1]
    )
    assert answer["memory_bytes"] == sum(term["size_bytes"] for term in answer["memory_terms"])
    assert answer["pool_blocks"] == answer["memory_bytes"] // answer["block_bytes"]
    assert answer["block_bytes"] == 64 * (576 * 78 + 132 * 21)
    out = run("llama-3.1-8b", "--engine", "sglang", "--gpu", "h100", "--weights", "15GiB")[1]
    assert "weights over 1 ranks" in out
    assert "left for the cache: " in out
    for argv, message in (
        (("qwen3-32b", "--gpu", "h100"), "--gpu needs --engine vllm or sglang"),
        (("qwen3-32b", "--engine", "vllm", "--gpu", "h100", "--memory", "1GiB"), "expected one of them"),
        (("qwen3-32b", "--engine", "vllm", "--reserve", "1GiB"), "--reserve needs --gpu"),
        (("gpt-oss-20b", "--engine", "vllm", "--gpu", "h1"), "GPU 'h1' is not known"),
    ):
        code, _, err = run(*argv)
        assert code in {1, 2}
        assert message in err

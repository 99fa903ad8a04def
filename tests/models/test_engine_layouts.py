"""Bytes in the memory pools of engines: each row of their published formulas, and who holds them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcap.errors import UsageError
from kvcap.models import ModelBytes, ModelBytesOptions, catalog, model_bytes, resolve_model


def cost_of(name: str, **options: object) -> ModelBytes:
    return model_bytes(resolve_model(name), ModelBytesOptions(**options))  # type: ignore[arg-type]


def per_token(name: str, **options: object) -> Fraction:
    return cost_of(name, **options).bytes_per_token(1)


def test_glm_5_2_fp8_takes_53940_bytes_a_token_in_sglang_and_46272_logically() -> None:
    sglang = cost_of("glm-5.2", kv_precision="fp8", layout="sglang")
    assert sglang.bytes_per_token(12_035) == 656 * 78 + 132 * 21 == 53_940
    assert sglang.is_linear
    logical = cost_of("glm-5.2", kv_precision="fp8_int8", indexer_precision="fp4_int4")
    assert logical.bytes_per_token(1) == 78 * 576 + 21 * 64 == 46_272


def test_the_engine_fixes_index_keys_whatever_is_asked_and_says_so() -> None:
    cost = cost_of("glm-5.2", kv_precision="fp8", indexer_precision="fp4", layout="sglang", tp=8)
    assert cost.bytes_per_token(1) == 53_940
    assert cost.indexer_precision == "fp8_int8"
    assert cost.notes == (
        "the sglang layout fixes index keys at fp8_int8",
        "fp8 rows as FlashMLA packs them; other sparse backends keep plain ones",
        "SGLang before 0.5.23 kept index keys on 57 layers that share an indexer too, as engine version "
        "0.5.22 counts",
        "latents and index keys are kept whole on each of 8 ranks",
    )


@pytest.mark.parametrize("layout", ["sglang", "vllm"])
def test_sparse_fp8_rows_are_656_bytes_for_flashmla_and_576_for_other_backends(layout: str) -> None:
    for backend, row in (("flashmla", 656), ("flashinfer", 576), ("trtllm", 576)):
        found = per_token("glm-5.2", kv_precision="fp8", layout=layout, sparse_backend=backend)
        assert found == row * 78 + 132 * 21
        assert per_token("glm-5.2", layout=layout, sparse_backend=backend) == 1152 * 78 + 132 * 21


def test_sglang_kept_index_keys_on_every_layer_before_0_5_23() -> None:
    for version, layers in (("0.5.22", 78), ("v0.5.9", 78), ("0.5.23", 21), ("0.6", 21), (None, 21)):
        found = per_token("glm-5.2", kv_precision="fp8", layout="sglang", engine_version=version)
        assert found == 656 * 78 + 132 * layers
    with pytest.raises(UsageError, match="engine version is 'newest', expected numbers"):
        ModelBytesOptions(engine_version="newest")


def test_fp32_takes_four_bytes_an_element() -> None:
    for layout in ("logical", "sglang", "vllm"):
        assert per_token("llama-3.1-8b", kv_precision="fp32", layout=layout) == 2 * per_token("llama-3.1-8b")


def test_vllm_fp4_is_nvfp4_72_bytes_for_128_elements_and_352_a_sparse_latent() -> None:
    assert per_token("qwen3-32b", kv_precision="nvfp4", layout="vllm") == 64 * 8 * 2 * 72
    found = per_token("deepseek-v3.2", kv_precision="nvfp4", layout="vllm")
    assert found == 61 * (352 + 132)
    for name, options in (("deepseek-v3", {}), ("deepseek-v3.2", {"sparse_backend": "trtllm"})):
        with pytest.raises(UsageError, match="nvfp4 rows exist for sparse attention"):
            cost_of(name, kv_precision="nvfp4", layout="vllm", **options)
    with pytest.raises(UsageError, match="keys of 192 and values of 128 elements"):
        cost_of("mimo-v2.5", kv_precision="nvfp4", layout="vllm")


def test_layers_left_unquantized_keep_16_bits_beside_a_quantized_cache() -> None:
    for layout in ("logical", "vllm"):
        found = cost_of("qwen3-32b", kv_precision="fp8", layout=layout, unquantized_layers=4)
        assert found.bytes_per_token(1) == 8 * 256 * (60 + 4 * 2)
        assert [term.name for term in found.terms] == ["keys and values", "keys and values, unquantized"]
    with pytest.raises(UsageError, match="unquantized layers are 64, expected fewer"):
        cost_of("qwen3-32b", unquantized_layers=64)


def test_ranks_of_decode_context_parallelism_split_every_token() -> None:
    cost = cost_of("kimi-k2.5", tp=8, dcp=8, layout="vllm")
    assert cost.bytes_per_token(1) == 61 * 576 * 2 / Fraction(8)
    assert cost.scope == "one of 8 ranks (tp 8, dcp 8)"
    keys = 61 * 132
    sparse = cost_of("deepseek-v3.2", tp=8, dcp=4, layout="sglang", kv_precision="fp8")
    assert sparse.bytes_per_token(1) == 61 * 656 / Fraction(4) + keys
    with pytest.raises(UsageError, match="dcp is 2 for layers with windows"):
        cost_of("mimo-v2.5", tp=8, dcp=2)
    with pytest.raises(UsageError, match="dcp is 3 of 8 ranks, expected a divisor of 8"):
        ModelBytesOptions(tp=8, dcp=3)


def test_drafting_ahead_counts_draft_layers_and_lengthens_the_convolutions_of_vllm() -> None:
    plain, drafting = (
        cost_of("qwen3.6-27b", layout="vllm", num_speculative_tokens=tokens) for tokens in (0, 2)
    )
    assert drafting.bytes_per_token(1) * 16 == plain.bytes_per_token(1) * 17
    assert drafting.state_bytes - plain.state_bytes == 48 * 2 * 10_240 * 2
    assert cost_of("qwen3.6-27b", layout="sglang", num_speculative_tokens=2).state_bytes == plain.state_bytes


def test_deepseek_v4_rows_are_584_bytes_in_engines_whatever_is_asked() -> None:
    for layout in ("sglang", "vllm"):
        cost = cost_of("deepseek-v4-flash", layout=layout, kv_precision="bf16")
        assert cost.asymptotic_bytes_per_token == Fraction(21 * (584 + 132), 4) + Fraction(20 * 584, 128)
        assert f"the {layout} layout fixes the KV cache at fp8_int8" in cost.notes


def test_vllm_keeps_index_keys_only_on_layers_that_own_an_indexer() -> None:
    assert per_token("glm-5.2", kv_precision="fp8", layout="vllm") == 656 * 78 + 132 * 21
    draft = per_token("glm-5.2", kv_precision="fp8", layout="vllm", include_draft_kv_cache=True)
    assert draft == 656 * 79 + 132 * 22


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("bf16", 8 * 256 * 64 * 2),
        ("fp8", 8 * 256 * 64),
        ("mxfp8", 8 * 256 * 64 + 8 * 256 * 64 // 32),
        ("fp4", 8 * 256 * 64 // 2 + 8 * 128 * 64 * 2 // 16 + 8 * 128 * 2),
    ],
)
def test_sglang_grouped_query_attention(precision: str, expected: int) -> None:
    assert per_token("qwen3-32b", kv_precision=precision, layout="sglang") == expected


@pytest.mark.parametrize(
    ("precision", "expected"), [("bf16", 576 * 61 * 2), ("fp8", 576 * 61), ("fp4", 288 * 61 + 36 * 61)]
)
def test_sglang_latent_attention(precision: str, expected: int) -> None:
    assert per_token("deepseek-v3", kv_precision=precision, layout="sglang") == expected


def test_sglang_sparse_latent_attention_keeps_fp8_keys_beside_16_bit_latents() -> None:
    assert per_token("deepseek-v3.2", layout="sglang") == 61 * (576 * 2 + 132)
    assert per_token("deepseek-v3.2", kv_precision="fp4", layout="sglang") == 61 * (288 + 36 + 132)


def test_sglang_minimax_keeps_16_bit_index_keys_of_the_sparse_layers() -> None:
    expected = 60 * 2 * 4 * 128 + 57 * 128 * 2
    assert per_token("minimax-m3", kv_precision="fp8", layout="sglang") == expected


def test_sglang_windows_and_states_keep_the_logical_elements() -> None:
    for name in ("gemma-4-31b", "mimo-v2.5", "inkling", "qwen3.6-27b", "kimi-k3"):
        logical, sglang = cost_of(name), cost_of(name, layout="sglang")
        assert logical.total_bytes(5000) == sglang.total_bytes(5000)
        assert logical.state_bytes == sglang.state_bytes
    dots = cost_of("dots3-note-prev", kv_precision="fp8", layout="sglang")
    assert dots.total_bytes(1000) == 1000 * 13 * (656 + 132) + 512 * 33 * 1088


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("gemma-4-31b", {"layout": "sglang", "kv_precision": "fp4"}, "expected bf16_fp16 or fp8_int8"),
        ("minimax-m3", {"layout": "sglang", "kv_precision": "fp4"}, "expected bf16_fp16 or fp8_int8"),
        ("deepseek-v3", {"layout": "sglang", "kv_precision": "mxfp8"}, "KV precision is mxfp8"),
        ("qwen3-32b", {"layout": "vllm", "kv_precision": "mxfp8"}, "KV precision is mxfp8"),
        ("qwen3-32b", {"kv_precision": "mxfp8"}, "KV precision is mxfp8 in layout logical"),
    ],
)
def test_a_layout_without_a_formula_is_refused(name: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        cost_of(name, **options)


def test_heads_are_split_over_ranks_and_repeated_beyond_their_number() -> None:
    whole = per_token("qwen3-32b")
    for tp, heads in ((1, 8), (2, 4), (8, 1), (16, 1), (24, 1)):
        assert per_token("qwen3-32b", tp=tp) == whole * heads / 8
        assert per_token("qwen3-32b", tp=tp, scope="replica") == whole * heads / 8 * tp
    with pytest.raises(
        UsageError, match="is 6 for 8 KV heads, expected one of 1, 2, 4, 8 or a multiple of 8"
    ):
        per_token("qwen3-32b", tp=6)


def test_latents_are_kept_whole_on_every_rank() -> None:
    assert per_token("deepseek-v3", tp=8) == per_token("deepseek-v3")
    assert per_token("deepseek-v3", tp=8, scope="replica") == 8 * per_token("deepseek-v3")


def test_attention_replicas_split_heads_over_their_own_ranks() -> None:
    cost = cost_of("deepseek-v3", tp=8, dp_attention=8, scope="replica")
    assert cost.bytes_per_token(1) == per_token("deepseek-v3")
    assert cost.scope == (
        "one replica, 1 ranks together (tp 8, dp attention 8); "
        "each of 8 attention replicas has a cache of its own"
    )
    assert per_token("qwen3-32b", tp=8, dp_attention=4) == per_token("qwen3-32b", tp=2)
    with pytest.raises(UsageError, match="dp attention is 3 of tp 8"):
        ModelBytesOptions(tp=8, dp_attention=3)


def test_a_rank_holds_the_layers_of_its_pipeline_stage() -> None:
    assert per_token("deepseek-v3", pp=4) == 16 * 576 * 2  # ceil(61 / 4) layers
    assert per_token("deepseek-v3", pp=4, scope="replica") == per_token("deepseek-v3")
    assert cost_of("deepseek-v3", pp=4).scope == "one of 4 ranks of the fullest pipeline stage (tp 1, pp 4)"
    hybrid = cost_of("gemma-4-31b", pp=4)
    assert [term.layers for term in hybrid.terms] == [3, 13]  # ceil(10 / 4), ceil(50 / 4)
    assert hybrid.notes == ("layers of every kind are taken as spread evenly over 4 stages",)


def test_states_are_split_by_their_heads() -> None:
    assert cost_of("qwen3.6-27b", tp=2).state_bytes * 2 == cost_of("qwen3.6-27b").state_bytes
    inkling = cost_of("inkling", tp=2)
    hidden = 66 * 3 * 2 * 6144 * 2
    assert inkling.state_bytes == (cost_of("inkling").state_bytes - hidden) / 2 + hidden


@pytest.mark.parametrize("model", catalog(), ids=lambda model: model.id)
def test_an_engine_never_takes_less_than_the_elements_at_its_own_precision(model: object) -> None:
    for layout in ("sglang", "vllm"):
        engine = model_bytes(model, ModelBytesOptions(kv_precision="fp8", layout=layout))  # type: ignore[arg-type]
        asked = ModelBytesOptions(kv_precision="fp8", indexer_precision=engine.indexer_precision)
        assert engine.total_bytes(4096) >= model_bytes(model, asked).total_bytes(4096)  # type: ignore[arg-type]

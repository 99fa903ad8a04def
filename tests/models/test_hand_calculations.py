"""Models without a public value, worked by hand term by term from the facts of their configs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcap.models import ModelBytes, ModelBytesOptions, model_bytes, resolve_model


def cost_of(name: str, **options: object) -> ModelBytes:
    return model_bytes(resolve_model(name), ModelBytesOptions(**options))  # type: ignore[arg-type]


def entries(cost: ModelBytes) -> dict[str, Fraction]:
    """Bytes of one entry in all layers, by term."""
    return {term.name: term.entry_bytes for term in cost.terms}


def test_dots3_note_preview() -> None:
    cost = cost_of("dots3-note-prev")
    assert entries(cost) == {
        "latents of full layers": 13 * (512 + 64) * 2,  # bf16
        "index keys of full layers": 13 * (128 + 4),  # fp8 and one fp32 scale, fixed by the model
        "latents of window layers": 33 * (1024 + 64) * 2,
    }
    full, index, window = 14_976, 1_716, 71_808
    assert cost.total_bytes(300) == 300 * (full + index + window)
    assert cost.total_bytes(12_035) == 12_035 * (full + index) + 512 * window
    assert cost.total_bytes(1024) == 53_858_304
    fp8 = cost_of("dots3-note-prev", kv_precision="fp8", indexer_precision="bf16")
    assert fp8.total_bytes(1024) == 1024 * (full // 2 + index) + 512 * window // 2
    assert fp8.notes == ("the model fixes index keys at fp8_int8",)


def test_deepseek_v4_1_flash() -> None:
    cost = cost_of("deepseek-v4.1-flash")
    latent = 512 // 2 + 512 // 16  # fp4, a 1-byte scale per 16
    index_key = 128 // 2 + 128 // 32  # fp4, a 1-byte scale per 32
    assert (latent, index_key) == (288, 68)
    assert entries(cost) == {
        "1:1 latents": latent,  # layer 20
        "1:1 index keys": index_key,
        "1:2 latents": 3 * latent,  # layers 2, 8, 14
        "1:2 index keys": 3 * index_key,
        "windows of all layers": 40 * (512 + 512 // 32),  # fp8, replayed
    }
    assert cost.asymptotic_bytes_per_token == 890  # 356 + 3 * 356 / 2
    assert cost.total_bytes(12_035) == 12_035 * 356 + 6_017 * 3 * 356
    counted = cost_of("deepseek-v4.1-flash", include_state=True)
    assert counted.total_bytes(12_035) - cost.total_bytes(12_035) == 128 * 40 * 528
    draft = cost_of("deepseek-v4.1-flash", include_state=True, include_draft_kv_cache=True)
    assert draft.total_bytes(12_035) - counted.total_bytes(12_035) == 128 * 3 * 528
    assert cost_of("deepseek-v4.1-flash", kv_precision="bf16").total_bytes(64) == cost.total_bytes(64)


def test_glm_5_3_flash() -> None:
    cost = cost_of("glm-5.3-flash")
    conv = 3 * 3 * 64 * 128 * 2  # three convolutions of kernel 4 over 64 heads of 128, bf16
    recurrent = 64 * 128 * 128 * 4  # fp32
    assert entries(cost) == {
        "latents of full layers": 11 * 512 * 2,  # no rotary part
        "index keys of full layers": 11 * (128 + 4),  # fp8 by default, one fp32 scale per 128
        "incomplete pool of index keys of full layers": 11 * 4 * 2 * 128 * 2,
        "KDA layers": 34 * (conv + recurrent),
    }
    assert cost.state_bytes == 34 * (147_456 + 4_194_304)
    assert cost.total_bytes(1024) == 1024 * 11_264 + 256 * 1_452
    assert cost.total_bytes(1025) == 1025 * 11_264 + 256 * 1_452 + 22_528
    fp4 = cost_of("glm-5.3-flash", indexer_precision="fp4")
    assert entries(fp4)["index keys of full layers"] == 11 * (64 + 4)  # a 1-byte scale per 32
    bf16 = cost_of("glm-5.3-flash", indexer_precision="bf16")
    assert entries(bf16)["index keys of full layers"] == 11 * 256
    draft = cost_of("glm-5.3-flash", include_draft_kv_cache=True)
    assert draft.total_bytes(1024) - cost.total_bytes(1024) == 1024 * 512 * 2 + 256 * 132
    assert draft.state_bytes == cost.state_bytes


@pytest.mark.parametrize(
    ("name", "full_layers", "window_layers", "window_heads", "hidden"),
    [("inkling", 11, 55, 16, 6144), ("inkling-small", 7, 35, 8, 4096)],
)
def test_inkling(name: str, full_layers: int, window_layers: int, window_heads: int, hidden: int) -> None:
    cost = cost_of(name)
    full, window = 8 * 2 * 128 * 2, window_heads * 2 * 128 * 2
    full_conv = 3 * (2 * 8 * 128 + 2 * hidden) * 2  # keys, values and two residual branches, bf16
    window_conv = 3 * (2 * window_heads * 128 + 2 * hidden) * 2
    assert entries(cost) == {
        "full layers": full_layers * full,
        "window layers": window_layers * window,
        "convolutions of full layers": full_layers * full_conv,
        "convolutions of window layers": window_layers * window_conv,
    }
    assert cost.total_bytes(12_035) == 12_035 * full_layers * full + 512 * window_layers * window
    assert cost.state_bytes == full_layers * full_conv + window_layers * window_conv
    draft = cost_of(name, include_draft_kv_cache=True)
    assert draft.total_bytes(600) - cost.total_bytes(600) == 600 * 2 * full + 512 * 6 * window
    assert draft.state_bytes - cost.state_bytes == 2 * full_conv + 6 * window_conv


def test_states_of_linear_layers_are_shown_and_not_counted() -> None:
    cost = cost_of("qwen3.6-27b")
    conv, recurrent = 3 * (2 * 16 * 128 + 48 * 128) * 2, 48 * 128 * 128 * 4
    assert cost.state_bytes == 48 * (conv + recurrent)
    assert cost.total_bytes(128) == 128 * 16 * 2 * 4 * 256 * 2
    assert cost_of("qwen3.6-27b", include_state=True).total_bytes(128) == (
        cost.total_bytes(128) + cost.state_bytes
    )
    bf16 = cost_of("qwen3.6-27b", state_precision="bf16")
    assert cost.state_bytes - bf16.state_bytes == 48 * recurrent // 2

    kimi = cost_of("kimi-k3")
    assert kimi.state_bytes == 69 * (3 * 3 * 96 * 128 * 2 + 96 * 128 * 128 * 4)
    assert kimi.total_bytes(1) == 24 * (512 + 64) * 2


def test_a_draft_layer_of_a_linear_hybrid_is_a_full_one() -> None:
    cost, draft = cost_of("qwen3.6-27b"), cost_of("qwen3.6-27b", include_draft_kv_cache=True)
    assert draft.bytes_per_token(1) - cost.bytes_per_token(1) == 2 * 4 * 256 * 2
    assert draft.state_bytes == cost.state_bytes

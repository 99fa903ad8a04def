"""Raw configs recognize to the same facts as the catalog; what cannot be accounted for is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from models_configs import CONFIGS

from kvcap.errors import ModelError, UsageError
from kvcap.models import KINDS, Model, ModelBytesOptions, model_bytes, resolve_model
from kvcap.models.huggingface.builders import BUILDERS

GQA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def resolve(config: object, assume: str | None = None) -> Model:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return resolve_model(str(path), assume=assume)

    return resolve


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_recognizes_to_the_facts_and_bytes_of_its_catalog_entry(name: str, read: Any) -> None:
    found, known = read(CONFIGS[name]), resolve_model(name)
    assert (found.kind, found.attention, found.max_context) == (
        known.kind,
        known.attention,
        known.max_context,
    )
    for draft in (False, True):
        options = ModelBytesOptions(include_draft_kv_cache=draft)
        for tokens in (1, 513, 12_035):
            assert model_bytes(found, options).total_bytes(tokens) == (
                model_bytes(known, options).total_bytes(tokens)
            )


def test_the_configs_cover_every_kind() -> None:
    assert {resolve_model(name).kind for name in CONFIGS} == set(KINDS) == set(BUILDERS)


def test_a_name_nobody_knows_is_recognized_by_its_fields(read: Any) -> None:
    model = read({**GQA, "model_type": "brand_new", "max_position_embeddings": 8192})
    assert (model.kind, model.family, model.max_context) == ("gqa", "brand_new", 8192)
    assert model_bytes(model).bytes_per_token(1) == 32 * 2 * 8 * 128 * 2


def test_without_kv_heads_every_head_has_its_own_and_that_is_said(read: Any) -> None:
    model = read({name: value for name, value in GQA.items() if name != "num_key_value_heads"})
    assert model_bytes(model).bytes_per_token(1) == 32 * 2 * 32 * 128 * 2
    assert "without num_key_value_heads" in model_bytes(model).notes[0]


@pytest.mark.parametrize(
    ("extra", "listed"),
    [
        ({"sliding_window": 4096}, "sliding_window"),
        ({"attention_chunk_size": 8192}, "attention_chunk_size"),
        (
            {"hybrid_override_pattern": "M-M*", "ssm_state_size": 128},
            "hybrid_override_pattern, ssm_state_size",
        ),
        ({"kv_share_every": 2, "cache_ratio": 0.5}, "kv_share_every, cache_ratio"),
        ({"index_head_dim": 128, "index_topk": 64}, "index_head_dim"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
    ],
)
def test_fields_that_are_not_understood_are_listed_and_refused(extra: Any, listed: str, read: Any) -> None:
    with pytest.raises(
        ModelError, match=f"looks like gqa, but the fields {listed.replace('*', '.')} are not"
    ):
        read({**GQA, **extra})


def test_nested_fields_that_are_not_understood_are_listed_with_their_object(read: Any) -> None:
    config = json.loads(json.dumps(CONFIGS["minimax-m3"]))
    config["text_config"]["sparse_attention_config"]["sparse_value_ratio"] = 2
    with pytest.raises(ModelError, match=r"sparse_attention_config\.sparse_value_ratio"):
        read(config)


def test_assume_takes_a_config_in_spite_of_its_fields_and_says_so(read: Any) -> None:
    config = {**GQA, "flux_ratio": 0.5, "zeta": 1}
    with pytest.raises(
        ModelError, match=r"flux_ratio, zeta are not .*\(--assume gqa takes it nevertheless\)"
    ):
        read(config)
    model = read(config, assume="gqa")
    assert model.notes == ("assumed to be gqa in spite of flux_ratio, zeta",)
    assert model_bytes(model).notes == model.notes


@pytest.mark.parametrize(
    "extra",
    [
        {"sliding_window": 4096},
        {"hybrid_override_pattern": "M-M*"},
        {"mixer_layer_types": ["a"]},
        {"kv_share_every": 2},
        {"recurrent_block_size": 4},
        {"shared_attention_layers": [1]},
    ],
)
def test_assume_is_neither_offered_nor_taken_where_fields_show_other_layers(extra: Any, read: Any) -> None:
    with pytest.raises(ModelError, match=r"\(--models-file takes the model's own facts\)"):
        read({**GQA, **extra})
    with pytest.raises(ModelError, match="may show layers that gqa has not; expected another kind"):
        read({**GQA, **extra}, assume="gqa")


def test_assume_does_not_flatten_a_pattern_of_layers(read: Any) -> None:
    with pytest.raises(ModelError, match="layers are of the kinds full, window, expected full attention"):
        read({**GQA, "layer_types": ["sliding_attention", "full_attention"] * 16}, assume="gqa")
    with pytest.raises(ModelError, match="layer_types has 'rwkv', expected attention, chunked_attention"):
        read({**GQA, "layer_types": ["rwkv", "full_attention"] * 16}, assume="gqa")


def test_assume_does_not_make_up_what_a_kind_needs(read: Any) -> None:
    with pytest.raises(ModelError, match="found no kv_lora_rank"):
        read(GQA, assume="mla")
    with pytest.raises(UsageError, match="assumed kind is 'rnn', expected one of gqa, mla"):
        read(GQA, assume="rnn")
    with pytest.raises(UsageError, match="expected a config"):
        resolve_model("glm-5.2", assume="gqa")


def test_false_and_null_leave_a_feature_out(read: Any) -> None:
    config = {**GQA, "sliding_window": None, "is_encoder_decoder": False, "attention_chunk_size": None}
    assert read(config).attention == read(GQA).attention


def test_a_window_in_use_makes_the_layers_after_the_first_ones_windows(read: Any) -> None:
    config = {**GQA, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28}
    cost = model_bytes(read(config))
    assert [(term.layers, term.window_tokens) for term in cost.terms] == [(28, None), (4, 4096)]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("llama-3.1-8b", {"num_hidden_layers": "32"}, "num_hidden_layers is '32', expected a whole number"),
        ("llama-3.1-8b", {"num_hidden_layers": True}, "num_hidden_layers is True"),
        ("llama-3.1-8b", {"num_hidden_layers": None}, "found no num_hidden_layers"),
        ("llama-3.1-8b", {"num_hidden_layers": 0}, "layers is 0, expected a whole number from 1"),
        ("llama-3.1-8b", {"num_attention_heads": 30}, "hidden_size 4096 is no multiple of"),
        ("llama-3.1-8b", {"layer_types": ["full_attention"]}, "there are 1 layer types"),
        ("llama-3.1-8b", {"layer_types": ["rwkv"] * 32}, "layer_types has 'rwkv', expected"),
        ("llama-3.1-8b", {"layer_types": ["mamba"] * 32}, "layers are of the kinds linear, expected full"),
        (
            "llama-3.1-8b",
            {"layer_types": "full_attention"},
            "layer_types is 'full_attention', expected a list",
        ),
        ("minimax-m2", {"attn_type_list": [0, 1] * 31}, "looks like lightning_gqa, but the fields"),
        (
            "nemotron-3-super",
            {"hybrid_override_pattern": "M*X" * 22},
            "expected M, \\*, - or E for each of 88",
        ),
        ("nemotron-3-super", {"mamba_ssm_cache_dtype": "int4"}, "mamba_ssm_cache_dtype is 'int4'"),
        ("lfm2-1.2b", {"layer_types": ["conv", "linear_attention"] * 8}, "0 full and 8 convolution layers"),
        ("minimax-m2", {"use_mtp": 1}, "use_mtp is 1, expected true or false"),
        ("glm-5.2", {"indexer_types": ["full"] * 78}, "contradict each other"),
        ("glm-5.2", {"indexer_types": ["full"] * 3}, "for each of 78 layers"),
        ("deepseek-v3.2", {"index_topk_pattern": "FFX"}, "index_topk_pattern is 'FFX'"),
        ("mimo-v2.5", {"sliding_window_size": 129}, r"sliding_window_size is not the sliding window \(128\)"),
        ("mimo-v2.5", {"attention_chunk_size": 64}, "attention_chunk_size is not the sliding window"),
        ("cohere-command-r7b-12-2024", {"layer_switch": 3}, "sliding_window_pattern is 4, expected layer_s"),
        (
            "cohere-command-r7b-12-2024",
            {"order_of_interleaved_layers": "global_attn_first"},
            "expected 'local_attn_first'",
        ),
        ("dots3-note-prev", {"sliding_window": 600}, "sliding_window is not sliding_window_size"),
        ("deepseek-v4-flash", {"compress_ratios": [0, 4]}, "compress_ratios has 2 entries, expected one"),
        ("deepseek-v4-flash", {"compress_ratios": [0, "4"]}, "is not a list of whole numbers"),
        ("deepseek-v4-flash", {"num_key_value_heads": 8}, "expected one latent for all heads"),
        ("qwen3.5-35b-a3b", {"mamba_ssm_dtype": "int4"}, "mamba_ssm_dtype is 'int4', expected one of"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(name: str, change: Any, reason: str, read: Any) -> None:
    with pytest.raises(ModelError, match=reason):
        read({**CONFIGS[name], **change})


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": [0]}, "a layer without a compression ratio"),
        ("deepseek-v4.1-flash", {"kv_source_layer_ids": [99]}, "a layer without a compression ratio"),
        ("inkling", {"use_sconv": False}, "use_sconv is false"),
        ("inkling", {"swa_head_dim": 64}, r"swa_head_dim is not head_dim \(128\)"),
        ("kimi-k3", {"num_hidden_layers": 92}, "69 KDA and 24 full layers are not the 92"),
        ("kimi-k3", {"linear_attn_config": [1]}, r"linear_attn_config is \[1\], expected an object"),
        ("minimax-m3", {"num_hidden_layers": 59}, "are not 59 equal flags"),
    ],
)
def test_a_nested_config_that_contradicts_itself_is_refused(
    name: str, change: Any, reason: str, read: Any
) -> None:
    config = {**CONFIGS[name], "text_config": {**CONFIGS[name]["text_config"], **change}}
    with pytest.raises(ModelError, match=reason):
        read(config)


def test_draft_layers_of_an_unknown_kind_are_said_to_be_missing(read: Any) -> None:
    assert read(CONFIGS["mimo-v2.5"]).notes == (
        "draft layers are not counted: their kind is not in the config",
    )


def test_index_patterns_say_which_layers_own_an_indexer(read: Any) -> None:
    pattern = "F" * 20 + "S" * 41
    found = read({**CONFIGS["deepseek-v3.2"], "index_topk_pattern": pattern})
    index = model_bytes(found).terms[1]
    assert (index.name, index.layers) == ("index keys", 20)


def test_what_is_no_config_is_refused(tmp_path: Path, read: Any) -> None:
    with pytest.raises(ModelError, match="expected an object, a Hugging Face config"):
        read([1, 2])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        resolve_model(str(tmp_path))
    with pytest.raises(ModelError, match="no such file"):
        resolve_model(str(tmp_path / "missing.json"))


def test_a_directory_stands_for_its_config(tmp_path: Path) -> None:
    (tmp_path / "My-Model").mkdir()
    (tmp_path / "My-Model" / "config.json").write_text(json.dumps(GQA))
    model = resolve_model(str(tmp_path / "My-Model"))
    assert (model.id, model.name) == ("my-model", "My-Model")


def test_fields_left_out_are_taken_from_the_architecture_and_said(read: Any) -> None:
    model = read(CONFIGS["gemma-3-27b"])
    assert model.notes == (
        "sliding_window_pattern is left out and taken as the architecture's default, 6",
        "max_position_embeddings is left out and taken as the architecture's default, 131072",
    )
    small = read({"model_type": "gemma3_text"})
    assert [(term.layers, term.window_tokens) for term in model_bytes(small).terms] == [(4, None), (22, 4096)]
    assert len(small.notes) == 6


def test_falcon_counts_its_kv_heads_by_its_architecture(read: Any) -> None:
    falcon = {
        "model_type": "falcon",
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "hidden_size": 8192,
        "alibi": False,
        "bias": False,
        "parallel_attn": True,
    }
    for extra, heads in (
        ({"new_decoder_architecture": True, "multi_query": True}, 8),
        ({"new_decoder_architecture": False, "multi_query": True}, 1),
        ({"new_decoder_architecture": False, "multi_query": False}, 128),
        ({}, 1),
    ):
        assert model_bytes(read({**falcon, **extra})).bytes_per_token(1) == 60 * 2 * heads * 64 * 2


def test_some_architectures_window_every_layer(read: Any) -> None:
    cost = model_bytes(read({**GQA, "model_type": "mistral", "sliding_window": 4096}))
    assert [(term.layers, term.window_tokens) for term in cost.terms] == [(0, None), (32, 4096)]
    assert read({**GQA, "model_type": "mistral", "sliding_window": None}).kind == "gqa"


def test_a_thinker_holds_the_language_model(read: Any) -> None:
    text = {**GQA, "max_position_embeddings": 32768}
    config = {
        "model_type": "qwen3_omni_moe",
        "thinker_config": {"text_config": text, "audio_config": {"layers": 3}},
        "talker_config": {"text_config": {"num_hidden_layers": 20}},
        "code2wav_config": {"num_hidden_layers": 8},
    }
    model = read(config)
    assert (model.attention, model.max_context) == (read(text).attention, 32768)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"kv_cache_quant_algo": "FP8"}, "fp8_int8"),
        ({"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "fp4_int4"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_int8"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "fp4_int4"),
        ({"kv_cache_scheme": None, "quant_method": "compressed-tensors"}, None),
        ({"kv_cache_quant_algo": None}, None),
        ("fp8", None),
    ],
)
def test_a_checkpoint_says_how_its_cache_is_kept(quantization: Any, expected: str | None, read: Any) -> None:
    model = read({**GQA, "quantization_config": quantization})
    assert model.kv_precision == expected
    assert model_bytes(model).kv_precision == (expected or "bf16_fp16")
    assert model_bytes(model, ModelBytesOptions(kv_precision="bf16")).kv_precision == "bf16_fp16"
    assert any("the checkpoint keeps its KV cache at" in note for note in model.notes) == (
        expected is not None
    )


def test_falcon_h1_has_attention_and_mamba_in_every_layer(read: Any) -> None:
    config = {
        **GQA,
        "model_type": "falcon_h1",
        "mamba_n_heads": 24,
        "mamba_d_head": 64,
        "mamba_d_state": 256,
        "mamba_d_ssm": 1536,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_expand": 2,
    }
    attention = read(config).attention
    assert (attention.full_layers, attention.mamba_layers, attention.mamba_head_dim) == (32, 32, 64)


@pytest.mark.parametrize(
    ("name", "change", "dropped"),
    [
        (
            "nemotron-3-super",
            {"layers_block_type": (["mamba", "moe"] * 5 + ["attention"]) * 8, "num_nextn_predict_layers": 1},
            ("hybrid_override_pattern", "num_hidden_layers"),
        ),
        (
            "kimi-linear-48b-a3b",
            {
                "layer_types": [
                    "full_attention" if n in {4, 8, 12, 16, 20, 24, 27} else "linear_attention"
                    for n in range(1, 28)
                ],
                "linear_head_dim": 128,
                "linear_num_heads": 32,
                "linear_conv_kernel_dim": 4,
            },
            ("linear_attn_config",),
        ),
        (
            "minimax-text-01",
            {
                "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
                "block_size": 256,
                "full_attn_alpha_factor": 1,
            },
            ("attn_type_list",),
        ),
        ("glm-5.2", {"layer_types": ["indexed_attention"] * 78}, ()),
        (
            "gpt-oss-120b",
            {"per_layer_config": {"0": {"head_dim": 64}}, "max_window_layers": 3},
            (),
        ),
        ("granite-4-h-small", {"attn_layer_indices": [5, 15, 25, 35]}, ("layer_types",)),
    ],
)
def test_newer_names_of_the_same_fields_read_alike(
    name: str, change: Any, dropped: tuple[str, ...], read: Any
) -> None:
    config = {field: value for field, value in CONFIGS[name].items() if field not in dropped}
    assert read({**config, **change}).attention == resolve_model(name).attention


def test_layers_of_one_kind_may_have_shapes_of_their_own(read: Any) -> None:
    text = {**CONFIGS["gemma-4-e2b"]["text_config"]}
    del text["global_head_dim"]
    full = [n for n, kind in enumerate(text["layer_types"]) if kind == "full_attention"]
    own = {**text, "per_layer_config": {f"{n:02}": {"head_dim": 512} for n in full}}
    assert read(own).attention == resolve_model("gemma-4-e2b").attention
    with pytest.raises(ModelError, match=r"per_layer_config has head_dim as \[256, 512\] for layers of one"):
        read({**text, "per_layer_config": {f"{full[0]:02}": {"head_dim": 512}}})


@pytest.mark.parametrize(
    ("architecture", "model", "uncounted"),
    [
        ("GptOssConfig", "gpt-oss-120b", {}),
        ("Llama4TextConfig", "llama-4-scout", {}),
        ("Qwen3NextConfig", "qwen3-next-80b-a3b", {"draft_layers": 0}),
    ],
)
def test_facts_that_rest_on_the_defaults_of_an_architecture_are_those(
    architecture: str, model: str, uncounted: dict[str, int], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, architecture)().to_dict()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, default=str))
    known = resolve_model(model)
    assert known.basis is not None
    assert "defaults of transformers" in known.basis
    assert resolve_model(str(path)).attention == replace(known.attention, **uncounted)

"""What holds for the terms of every model."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.errors import ModelError, UsageError
from kvcap.models import Model, ModelBytesOptions, catalog, model_bytes, resolve_model

models = st.sampled_from(catalog())
precisions = st.sampled_from(["bf16_fp16", "fp8_int8", "fp4_int4"])


@given(models, precisions, st.booleans(), st.integers(0, 300_000))
@settings(max_examples=60, deadline=None)
def test_a_longer_sequence_never_takes_less_up_to_an_incomplete_pool(
    model: Model, precision: str, draft: bool, tokens: int
) -> None:
    cost = model_bytes(model, ModelBytesOptions(kv_precision=precision, include_draft_kv_cache=draft))
    tail = sum(term.entry_bytes for term in cost.terms if term.retention == "tail")
    assert cost.total_bytes(tokens) <= cost.total_bytes(tokens + 1) + tail
    assert cost.total_bytes(0) == 0


@given(models, st.integers(1, 300_000), st.integers(1, 300_000))
@settings(max_examples=60, deadline=None)
def test_one_number_per_token_exists_exactly_for_linear_models(model: Model, a: int, b: int) -> None:
    cost = model_bytes(model)
    if cost.is_linear:
        assert cost.bytes_per_token(a) == cost.bytes_per_token(b) == cost.asymptotic_bytes_per_token
        assert cost.state_bytes == 0
    else:
        shown_apart = [term for term in cost.terms if term.retention != "token" or term.tokens_per_entry > 1]
        assert shown_apart


@given(models, precisions)
@settings(max_examples=40, deadline=None)
def test_the_mean_approaches_the_bytes_of_one_more_token(model: Model, precision: str) -> None:
    cost = model_bytes(model, ModelBytesOptions(kv_precision=precision))
    period = math.lcm(*(term.tokens_per_entry for term in cost.terms))
    start = period * 10_000
    step = cost.total_bytes(start + period) - cost.total_bytes(start)
    assert step / period == cost.asymptotic_bytes_per_token


def test_windows_stop_growing_and_compressed_entries_come_whole() -> None:
    gemma = model_bytes(resolve_model("gemma-4-31b"))
    full, window = gemma.terms
    assert window.total_bytes(1023) < window.total_bytes(1024) == window.total_bytes(100_000)
    assert full.total_bytes(100_000) == 100_000 * full.entry_bytes
    v4 = {term.name: term for term in model_bytes(resolve_model("deepseek-v4-flash")).terms}
    assert v4["1:128 latents"].total_bytes(127) == 0
    assert v4["1:128 latents"].total_bytes(255) == v4["1:128 latents"].entry_bytes


def test_describe_says_the_figure_its_basis_and_whose_bytes_it_is() -> None:
    linear = model_bytes(resolve_model("llama-3.1-8b"), ModelBytesOptions(kv_precision="fp8", tp=8))
    assert linear.describe() == (
        "Llama 3.1 8B: 8,192 B/token (logical bytes, KV fp8_int8, one of 8 ranks (tp 8))"
    )
    hybrid = model_bytes(resolve_model("inkling"))
    assert hybrid.describe() == (
        "Inkling: 45,056 B/token + 450,560 B/token up to 512 tokens + 6.06 MiB per resumable state "
        "(logical bytes, KV bf16_fp16, one rank, the whole replica)"
    )
    assert hybrid.describe(12_035) == (
        "Inkling: 64,224.0 B/token at 12,035 tokens, not linear in length "
        "(logical bytes, KV bf16_fp16, one rank, the whole replica)"
    )


def test_figures_are_exact_fractions() -> None:
    cost = model_bytes(resolve_model("deepseek-v4-pro"))
    assert cost.bytes_per_token(12_035) == Fraction(126_486_528, 12_035)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kv_precision": "fp16x"}, "kv precision is 'fp16x', expected bf16_fp16, fp8_int8, fp4_int4, mxfp8"),
        ({"indexer_precision": "mxfp8"}, "indexer precision is 'mxfp8', expected bf16_fp16, fp8_int8, fp4"),
        ({"state_precision": "fp8"}, "state precision is 'fp8', expected fp32, bf16_fp16"),
        ({"layout": "trt"}, "layout is 'trt', expected logical, sglang, vllm"),
        ({"scope": "node"}, "scope is 'node', expected rank or replica"),
        ({"tp": 0}, "tp is 0, expected a whole number from 1"),
        ({"pp": -1}, "pp is -1, expected a whole number from 1"),
    ],
)
def test_a_bad_option_says_what_is_allowed(options: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ModelBytesOptions(**options)  # type: ignore[arg-type]


def test_short_names_of_precisions_are_the_full_ones() -> None:
    options = ModelBytesOptions(kv_precision="INT8", indexer_precision="fp4", state_precision="bfloat16")
    assert (options.kv_precision, options.indexer_precision) == ("fp8_int8", "fp4_int4")
    assert options.state_precision == "bf16_fp16"


def test_lengths_must_be_possible() -> None:
    cost = model_bytes(resolve_model("llama-3.1-8b"))
    with pytest.raises(UsageError, match="tokens is 0, expected a whole number from 1"):
        cost.bytes_per_token(0)
    with pytest.raises(UsageError, match="tokens is -1"):
        cost.total_bytes(-1)


def test_a_draft_cache_that_is_not_known_is_said_to_be_missing() -> None:
    cost = model_bytes(resolve_model("llama-3.1-8b"), ModelBytesOptions(include_draft_kv_cache=True))
    assert cost.notes == ("no draft layers with a cache of their own are known for this model",)


def test_an_unknown_model_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ModelError, match=r"'glm52' is not in the catalog.*did you mean glm-5\.2"):
        resolve_model("glm52")
    with pytest.raises(ModelError, match="`kvcap models` lists them"):
        resolve_model("zzzzzzzz")


@pytest.mark.parametrize("name", ["GLM-5.2", "zai-org/glm-5.2", "glm-5.2", "some-mirror/GLM-5.2"])
def test_a_model_is_found_by_id_name_or_repository_in_any_case(name: str) -> None:
    assert resolve_model(name).id == "glm-5.2"

"""A model from its raw Hugging Face ``config.json``, whatever its name.

The kind is recognized by its fields alone. A config with fields that we cannot account for is refused, and
the fields are listed; ``assume`` overrides that judgement, never what a kind needs, nor fields that may show
layers of another kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kvcap.errors import ModelError, UsageError
from kvcap.models.catalog import Model, build_attention
from kvcap.models.huggingface.builders import BUILDERS
from kvcap.models.huggingface.fields import Fields, language_fields
from kvcap.models.huggingface.shapes import has_windows_throughout

if TYPE_CHECKING:
    from pathlib import Path

_MARKS: Final = (
    ("shared_compressed_mla", ("kv_source_layer_ids",)),
    ("compressed_mla", ("compress_ratios",)),
    ("windowed_mla", ("swa_kv_lora_rank",)),
    ("kda_dsa_mla", ("linear_attn_config", "index_topk")),
    ("kda_mla", ("linear_attn_config",)),
    ("kda_mla", ("kv_lora_rank", "linear_num_heads")),
    ("dsa_mla", ("kv_lora_rank", "index_topk")),
    ("mla", ("kv_lora_rank",)),
    ("windowed_gqa_conv", ("sconv_kernel_size",)),
    ("sparse_gqa", ("sparse_attention_config",)),
    ("linear_gqa", ("linear_num_key_heads",)),
    ("mamba_gqa", ("mamba_n_heads",)),
    ("mamba_gqa", ("mamba_num_heads",)),
    ("conv_gqa", ("conv_L_cache",)),
    ("chunked_gqa", ("attention_chunk_size", "no_rope_layers")),
    ("chunked_gqa", ("attention_chunk_size", "no_rope_layer_interval")),
)
"""Kinds by the fields that only they have, the most particular first; what has none is GQA."""

_KV_ALGORITHMS: Final = {"FP8": "fp8_int8", "INT8": "fp8_int8", "NVFP4": "fp4_int4"}
_KV_BITS: Final = {8: "fp8_int8", 4: "fp4_int4"}


def recognize(config: Any, path: Path, assume: str | None = None) -> Model:
    """Return the model that a config describes.

    Parameters
    ----------
    config
        The parsed ``config.json``, with nested ``text_config`` or without.
    path
        Where it came from, for names and messages.
    assume
        A kind to take in spite of fields that we do not understand.

    Raises
    ------
    UsageError
        If ``assume`` names no kind.
    ModelError
        If the config is no object, lacks what its kind needs, contradicts itself, or has fields that
        we do not understand.
    """
    where = str(path)
    if assume is not None and assume not in BUILDERS:
        raise UsageError(f"assumed kind is {assume!r}, expected one of {', '.join(BUILDERS)}")
    if not isinstance(config, dict):
        raise ModelError(f"{where}: expected an object, a Hugging Face config.json")
    fields = Fields(language_fields(config), where)
    kind = assume or _kind(fields)
    attention = build_attention(kind, BUILDERS[kind](fields), where)
    _refuse_unread(fields, where, kind, assumed=assume is not None)
    unread = fields.unread()
    notes = [f"assumed to be {kind} in spite of {', '.join(unread)}"] if unread else []
    kv_precision = checkpoint_kv_precision(language_fields(config))
    if kv_precision is not None:
        notes.append(f"the checkpoint keeps its KV cache at {kv_precision}, as engines do by default")
    context = fields.count("max_position_embeddings", "model_max_length", default=0)
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return Model(
        id=name.lower(),
        name=name,
        family=str(config.get("model_type") or "unknown"),
        kind=kind,
        attention=attention,
        max_context=context or None,
        source=where,
        notes=(*notes, *fields.notes),
        kv_precision=kv_precision,
    )


def checkpoint_kv_precision(config: dict[str, Any]) -> str | None:
    """Return the format in which a checkpoint says that its KV cache is kept; None when it does not.

    Both fields are those that engines read for ``--kv-cache-dtype auto``: ``kv_cache_quant_algo`` of ModelOpt
    and ``kv_cache_scheme`` of compressed-tensors.
    """
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return None
    inner = quantization.get("quantization")
    algorithm = quantization.get("kv_cache_quant_algo") or (
        inner.get("kv_cache_quant_algo") if isinstance(inner, dict) else None
    )
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(algorithm, str):
        return _KV_ALGORITHMS.get(algorithm.upper())
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
    return _KV_BITS.get(bits) if isinstance(bits, int) else None


def _refuse_unread(fields: Fields, where: str, kind: str, *, assumed: bool) -> None:
    unread, structural = fields.unread(), fields.structural()
    if assumed and structural:
        raise ModelError(
            f"{where}: assumed to be {kind}, but {', '.join(structural)} may show layers that {kind} has "
            "not; expected another kind, or --models-file with the model's own facts"
        )
    if unread and not assumed:
        hint = (
            "--models-file takes the model's own facts"
            if structural
            else f"--assume {kind} takes it nevertheless"
        )
        raise ModelError(
            f"{where}: looks like {kind}, but the fields {', '.join(unread)} are not understood and may "
            f"change the cache; expected none such ({hint})"
        )


def _kind(fields: Fields) -> str:
    for kind, marks in _MARKS:
        if all(mark in fields for mark in marks):
            return kind
    if "hybrid_layer_pattern" in fields or "sliding_window_pattern" in fields:
        return "windowed_gqa"
    types = fields.any("layer_types")
    if isinstance(types, list) and "sliding_attention" in types:
        return "windowed_gqa"
    lightning = fields.any("attn_type_list")
    minimax = str(fields.any("model_type")).startswith("minimax")
    if isinstance(lightning, list) and 0 in lightning:
        return "lightning_gqa"
    if isinstance(types, list) and "linear_attention" in types and minimax:
        return "lightning_gqa"
    windows = fields.any("use_sliding_window") is True or has_windows_throughout(fields)
    return "windowed_gqa" if windows else "gqa"

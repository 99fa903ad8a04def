"""A model from its raw Hugging Face ``config.json``, whatever its name.

The kind is recognized by its fields alone. A config with fields that we cannot account for is refused, and
the fields are listed; ``assume`` overrides that judgement, never what a kind needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kvcap.errors import ModelError, UsageError
from kvcap.models.catalog import Model, build_attention
from kvcap.models.huggingface.builders import BUILDERS
from kvcap.models.huggingface.fields import Fields, language_fields

if TYPE_CHECKING:
    from pathlib import Path

_MARKS: Final = (
    ("shared_compressed_mla", ("kv_source_layer_ids",)),
    ("compressed_mla", ("compress_ratios",)),
    ("windowed_mla", ("swa_kv_lora_rank",)),
    ("kda_dsa_mla", ("linear_attn_config", "index_topk")),
    ("kda_mla", ("linear_attn_config",)),
    ("dsa_mla", ("kv_lora_rank", "index_topk")),
    ("mla", ("kv_lora_rank",)),
    ("windowed_gqa_conv", ("sconv_kernel_size",)),
    ("sparse_gqa", ("sparse_attention_config",)),
    ("linear_gqa", ("linear_num_key_heads",)),
)
"""Kinds by the fields that only they have, the most particular first; what has none is GQA."""


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
    fields = Fields(language_fields(config), where, assumed=assume is not None)
    kind = assume or _kind(fields)
    attention = build_attention(kind, BUILDERS[kind](fields), where)
    unread = fields.unread()
    if unread and assume is None:
        raise ModelError(
            f"{where}: looks like {kind}, but the fields {', '.join(unread)} are not understood and may "
            f"change the cache; expected none such (--assume {kind} takes it nevertheless)"
        )
    notes = [f"assumed to be {kind} in spite of {', '.join(unread)}"] if unread else []
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
        retrieved="",
        notes=(*notes, *fields.notes),
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
    return "windowed_gqa" if fields.any("use_sliding_window") is True else "gqa"

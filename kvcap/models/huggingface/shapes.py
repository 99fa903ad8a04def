"""Shapes that several kinds read from a ``config.json`` alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvcap.models.huggingface.fields import Fields

_FULL: Final = frozenset(
    {"full_attention", "full", "attention", "deepseek_sparse_attention", "indexed_attention"}
)
_WITHOUT_CACHE: Final = frozenset({"moe", "mlp", "dense", "sparse"})
_WINDOW: Final = frozenset({"sliding_attention", "sliding", "hybrid_sliding"})
_LINEAR: Final = frozenset({"linear_attention", "mamba", "mamba2"})
_CHUNK: Final = frozenset({"chunked_attention"})
_CONVOLUTION: Final = frozenset({"conv"})
_KINDS: Final = (
    ("full", _FULL),
    ("window", _WINDOW),
    ("linear", _LINEAR),
    ("chunk", _CHUNK),
    ("conv", _CONVOLUTION),
)
_WINDOWS_THROUGHOUT: Final = frozenset({"mistral", "mixtral", "phi3", "phi3_v", "starcoder2"})
_WINDOW_POOLS_IN_SGLANG: Final = ("gemma4", "gpt_oss", "laguna", "llama4", "mimo_v2", "step3p5")
"""Beginnings of the model types to which SGLang 0.5.23 gives a pool for windows; others keep every token."""


def latent_dims(fields: Fields) -> dict[str, int]:
    """Return the dimensions of an MLA latent."""
    return {
        "kv_lora_rank": fields.count("kv_lora_rank"),
        "qk_rope_head_dim": fields.count("qk_rope_head_dim"),
    }


def kv_heads(fields: Fields) -> int:
    """Return the KV heads: those of attention itself where none are given.

    Falcon's count only in its newer architecture, else it has one (multi-query) or as many as heads.
    """
    if "multi_query" in fields and not fields.flag("new_decoder_architecture", default=False):
        fields.ignore("num_kv_heads")
        return 1 if fields.flag("multi_query", default=False) else fields.count("num_attention_heads")
    fields.ignore("multi_query", "new_decoder_architecture")
    names = ("num_key_value_heads", "num_kv_heads", "num_attention_groups", "multi_query_group_num")
    if not any(name in fields for name in names):
        fields.notes.append(
            "without num_key_value_heads, every attention head has keys and values of its own"
        )
    return fields.count(*names, "num_attention_heads")


def head_dim(fields: Fields) -> int:
    """Return the size of a head: an even share of the hidden size where none is given."""
    if "head_dim" in fields:
        return fields.count("head_dim")
    hidden, attention_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if attention_heads == 0 or hidden % attention_heads:
        raise fields.error(f"hidden_size {hidden} is no multiple of num_attention_heads {attention_heads}")
    return hidden // attention_heads


def draft_layers(fields: Fields) -> int:
    """Return the number of layers that draft tokens."""
    return fields.count("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)


def uncounted_draft(fields: Fields) -> None:
    """Note draft layers whose kind the config does not say."""
    if draft_layers(fields):
        fields.notes.append("draft layers are not counted: their kind is not in the config")


def window_tokens(fields: Fields) -> int:
    """Return the tokens of a sliding window, on which all its names must agree."""
    window = fields.count("sliding_window", "sliding_window_size")
    for name in ("sliding_window_size", "attention_chunk_size"):
        if fields.count(name, default=window) != window:
            raise fields.error(f"{name} is not the sliding window ({window})")
    return window


def has_window_pool_in_sglang(fields: Fields) -> bool:
    """Return whether SGLang keeps the windows of this architecture in a pool of their own."""
    return str(fields.any("model_type")).startswith(_WINDOW_POOLS_IN_SGLANG)


def has_windows_throughout(fields: Fields) -> bool:
    """Return whether an architecture gives its sliding window to every layer (Mistral and Phi 3)."""
    given = any(name in fields for name in ("layer_types", "use_sliding_window", "sliding_window_pattern"))
    windowed = fields.any("model_type") in _WINDOWS_THROUGHOUT and "sliding_window" in fields
    return windowed and not given


def layer_kinds(fields: Fields, layers: int) -> list[str]:
    """Return the kind of every layer, from whichever field says so; draft layers after the last are cut."""
    if "layer_types" in fields:
        fields.ignore("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        kinds = [_layer_kind(fields, name) for name in fields.items("layer_types")]
    elif "hybrid_layer_pattern" in fields:
        kinds = ["window" if flag else "full" for flag in fields.counts("hybrid_layer_pattern")]
    elif "attn_type_list" in fields:
        kinds = ["full" if flag else "linear" for flag in fields.counts("attn_type_list")]
    elif "sliding_window_pattern" in fields:
        pattern = _window_pattern(fields)
        kinds = ["window" if (layer + 1) % pattern else "full" for layer in range(layers)]
    elif fields.flag("use_sliding_window", default=False):
        full = fields.count("max_window_layers")
        kinds = ["full" if layer < full else "window" for layer in range(layers)]
    else:
        kinds = ["window" if has_windows_throughout(fields) else "full"] * layers
    if len(kinds) == layers + draft_layers(fields):
        kinds = kinds[:layers]
    if len(kinds) != layers:
        raise fields.error(f"there are {len(kinds)} layer types, expected one for each of {layers} layers")
    if "use_sliding_window" in fields or "layer_types" in fields:
        fields.ignore("use_sliding_window", "max_window_layers")
        if "window" not in kinds:
            fields.ignore("sliding_window")
    fields.ignore("hybrid_block_size")
    return kinds


def block_kinds(fields: Fields, name: str) -> list[str]:
    """Return the kinds of the blocks that keep something, from a list that names feed-forward blocks too."""
    return [_layer_kind(fields, block) for block in fields.items(name) if block not in _WITHOUT_CACHE]


def of_layers(fields: Fields, layers: list[int], name: str, default: int) -> int:
    """Return a field of some layers, which ``per_layer_config`` may set for them alone.

    Raises
    ------
    ModelError
        If the layers do not agree on it.
    """
    own = fields.any("per_layer_config") or {}
    values = {own.get(str(n), own.get(f"{n:02}", {})).get(name, default) for n in layers} or {default}
    if len(values) > 1:
        raise fields.error(f"per_layer_config has {name} as {sorted(values)} for layers of one kind")
    return int(values.pop())


def only_full(fields: Fields, layers: int) -> None:
    """Check that layer types, where they are given, are those of full attention.

    Raises
    ------
    ModelError
        If some are not.
    """
    kinds = set(layer_kinds(fields, layers)) if "layer_types" in fields else {"full"}
    if kinds - {"full"}:
        raise fields.error(f"layers are of the kinds {', '.join(sorted(kinds))}, expected full attention")


def _window_pattern(fields: Fields) -> int:
    """Return after how many layers a full one comes, the last of each stretch (Gemma 3, Cohere 2)."""
    pattern = fields.count("sliding_window_pattern")
    if pattern == 0 or fields.count("layer_switch", default=pattern) != pattern:
        raise fields.error(f"sliding_window_pattern is {pattern}, expected layer_switch, above 0")
    order = fields.any("order_of_interleaved_layers")
    if order not in {None, "local_attn_first"}:
        raise fields.error(f"order_of_interleaved_layers is {order!r}, expected 'local_attn_first'")
    return pattern


def _layer_kind(fields: Fields, name: object) -> str:
    for kind, names in _KINDS:
        if name in names:
            return kind
    known = ", ".join(sorted(name for _, names in _KINDS for name in names))
    raise fields.error(f"layer_types has {name!r}, expected {known}")


def indexer_layers(fields: Fields, layers: int) -> list[int]:
    """Return the layers that own an indexer: all, or those that a list, a pattern or a frequency says."""
    frequency = fields.count("index_topk_freq", default=1)
    offset = fields.count("index_skip_topk_offset", default=2)
    by_frequency = [layer for layer in range(layers) if max(layer - offset + 1, 0) % max(frequency, 1) == 0]
    pattern = fields.any("index_topk_pattern")
    if "indexer_types" in fields:
        types = fields.items("indexer_types")
        listed = [layer for layer, name in enumerate(types) if name == "full"]
        if len(types) != layers or len(listed) + types.count("shared") != layers:
            raise fields.error(f"indexer_types is not 'full' or 'shared' for each of {layers} layers")
        if "index_topk_freq" in fields and pattern is None and listed != by_frequency:
            raise fields.error("indexer_types and index_topk_freq contradict each other")
        return listed
    if pattern is not None:
        if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - {"F", "S"}:
            raise fields.error(
                f"index_topk_pattern is {pattern!r}, expected F or S for each of {layers} layers"
            )
        return [layer for layer, letter in enumerate(pattern) if letter == "F"]
    return by_frequency

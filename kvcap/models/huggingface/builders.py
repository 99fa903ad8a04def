"""From the fields of a ``config.json`` to the facts of a kind of attention, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kvcap.models.huggingface import shapes, state_builders

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcap.models.huggingface.fields import Fields

Facts = dict[str, Any]


def heads(fields: Fields) -> Facts:
    """Read ``gqa``: Llama, Qwen 2.5 and 3, GLM 4, Falcon, Mistral without a window, Command R, MiniMax M2."""
    layers = fields.count("num_hidden_layers")
    kinds = set(shapes.layer_kinds(fields, layers))
    if kinds - {"full"}:
        raise fields.error(f"layers are of the kinds {', '.join(sorted(kinds))}, expected full attention")
    head_dim = shapes.head_dim(fields)
    facts = {"layers": layers, "kv_heads": shapes.kv_heads(fields), "head_dim": head_dim}
    if "v_head_dim" in fields:
        facts["v_head_dim"] = fields.count("v_head_dim")
    if fields.flag("use_mtp", default=True):
        modules = fields.count("num_mtp_modules", default=0) * fields.count(
            "mtp_transformer_layers", default=1
        )
        facts["draft_layers"] = modules or shapes.draft_layers(fields)
    else:
        fields.ignore("num_mtp_modules", "mtp_transformer_layers")
    return facts


def latent(fields: Fields) -> Facts:
    """Read ``mla``: DeepSeek V2, V3 and R1, Kimi K2."""
    fields.ignore("num_key_value_heads", "v_head_dim", "head_dim")
    layers = fields.count("num_hidden_layers")
    shapes.only_full(fields, layers)
    return {
        "layers": layers,
        **shapes.latent_dims(fields),
        "draft_layers": shapes.draft_layers(fields),
    }


def sparse_latent(fields: Fields) -> Facts:
    """Read ``dsa_mla``: DeepSeek V3.2, GLM-5."""
    facts = latent(fields)
    return {
        **facts,
        "index_head_dim": fields.count("index_head_dim"),
        "indexer_layers": len(shapes.indexer_layers(fields, facts["layers"])),
        "draft_indexer_layers": facts["draft_layers"],
    }


def sparse_heads(fields: Fields) -> Facts:
    """Read ``sparse_gqa``: MiniMax M3, whose public code serves no draft layers."""
    layers = fields.count("num_hidden_layers")
    sparse = fields.object("sparse_attention_config")
    if not sparse.flag("use_sparse_attention", default=True):
        raise sparse.error("use_sparse_attention is false, expected true (or --assume gqa)")
    flags = sparse.counts("sparse_attention_freq")
    keys_only = sparse.counts("sparse_disable_index_value")
    if len(flags) != layers or keys_only != flags:
        raise sparse.error(
            f"sparse_attention_freq and sparse_disable_index_value are not {layers} equal flags"
        )
    names = ("num_index_heads", "topk_blocks", "block_size", "score_type", "init_block", "local_block")
    sparse.ignore(*(f"sparse_{name}" for name in names))
    fields.ignore(
        "layer_types",
        "num_mtp_modules",
        "mtp_transformer_layers",
        "num_nextn_predict_layers",
        "use_mtp",
    )
    return {
        "layers": layers,
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "index_head_dim": sparse.count("sparse_index_dim"),
        "sparse_layers": sum(map(bool, flags)),
    }


def windowed_heads(fields: Fields) -> Facts:
    """Read ``windowed_gqa``: Gemma 2 to 4, Cohere 2, gpt-oss, MiMo, Step 3.5, Qwen 2.5 with its window."""
    layers = fields.count("num_hidden_layers")
    kinds = shapes.layer_kinds(fields, layers)
    stored = kinds[: layers - fields.count("num_kv_shared_layers", default=0)]
    kv_heads, head_dim = shapes.kv_heads(fields), shapes.head_dim(fields)
    full, window = ([n for n, kind in enumerate(kinds) if kind == wanted] for wanted in ("full", "window"))
    full_dim = shapes.of_layers(fields, full, "head_dim", fields.count("global_head_dim", default=head_dim))
    full_heads = shapes.of_layers(
        fields, full, "num_key_value_heads", fields.count("num_global_key_value_heads", default=kv_heads)
    )
    window_dim = shapes.of_layers(fields, window, "head_dim", fields.count("swa_head_dim", default=head_dim))
    v_head_dim = fields.count("v_head_dim", default=0)
    windows = fields
    if "attention_other_setting" in fields:
        windows = fields.object("attention_other_setting")
        windows.ignore("attention_type")
        window_dim = windows.count("head_dim", default=window_dim)
    window_heads = windows.count("swa_num_key_value_heads", "num_attention_groups", default=kv_heads)
    shapes.uncounted_draft(fields)
    return {
        "full_layers": stored.count("full"),
        "kv_heads": full_heads,
        "head_dim": full_dim,
        "v_head_dim": v_head_dim or full_dim,
        "window_layers": stored.count("window"),
        "window_tokens": shapes.window_tokens(fields),
        "window_kv_heads": window_heads,
        "window_head_dim": window_dim,
        "window_v_head_dim": fields.count("swa_v_head_dim", default=v_head_dim or window_dim),
        "first_layer_full": int(kinds[0] == "full"),
        "sglang_full_pool": int(not shapes.has_window_pool_in_sglang(fields)),
    }


def chunked_heads(fields: Fields) -> Facts:
    """Read ``chunked_gqa``: Llama 4, whose layers without rotary positions attend to the whole sequence."""
    layers = fields.count("num_hidden_layers")
    positions = fields.any("no_rope_layers")
    if "layer_types" in fields:
        kinds = shapes.layer_kinds(fields, layers)
        fields.ignore("no_rope_layer_interval")
    elif positions:
        kinds = ["chunk" if rotary else "full" for rotary in fields.counts("no_rope_layers")]
        fields.ignore("no_rope_layer_interval")
    else:
        interval = max(fields.count("no_rope_layer_interval"), 1)
        kinds = ["chunk" if (layer + 1) % interval else "full" for layer in range(layers)]
    if len(kinds) != layers or kinds.count("chunk") + kinds.count("full") != layers:
        raise fields.error(f"layers are not chunked or full for each of {layers} layers")
    return {
        "full_layers": kinds.count("full"),
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "chunked_layers": kinds.count("chunk"),
        "chunk_tokens": fields.count("attention_chunk_size"),
    }


def windowed_latent(fields: Fields) -> Facts:
    """Read ``windowed_mla``: dots3. Its window counts the current token, which is not cached yet."""
    layers = fields.count("num_hidden_layers")
    kinds = shapes.layer_kinds(fields, layers)
    window = fields.count("sliding_window_size")
    if fields.count("sliding_window", default=window) not in {window, window - 1}:
        raise fields.error(f"sliding_window is not sliding_window_size ({window}) or one less")
    fields.ignore(
        "num_key_value_heads",
        "v_head_dim",
        "head_dim",
        "swa_num_key_value_heads",
        "swa_v_head_dim",
    )
    fields.ignore("swa_head_dim")
    shapes.uncounted_draft(fields)
    full = [layer for layer, kind in enumerate(kinds) if kind == "full"]
    if len(shapes.indexer_layers(fields, layers)) != layers:
        raise fields.error("some full layers share an indexer, expected one in each")
    return {
        "full_layers": len(full),
        **shapes.latent_dims(fields),
        "index_head_dim": fields.count("index_head_dim"),
        "window_layers": layers - len(full),
        "window_tokens": window - 1,
        "window_kv_lora_rank": fields.count("swa_kv_lora_rank"),
        "window_qk_rope_head_dim": fields.count("swa_qk_rope_head_dim"),
    }


def windowed_conv_heads(fields: Fields) -> Facts:
    """Read ``windowed_gqa_conv``: Inkling, whose draft layers stand in a nested ``mtp_config``."""
    layers = fields.count("num_hidden_layers")
    if not fields.flag("use_sconv", default=True):
        raise fields.error("use_sconv is false, expected true (or --assume windowed_gqa)")
    if "local_layer_ids" in fields:
        window_layers = len(set(fields.counts("local_layer_ids")))
        fields.ignore("layer_types")
    else:
        window_layers = shapes.layer_kinds(fields, layers).count("window")
    head_dim = shapes.head_dim(fields)
    if fields.count("swa_head_dim", default=head_dim) != head_dim:
        raise fields.error(f"swa_head_dim is not head_dim ({head_dim})")
    kv_heads = shapes.kv_heads(fields)
    facts = {
        "full_layers": layers - window_layers,
        "kv_heads": kv_heads,
        "window_layers": window_layers,
        "window_tokens": shapes.window_tokens(fields),
        "window_kv_heads": fields.count("swa_num_key_value_heads", default=kv_heads),
        "head_dim": head_dim,
        "hidden_size": fields.count("hidden_size"),
        "conv_kernel": fields.count("sconv_kernel_size"),
    }
    if "mtp_config" in fields:
        draft = fields.object("mtp_config")
        draft.ignore("chain_hidden_post_norm")
        draft_window = len(set(draft.counts("local_layer_ids")))
        facts["draft_window_layers"] = draft_window
        facts["draft_full_layers"] = draft.count("num_nextn_predict_layers") - draft_window
    fields.ignore("num_nextn_predict_layers")
    return facts


def compressed_latent(fields: Fields) -> Facts:
    """Read ``compressed_mla``: DeepSeek V4. Ratios beyond the layers are those of draft layers."""
    layers = fields.count("num_hidden_layers")
    ratios = fields.counts("compress_ratios")
    if len(ratios) < layers:
        raise fields.error(
            f"compress_ratios has {len(ratios)} entries, expected one for each of {layers} layers"
        )
    if fields.count("num_key_value_heads", default=1) != 1:
        raise fields.error("num_key_value_heads is above 1, expected one latent for all heads")
    fields.ignore("qk_rope_head_dim", "num_nextn_predict_layers", "layer_types", "v_head_dim", "kv_lora_rank")
    return {
        "head_dim": fields.count("head_dim"),
        "window_tokens": fields.count("sliding_window"),
        "index_head_dim": fields.count("index_head_dim"),
        "compress_ratios": ratios[:layers],
        "draft_compress_ratios": ratios[layers:],
    }


def shared_compressed_latent(fields: Fields) -> Facts:
    """Read ``shared_compressed_mla``: DeepSeek V4.1. Draft layers have a window only."""
    facts = compressed_latent(fields)
    draft_ratios = facts.pop("draft_compress_ratios")
    if any(draft_ratios):
        raise fields.error("compress_ratios of draft layers are not all 0")
    return {
        **facts,
        "kv_source_layers": fields.counts("kv_source_layer_ids"),
        "draft_layers": len(draft_ratios),
    }


BUILDERS: Final[dict[str, Callable[[Fields], Facts]]] = {
    "gqa": heads,
    "mla": latent,
    "dsa_mla": sparse_latent,
    "sparse_gqa": sparse_heads,
    "windowed_gqa": windowed_heads,
    "windowed_mla": windowed_latent,
    "windowed_gqa_conv": windowed_conv_heads,
    "chunked_gqa": chunked_heads,
    "linear_gqa": state_builders.gated_delta,
    "mamba_gqa": state_builders.mamba_heads,
    "conv_gqa": state_builders.short_conv_heads,
    "lightning_gqa": state_builders.lightning_heads,
    "kda_mla": state_builders.kda_latent,
    "kda_dsa_mla": state_builders.kda_sparse_latent,
    "compressed_mla": compressed_latent,
    "shared_compressed_mla": shared_compressed_latent,
}
"""How each kind is read, by the names of :data:`kvcap.models.kinds.KINDS`."""

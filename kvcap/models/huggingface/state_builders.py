"""From the fields of a ``config.json`` to the facts of kinds that keep states, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kvcap.models.huggingface import shapes

if TYPE_CHECKING:
    from kvcap.models.huggingface.fields import Fields

Facts = dict[str, Any]

_SSM_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_MODEL_DTYPE_BYTES: Final = 2


def gated_delta(fields: Fields) -> Facts:
    """Read ``linear_gqa``: Qwen 3.5 and later, Qwen3-Next. Without a type of its own, vLLM keeps 16 bits."""
    layers = fields.count("num_hidden_layers")
    if "layer_types" in fields:
        kinds = shapes.layer_kinds(fields, layers)
        fields.ignore("full_attention_interval")
    else:
        interval = fields.count("full_attention_interval")
        kinds = ["linear" if (layer + 1) % interval else "full" for layer in range(layers)]
    return {
        "full_layers": kinds.count("full"),
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "linear_layers": kinds.count("linear"),
        "linear_key_heads": fields.count("linear_num_key_heads"),
        "linear_key_head_dim": fields.count("linear_key_head_dim"),
        "linear_value_heads": fields.count("linear_num_value_heads"),
        "linear_value_head_dim": fields.count("linear_value_head_dim"),
        "conv_kernel": fields.count("linear_conv_kernel_dim"),
        **_recurrent_bytes(fields, "mamba_ssm_dtype"),
        "draft_layers": shapes.draft_layers(fields),
    }


def mamba_heads(fields: Fields) -> Facts:
    """Read ``mamba_gqa``: Nemotron-H and 3, Granite 4 hybrids, Bamba, Falcon-H1 with both in every layer."""
    full, mamba = _mamba_layers(fields)
    fields.ignore(
        "mamba_expand", "expand", "mamba_chunk_size", "chunk_size", "mamba_use_mlp", "mamba_rms_norm"
    )
    fields.ignore("mamba_norm_before_gate", "mamba_hidden_act", "use_mamba_kernels", "time_step_limit")
    shapes.uncounted_draft(fields)
    heads = fields.count("mamba_n_heads", "mamba_num_heads")
    head_dim = fields.any("mamba_d_head")
    if head_dim == "auto" or (head_dim is None and "mamba_head_dim" not in fields):
        inner = fields.count("mamba_d_ssm", default=0) or 2 * fields.count("hidden_size")
        head_dim = inner // max(heads, 1)
    else:
        head_dim = fields.count("mamba_d_head", "mamba_head_dim")
        fields.ignore("mamba_d_ssm")
    nemotron = "mamba_num_heads" in fields
    return {
        "full_layers": full,
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "mamba_layers": mamba,
        "mamba_heads": heads,
        "mamba_head_dim": head_dim,
        "mamba_groups": fields.count("mamba_n_groups", "n_groups"),
        "mamba_state": fields.count("mamba_d_state", "ssm_state_size"),
        "conv_kernel": fields.count("mamba_d_conv", "conv_kernel"),
        **_recurrent_bytes(fields, "mamba_ssm_cache_dtype", vllm_default=4 if nemotron else 2),
    }


def short_conv_heads(fields: Fields) -> Facts:
    """Read ``conv_gqa``: LFM2 and its mixtures of experts."""
    layers = fields.count("num_hidden_layers")
    if "layer_types" in fields:
        kinds = shapes.layer_kinds(fields, layers)
        full, conv = kinds.count("full"), kinds.count("conv")
        fields.ignore("full_attn_idxs")
    else:
        full = len(set(fields.counts("full_attn_idxs")))
        conv = layers - full
    if full + conv != layers:
        raise fields.error(f"{full} full and {conv} convolution layers are not the {layers} of the model")
    fields.ignore("num_heads", "conv_dim_out", "conv_use_xavier_init", "conv_bias")
    return {
        "full_layers": full,
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "conv_layers": conv,
        "conv_dim": fields.count("conv_dim", default=fields.count("hidden_size")),
        "conv_kernel": fields.count("conv_L_cache"),
    }


def lightning_heads(fields: Fields) -> Facts:
    """Read ``lightning_gqa``: MiniMax Text 01 and M1."""
    layers = fields.count("num_hidden_layers")
    kinds = shapes.layer_kinds(fields, layers)
    fields.ignore("block_size")
    return {
        "full_layers": kinds.count("full"),
        "kv_heads": shapes.kv_heads(fields),
        "head_dim": shapes.head_dim(fields),
        "linear_layers": kinds.count("linear"),
        "linear_heads": fields.count("num_attention_heads"),
    }


def _mamba_layers(fields: Fields) -> tuple[int, int]:
    """Return the layers of attention and of Mamba, from whichever field says so."""
    if "layers_block_type" in fields:
        kinds = shapes.block_kinds(fields, "layers_block_type")
        fields.ignore("num_hidden_layers", "mtp_layers_block_type")
        return kinds.count("full"), kinds.count("linear")
    layers = fields.count("num_hidden_layers")
    if "hybrid_override_pattern" in fields:
        return _nemotron_layers(fields, layers)
    if "attn_layer_indices" in fields:
        full = len(set(fields.counts("attn_layer_indices")))
        return full, layers - full
    if fields.any("model_type") == "falcon_h1":
        fields.ignore("layer_types")
        return layers, layers
    kinds = shapes.layer_kinds(fields, layers)
    return kinds.count("full"), kinds.count("linear")


def _nemotron_layers(fields: Fields, layers: int) -> tuple[int, int]:
    """Return the layers of attention and of Mamba in a pattern of ``*`` and ``M``, and of ``-`` or ``E``."""
    pattern = fields.any("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set("M*-E"):
        raise fields.error(
            f"hybrid_override_pattern is {pattern!r}, expected M, *, - or E for each of {layers} layers"
        )
    return pattern.count("*"), pattern.count("M")


def _recurrent_bytes(fields: Fields, name: str, vllm_default: int = _MODEL_DTYPE_BYTES) -> Facts:
    """Return the bytes of a state's elements: as the config says, else 4, and what vLLM takes then."""
    dtype = fields.any(name)
    if dtype is None:
        return {"recurrent_element_bytes": 4, "vllm_recurrent_bytes": vllm_default}
    if dtype not in _SSM_BYTES:
        raise fields.error(f"{name} is {dtype!r}, expected one of {', '.join(_SSM_BYTES)}")
    return {"recurrent_element_bytes": _SSM_BYTES[dtype], "vllm_recurrent_bytes": None}


def kda_latent(fields: Fields) -> Facts:
    """Read ``kda_mla``: Kimi Linear and K3."""
    facts = _kda(fields)
    if shapes.draft_layers(fields):
        fields.notes.append("draft layers are not counted: their kind is not in the config")
    return facts


def kda_sparse_latent(fields: Fields) -> Facts:
    """Read ``kda_dsa_mla``: GLM-5.3-Flash. Only its full layers have an indexer, whatever the list says."""
    layers = fields.count("num_hidden_layers")
    facts = _kda(fields)
    if len(shapes.indexer_layers(fields, layers)) != layers:
        raise fields.error("some full layers share an indexer, expected one in each")
    draft_layers = shapes.draft_layers(fields)
    return {
        **facts,
        "index_head_dim": fields.count("index_head_dim"),
        "indexer_layers": facts["full_layers"],
        "index_pool_tokens": fields.count("index_kpool", default=1),
        "draft_layers": draft_layers,
        "draft_indexer_layers": draft_layers,
    }


def _kda(fields: Fields) -> Facts:
    layers = fields.count("num_hidden_layers")
    fields.ignore("num_key_value_heads", "v_head_dim", "head_dim")
    if "linear_attn_config" not in fields:
        kinds = shapes.layer_kinds(fields, layers)
        return {
            "full_layers": kinds.count("full"),
            **shapes.latent_dims(fields),
            "kda_layers": kinds.count("linear"),
            "kda_heads": fields.count("linear_num_heads"),
            "kda_head_dim": fields.count("linear_head_dim"),
            "conv_kernel": fields.count("linear_conv_kernel_dim"),
        }
    linear = fields.object("linear_attn_config")
    linear.ignore("gate_lower_bound", "use_full_rank_gate", "kda_layer_index_base")
    if "kda_layers" in linear:
        kda, full = len(linear.counts("kda_layers")), len(linear.counts("full_attn_layers"))
        fields.ignore("layer_types")
    else:
        kinds = shapes.layer_kinds(fields, layers)
        kda, full = kinds.count("linear"), kinds.count("full")
    if kda + full != layers:
        raise fields.error(f"{kda} KDA and {full} full layers are not the {layers} of num_hidden_layers")
    return {
        "full_layers": full,
        **shapes.latent_dims(fields),
        "kda_layers": kda,
        "kda_heads": linear.count("num_heads"),
        "kda_head_dim": linear.count("head_dim"),
        "conv_kernel": linear.count("short_conv_kernel_size"),
    }

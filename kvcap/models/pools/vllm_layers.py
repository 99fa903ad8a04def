"""What each kind of layer asks of vLLM's pool: blocks in tokens and pages in bytes (vLLM 0.32)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kvcap.models.deployment import parse_version
from kvcap.models.groups import Group, HeadGroup, LatentGroup, StateGroup
from kvcap.models.kinds.compressed import CompressedLatent, SharedCompressedLatent
from kvcap.models.kinds.hybrids import WindowedLatent
from kvcap.models.kinds.states import KdaLatent, KdaSparseLatent
from kvcap.models.kinds.uniform import Latent, SparseHeads, SparseLatent
from kvcap.models.pools.groups import CacheLayers
from kvcap.models.sizing import priced_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.models.catalog import Model
    from kvcap.models.deployment import ModelBytesOptions
    from kvcap.models.kinds import Attention
    from kvcap.models.terms import Term

_KERNEL_BLOCK_TOKENS: Final = 16
_LATENT_HYBRID_STEP: Final = 128
_STEPS_FROM: Final = (0, 21)
"""Tokens to whose multiples blocks of latents that must hold a state are enlarged, and since when: 0.11 took
multiples of the kernel's block."""

_BLOCK_TOKENS: Final[dict[type[Attention], int]] = {
    Latent: 64,
    SparseLatent: 64,
    WindowedLatent: 64,
    SparseHeads: 128,
    KdaLatent: 64,
    KdaSparseLatent: 64,
    CompressedLatent: 256,
    SharedCompressedLatent: 64,
}
"""Tokens of a block where a kind's kernels want others than 16, on Hopper."""

_BLOCK_BY_BLOCK: Final = (WindowedLatent, KdaSparseLatent, CompressedLatent, SharedCompressedLatent)
"""Kinds whose index keys have pages of their own width, so that the cache is laid out block by block."""

_ROW_ALIGNMENT: Final = 576
"""Bytes to whose multiples pages of packed rows, and of what stands beside them, are rounded up."""

_PACKED_WINDOW_BLOCK_TOKENS: Final = {CompressedLatent: 64, SharedCompressedLatent: 32}
_COMPRESSORS: Final = {4: (4, 2), 128: (8, 1)}
"""By compression ratio: tokens of a block of compressor states, and the entries that a window spans."""

_INDEXED: Final = 4
"""The compression ratio whose entries have index keys."""

_FP32_BYTES: Final = 4


@dataclass(frozen=True)
class VllmLayers:
    """The layers of a model as vLLM's pool takes them.

    Parameters
    ----------
    layers
        Every kind of layer in the order of its first layer in the model.
    block_outermost
        Whether the cache is laid out block by block.
    block_tokens
        The engine's block size, enlarged where states demand it.
    """

    layers: tuple[CacheLayers, ...]
    block_outermost: bool
    block_tokens: int


def vllm_layers(model: Model, options: ModelBytesOptions, block_tokens: int | None = None) -> VllmLayers:
    """Return what a model's layers ask of vLLM's pool on one rank.

    Parameters
    ----------
    model, options
        The model in its deployment.
    block_tokens
        The engine's ``--block-size``; None for its default. It is enlarged where a block of attention
        must be as large as a state.

    Raises
    ------
    UsageError
        As :func:`kvcap.models.model_bytes`.
    """
    options = replace(options, layout="vllm", scope="rank", include_state=False)
    priced = [(group, terms[0]) for group, terms in priced_groups(model, options)]
    attention = model.attention
    block = block_tokens or _BLOCK_TOKENS.get(type(attention), _KERNEL_BLOCK_TOKENS)
    if isinstance(attention, KdaLatent | KdaSparseLatent):
        version = parse_version(options.engine_version)
        block = block if version is not None and version < _STEPS_FROM else max(block, _LATENT_HYBRID_STEP)
    token_bytes = _token_bytes(priced)
    block = _enlarged(priced, token_bytes, block)
    layers = [_layers(attention, group, term, block) for group, term in priced]
    layers = [
        replace(kind, page_bytes=max(kind.page_bytes, block * token_bytes)) if kind.kind == "state" else kind
        for kind in layers
    ]
    layers.sort(key=lambda kind: (kind.kind == "full") != attention.starts_full)
    if isinstance(attention, CompressedLatent):
        layers += _compressors(attention, options)
    elif isinstance(attention, SharedCompressedLatent):
        layers += _shared_compressors(attention, options)
    elif isinstance(attention, KdaSparseLatent):
        layers += _pool_tails(attention, options)
    return VllmLayers(tuple(layers), isinstance(attention, _BLOCK_BY_BLOCK), block)


def _layers(attention: Attention, group: Group, term: Term, block: int) -> CacheLayers:
    size = int(term.bytes_per_layer)
    name, layers = term.name, term.layers
    if isinstance(group, StateGroup):
        if group.window_tokens is not None:
            tokens = group.window_tokens
            return CacheLayers(name, "window", layers, tokens, tokens * size, tokens)
        return CacheLayers(name, "state", layers, block, size, checkpoint_blocks=int(group.inner_checkpoint))
    packed = isinstance(attention, CompressedLatent | SharedCompressedLatent)
    if isinstance(group, LatentGroup) and group.packed and group.window_tokens is not None:
        block = _PACKED_WINDOW_BLOCK_TOKENS[type(attention)]
    page = block // term.tokens_per_entry * size
    page = -(-page // _ROW_ALIGNMENT) * _ROW_ALIGNMENT if packed else page
    window = term.window_tokens
    if isinstance(attention, WindowedLatent) and window is not None:
        window += 1
    return CacheLayers(
        name,
        "full" if window is None else "chunked" if term.retention == "chunk" else "window",
        layers,
        block,
        page,
        window,
        paddable=isinstance(group, HeadGroup),
        prefix_cached=not (isinstance(group, LatentGroup) and group.replayed),
    )


def _token_bytes(priced: Sequence[tuple[Group, Term]]) -> int:
    """Return the bytes of a token in one layer of full attention, the first of them; 0 without any."""
    return next((int(term.bytes_per_layer) for group, term in priced if _is_attention(group, term)), 0)


def _is_attention(group: Group, term: Term) -> bool:
    return isinstance(group, HeadGroup | LatentGroup) and term.retention == "token"


def _enlarged(priced: Sequence[tuple[Group, Term]], token_bytes: int, block: int) -> int:
    """Return the block size at which a page of attention holds a state, or a page of unquantized layers."""
    if not token_bytes:
        return block
    states = [int(term.bytes_per_layer) for _, term in priced if term.retention == "state"]
    if states:
        block *= -(-max(states) // (block * token_bytes))
    largest = max(int(term.bytes_per_layer) for group, term in priced if _is_attention(group, term))
    if largest > token_bytes:
        block *= -(-largest * _KERNEL_BLOCK_TOKENS // (block * token_bytes))
    return block


def _compressors(attention: CompressedLatent, options: ModelBytesOptions) -> list[CacheLayers]:
    """Return the sliding windows in which compressors collect keys and scores of incomplete entries."""
    ratios = attention.compress_ratios
    ratios += attention.draft_compress_ratios if options.counts_draft_layers else ()
    found = []
    for ratio in dict.fromkeys(ratio for ratio in ratios if ratio in _COMPRESSORS):
        block, entries = _COMPRESSORS[ratio]
        widths = [("compressor states", attention.head_dim)]
        widths += [("index compressor states", attention.index_head_dim)] if ratio == _INDEXED else []
        for name, dim in widths:
            page = block * 2 * entries * dim * _FP32_BYTES
            page = -(-page // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
            name = f"1:{ratio} {name}"
            window = entries * ratio
            found.append(
                CacheLayers(name, "window", ratios.count(ratio), block, page, window, paddable=False)
            )
    return found


def _shared_compressors(attention: SharedCompressedLatent, options: ModelBytesOptions) -> list[CacheLayers]:
    """Return the buffers in which the source layers of a ratio above 1 collect an incomplete entry."""
    layers = sum(attention.compress_ratios[layer] > 1 for layer in attention.kv_source_layers)
    rows = max(8, 1 << (options.num_speculative_tokens + 1).bit_length())
    page = rows * 2 * attention.head_dim * _FP32_BYTES
    return [_ring("compressor buffers", layers, rows, page)] if layers else []


def _pool_tails(attention: KdaSparseLatent, options: ModelBytesOptions) -> list[CacheLayers]:
    """Return the buffers that hold the tokens of an incomplete index pool, and those drafted ahead."""
    pool = attention.index_pool_tokens
    pools = -(-(pool + options.num_speculative_tokens) // pool)
    tokens = pool * (1 << (pools - 1).bit_length())
    layers = attention.indexer_layers
    layers += attention.draft_indexer_layers if options.counts_draft_layers else 0
    page = tokens * 2 * attention.index_head_dim * attention.index_tail_element_bytes
    return [_ring("tails of index pools", layers, tokens, page)]


def _ring(name: str, layers: int, tokens: int, page: int) -> CacheLayers:
    return CacheLayers(name, "ring", layers, tokens, page, paddable=False, prefix_cached=False)

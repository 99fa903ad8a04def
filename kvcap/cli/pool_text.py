"""What an engine makes of a model, as text or JSON: groups, blocks, and the figures that it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from kvcap.cli.tables import print_table
from kvcap.models.pools import CacheGroup, SglangPool, VllmPool
from kvcap.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_WINDOWS = {"window": "window of {:,}", "chunked": "chunks of {:,}"}


def pool_to_dict(pool: VllmPool | SglangPool, memory_bytes: int | None) -> dict[str, Any]:
    """Return the keys of an engine's pools; what depends on memory is null without it."""
    if isinstance(pool, VllmPool):
        return _vllm_to_dict(pool, memory_bytes)
    return _sglang_to_dict(pool, memory_bytes)


def write_pool(pool: VllmPool | SglangPool, memory_bytes: int | None, stream: TextIO) -> None:
    """Write the groups, and with a memory the blocks and tokens as the engine prints them."""
    if isinstance(pool, VllmPool):
        _write_vllm(pool, memory_bytes, stream)
    else:
        _write_sglang(pool, memory_bytes, stream)
    for note in pool.notes:
        print(f"note: {note}", file=stream)


def _vllm_to_dict(pool: VllmPool, memory_bytes: int | None) -> dict[str, Any]:
    blocks = None if memory_bytes is None else pool.pool_blocks(memory_bytes)
    return {
        "engine": "vllm",
        "memory_bytes": memory_bytes,
        "max_model_len": pool.max_model_len,
        "block_bytes": pool.block_bytes,
        "alignment_tokens": pool.alignment_tokens,
        "pool_blocks": blocks,
        "printed_tokens": None if blocks is None else pool.printed_tokens(blocks),
        "max_concurrency": None if blocks is None else pool.concurrency(blocks),
        "request_blocks": pool.request_blocks,
        "groups": [
            {**_group_to_dict(group), "request_blocks": blocks}
            for group, blocks in zip(pool.groups, pool.group_request_blocks, strict=True)
        ],
    }


def _sglang_to_dict(pool: SglangPool, memory_bytes: int | None) -> dict[str, Any]:
    sizes = None if memory_bytes is None else pool.sizes(memory_bytes)
    tokens = None if sizes is None else sizes.max_total_num_tokens
    return {
        "engine": "sglang",
        "memory_bytes": memory_bytes,
        "block_bytes": float(pool.token_bytes * pool.page_tokens),
        "alignment_tokens": pool.page_tokens,
        "pool_blocks": None if tokens is None else tokens // pool.page_tokens,
        "printed_tokens": tokens,
        "max_total_num_tokens": tokens,
        "window_pool_tokens": None if sizes is None else sizes.window_tokens,
        "state_slots": None if sizes is None else sizes.state_slots,
        "token_bytes": float(pool.token_bytes),
        "window_token_bytes": float(pool.window_token_bytes),
        "state_bytes": float(pool.state_bytes),
        "groups": [_group_to_dict(group) for group in pool.groups],
    }


def _group_to_dict(group: CacheGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "kind": group.kind,
        "window_tokens": group.window_tokens,
        "layers": group.layers,
        "block_tokens": group.block_tokens,
        "group_bytes": group.group_bytes,
        "prefix_cached": group.prefix_cached,
    }


def _write_vllm(pool: VllmPool, memory_bytes: int | None, stream: TextIO) -> None:
    headers = ("group", "keeps", "layers", "block tokens", "B of a block", "blocks of a request")
    rows = [
        (*_row(group), f"{blocks:,}")
        for group, blocks in zip(pool.groups, pool.group_request_blocks, strict=True)
    ]
    print_table(headers, rows, stream, left=2)
    print(
        f"a block of the pool is {pool.block_bytes:,} B; a reused prefix ends at a multiple of "
        f"{pool.alignment_tokens:,} tokens",
        file=stream,
    )
    if memory_bytes is None:
        print("with --memory: the blocks and the tokens that vLLM prints", file=stream)
        return
    blocks = pool.pool_blocks(memory_bytes)
    print(f"{format_size(memory_bytes)}: {blocks:,} blocks, one of them held back", file=stream)
    print(f"GPU KV cache size: {pool.printed_tokens(blocks):,} tokens", file=stream)
    print(
        f"Maximum concurrency for {pool.max_model_len:,} tokens per request: {pool.concurrency(blocks):.2f}x",
        file=stream,
    )


def _write_sglang(pool: SglangPool, memory_bytes: int | None, stream: TextIO) -> None:
    print_table(
        ("group", "keeps", "layers", "page tokens", "B of a page"),
        [_row(g) for g in pool.groups],
        stream,
        left=2,
    )
    print(f"a token of full attention is {_number(float(pool.token_bytes))} B", file=stream)
    if pool.window_token_bytes:
        print(
            f"a token of windows is {_number(float(pool.window_token_bytes))} B, "
            f"{float(pool.window_ratio):g} of them for each of full attention",
            file=stream,
        )
    if memory_bytes is None:
        print("with --memory: the tokens that SGLang prints", file=stream)
        return
    sizes = pool.sizes(memory_bytes)
    print(f"{format_size(memory_bytes)}: max_total_num_tokens={sizes.max_total_num_tokens}", file=stream)
    if sizes.window_tokens is not None:
        print(f"window pool: {sizes.window_tokens:,} tokens", file=stream)
    if sizes.state_slots is not None:
        state = format_size(float(pool.state_bytes))
        print(f"states: {sizes.state_slots:,} of {state}", file=stream)


def _row(group: CacheGroup) -> Sequence[str]:
    keeps = _WINDOWS.get(group.kind, group.kind).format(group.window_tokens)
    return (group.name, keeps, str(group.layers), f"{group.block_tokens:,}", f"{group.group_bytes:,}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"

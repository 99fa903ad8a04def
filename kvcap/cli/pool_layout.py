"""How what an engine makes of a model is laid out: groups, blocks, and the figures that it prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcap.cli.writer import Column, Table
from kvcap.models.pools import CacheGroup, SglangPool, VllmPool
from kvcap.units import format_count, format_size

_WINDOWS = {"window": "window of {:,}", "chunked": "chunks of {:,}"}


def pool_to_dict(pool: VllmPool | SglangPool, memory_bytes: int | None) -> dict[str, Any]:
    """Return the keys of an engine's pools; what depends on memory is null without it."""
    if isinstance(pool, VllmPool):
        return _vllm_to_dict(pool, memory_bytes)
    return _sglang_to_dict(pool, memory_bytes)


def pool_parts(pool: VllmPool | SglangPool, memory_bytes: int | None) -> Iterator[str | Table]:
    """Yield the groups, and with a memory the blocks and tokens as the engine prints them."""
    if isinstance(pool, VllmPool):
        yield from _vllm_parts(pool, memory_bytes)
    else:
        yield from _sglang_parts(pool, memory_bytes)
    yield from (f"note: {note}" for note in pool.notes)


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


def _vllm_parts(pool: VllmPool, memory_bytes: int | None) -> Iterator[str | Table]:
    blocks_of = dict(zip(map(id, pool.groups), pool.group_request_blocks, strict=True))
    of_request = Column("blocks of a request", lambda group: blocks_of[id(group)], format_count)
    yield Table([*_group_columns("block"), of_request], pool.groups)
    yield (
        f"a block of the pool is {pool.block_bytes:,} B; a reused prefix ends at a multiple of "
        f"{pool.alignment_tokens:,} tokens"
    )
    if memory_bytes is None:
        yield "with --memory: the blocks and the tokens that vLLM prints"
        return
    blocks = pool.pool_blocks(memory_bytes)
    yield f"{format_size(memory_bytes)}: {blocks:,} blocks, one of them held back"
    yield f"GPU KV cache size: {pool.printed_tokens(blocks):,} tokens"
    concurrency = pool.concurrency(blocks)
    yield f"Maximum concurrency for {pool.max_model_len:,} tokens per request: {concurrency:.2f}x"
    if blocks <= pool.request_blocks:
        yield f"too few for one request of {pool.max_model_len:,} tokens: vLLM does not start"


def _sglang_parts(pool: SglangPool, memory_bytes: int | None) -> Iterator[str | Table]:
    yield Table(_group_columns("page"), pool.groups)
    yield f"a token of full attention is {_number(float(pool.token_bytes))} B"
    if pool.window_token_bytes:
        yield (
            f"a token of windows is {_number(float(pool.window_token_bytes))} B, "
            f"{float(pool.window_ratio):g} of them for each of full attention"
        )
    if memory_bytes is None:
        yield "with --memory: the tokens that SGLang prints"
        return
    sizes = pool.sizes(memory_bytes)
    yield f"{format_size(memory_bytes)}: max_total_num_tokens={sizes.max_total_num_tokens}"
    if sizes.window_tokens is not None:
        yield f"window pool: {sizes.window_tokens:,} tokens"
    if sizes.state_slots is not None:
        yield f"states: {sizes.state_slots:,} of {format_size(float(pool.state_bytes))}"


def _group_columns(block: str) -> list[Column]:
    return [
        Column("group", "name", is_text=True),
        Column("keeps", _keeps, is_text=True),
        Column("layers", "layers"),
        Column(f"{block} tokens", "block_tokens", format_count),
        Column(f"B of a {block}", "group_bytes", format_count),
    ]


def _keeps(group: CacheGroup) -> str:
    return _WINDOWS.get(group.kind, group.kind).format(group.window_tokens)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"

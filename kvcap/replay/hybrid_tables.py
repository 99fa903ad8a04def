"""The tables of an engine's own cache of a hybrid model: pool by pool, and all pools together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.engines.hybrid import IdRequests
from kvcap.errors import UsageError
from kvcap.kernels.arrays import Int64Array
from kvcap.queries.run_info import GroupInfo, HybridInfo
from kvcap.replay.policy_tables import numbered_from_0, pools, request_rows, simulation_tables

if TYPE_CHECKING:
    from kvcap.engines.hybrid import HybridCache
    from kvcap.options import ReplayOptions
    from kvcap.replay.stream import StreamedTrace


def hybrid_info(streamed: StreamedTrace, cache: HybridCache, warm_up_requests: int) -> HybridInfo:
    """Return what the metadata of a run tell of an engine's own cache, its ceiling included."""
    _check_ids(streamed)
    ceiling = sum(
        int(cache.cache.ceiling_tokens(requests)[ids >= warm_up_requests].sum())
        for _, ids, requests in _requests(streamed)
    )
    groups = cache.cache.groups
    return HybridInfo(
        policy=cache.policy,
        groups=tuple(
            GroupInfo(group.name, group.kind, group.layers, group.block_tokens, group.window_tokens)
            for group in groups
        ),
        alignment_tokens=cache.cache.alignment_tokens,
        block_bytes=cache.block_bytes,
        spare_blocks=cache.spare_blocks,
        ceiling_tokens=ceiling,
        requests_without_output=streamed.columns.column("output_length").null_count,
    )


def hybrid_tables(
    streamed: StreamedTrace,
    options: ReplayOptions,
    cache: HybridCache,
    usable_blocks: Sequence[int],
    warm_up_requests: int,
) -> dict[str, pa.Table]:
    """Return rows of the table ``policies``, and of ``policy_requests`` if it was asked for.

    Parameters
    ----------
    streamed
        A trace after its pass, whose blocks are its ids.
    options
        With the rules to simulate by.
    cache
        The engine's cache of the model.
    usable_blocks
        Capacities of each pool, in blocks of the engine's pool that hold data.
    warm_up_requests
        How many requests, from the first, only fill the caches.
    """
    rows: list[dict[str, Any]] = []
    by_request: list[pa.Table] = []
    capacities = sorted(set(usable_blocks))
    for pool, ids, requests in _requests(streamed):
        measured = ids >= warm_up_requests
        for reserve in sorted({0, options.rules.reserve_blocks}):
            data_blocks = np.maximum(0, np.array(capacities, np.int64) - reserve)
            found = cache.cache.hit_tokens(requests, data_blocks)
            for capacity, data, tokens in zip(capacities, data_blocks.tolist(), found, strict=True):
                point = {
                    "policy": cache.policy,
                    "capacity_blocks": capacity,
                    "reserved_blocks": reserve,
                }
                hit_tokens = np.maximum(tokens, 0)
                hit_blocks = hit_tokens // streamed.block_size
                rows.append(
                    {
                        **point,
                        "pool": pool,
                        "data_blocks": data,
                        "hit_blocks": int(hit_blocks[measured].sum()),
                        "hit_tokens": int(hit_tokens[measured].sum()),
                        "dropped_requests": np.count_nonzero(measured & (tokens < 0)),
                    }
                )
                if options.rules.request_hits:
                    by_request.append(request_rows(point, ids, hit_blocks, hit_tokens))
    return simulation_tables(rows, by_request, options.rules.policies)


def _requests(streamed: StreamedTrace) -> Iterator[tuple[str | None, Int64Array, IdRequests]]:
    """Yield every pool, the requests in it, and those as paths of ids."""
    outputs = pc.fill_null(streamed.columns.column("output_length"), 0).to_numpy().astype(np.int64)
    for pool, ids in pools(streamed.columns.column("pool")):
        yield (
            pool,
            ids,
            IdRequests.from_runs(
                numbered_from_0(streamed.runs, ids, streamed.blocks.size),
                streamed.touched_blocks[ids],
                streamed.block_size,
                streamed.input_tokens[ids],
                outputs[ids],
            ),
        )


def _check_ids(streamed: StreamedTrace) -> None:
    """Refuse ids of unequal tokens, which do not say where an engine's blocks end.

    Raises
    ------
    UsageError
        If an id that is not its prompt's last one covers other than a whole block.
    """
    runs = streamed.runs
    inner = runs.first_block + runs.blocks < streamed.blocks[runs.request]
    if np.any(runs.tokens_per_block > streamed.block_size) or np.any(
        inner & (runs.tokens_per_block < streamed.block_size)
    ):
        raise UsageError(
            "ids of this log cover unequal numbers of tokens, which does not say where an engine's blocks "
            "end: expected --policies without --engine"
        )

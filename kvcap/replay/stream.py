"""One pass over a trace: batches in, reuse runs and per-request columns out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvcap.blocks.keyer import BlockKeyer, KeyedRequests
from kvcap.kernels.arrays import Int64Array, offsets_of
from kvcap.kernels.keys import take_requests
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.run_tables import WeightedRuns, split_by_weight
from kvcap.schema import PAYLOAD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_PAYLOAD_NAMES = frozenset(column.name for columns in PAYLOAD_COLUMNS.values() for column in columns)


@dataclass
class _Pool:
    """One cache: its LRU stack, and which request of the trace each of its requests is."""

    scanner: ReuseRunScanner
    request_ids: list[Int64Array] = field(default_factory=list)

    def global_ids(self) -> Int64Array:
        """Return the request ids so far as one array: int64 (n_requests of this pool,)."""
        if len(self.request_ids) > 1:
            self.request_ids = [np.concatenate(self.request_ids)]
        return self.request_ids[0]


@dataclass(frozen=True)
class StreamedTrace:
    """What is left of a trace after its pass.

    Attributes
    ----------
    runs
        Reuse runs of equal weights by request id, then position, over all blocks that requests touch.
    columns
        The trace without its payload, one row per request.
    blocks, touched_blocks, input_tokens, output_tokens : int64 (n_requests,)
        Blocks of the prompt, those with the generated ones behind it, prompt length, and generated tokens
        that take part (``UNKNOWN_TOKENS`` where the log does not say).
    cacheable_tokens : int64 (n_requests,)
        Sum of the weights of the prompt's blocks.
    block_size, coarsen
        Tokens of a full block, and how many blocks of the trace it is; 0 for an empty trace.
    max_depth, forgotten_blocks
        Depth from which blocks were forgotten (None: none), and how many; runs deeper than that are
        incomplete. One that came back and was forgotten again counts twice.
    """

    runs: WeightedRuns
    columns: pa.Table
    blocks: Int64Array
    touched_blocks: Int64Array
    input_tokens: Int64Array
    output_tokens: Int64Array
    cacheable_tokens: Int64Array
    block_size: int
    coarsen: int
    max_depth: int | None = None
    forgotten_blocks: int = 0


def keyed_batches(
    batches: Iterable[pa.RecordBatch], keyer: BlockKeyer
) -> Iterator[tuple[pa.RecordBatch, KeyedRequests]]:
    """Yield the batches that hold requests, and their block keys."""
    for batch in batches:
        if batch.num_rows:
            yield batch, keyer.key(batch)


def stream(
    batches: Iterable[tuple[pa.RecordBatch, KeyedRequests]],
    schema: pa.Schema,
    max_depth_at: Callable[[int], int | None] | None = None,
    threads: int = 1,
) -> StreamedTrace:
    """Replay every batch, each pool on its own stack.

    Parameters
    ----------
    batches
        Requests in replay order, of ``schema``, and their block keys; see :func:`keyed_batches`.
    schema
        Schema of the trace.
    max_depth_at
        Returns the depth from which blocks may be forgotten, from the block size.
    threads
        How many pools are replayed at once.
    """
    max_depth: int | None = None
    pools: dict[str | None, _Pool] = {}
    names = [name for name in schema.names if name not in _PAYLOAD_NAMES]
    columns: list[pa.RecordBatch] = []
    runs: list[WeightedRuns] = []
    counts = [np.empty((5, 0), np.int64)]
    block_size = coarsen = 0
    first_id = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="kvcap-replay") as executor:
        for batch, keyed in batches:
            block_size, coarsen = keyed.block_size, keyed.coarsen
            if max_depth_at is not None and max_depth is None:
                max_depth = max_depth_at(block_size)
            parts = list(_by_pool(keyed, batch.column("pool"), first_id, pools, max_depth))
            # Kernels run without the interpreter lock.
            replayed = executor.map if min(threads, len(parts)) > 1 else map
            runs.extend(replayed(_replay_part, parts))
            columns.append(batch.select(names))
            counts.append(
                np.stack(
                    [
                        keyed.prompt_blocks,
                        np.diff(keyed.request_offsets),
                        keyed.input_tokens,
                        keyed.output_tokens,
                        _cacheable_tokens(keyed),
                    ]
                )
            )
            first_id += batch.num_rows
    blocks, touched_blocks, input_tokens, output_tokens, cacheable_tokens = np.concatenate(counts, axis=1)
    return StreamedTrace(
        runs=_in_request_order(runs),
        columns=pa.Table.from_batches(columns, pa.schema([schema.field(name) for name in names])),
        blocks=blocks,
        touched_blocks=touched_blocks,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cacheable_tokens=cacheable_tokens,
        block_size=block_size,
        coarsen=coarsen,
        max_depth=max_depth,
        forgotten_blocks=sum(pool.scanner.forgotten_blocks for pool in pools.values()),
    )


def _cacheable_tokens(keyed: KeyedRequests) -> Int64Array:
    """Return the sum of the weights of each prompt's blocks: int64 (n_requests,)."""
    if keyed.block_tokens is not None:
        summed = offsets_of(keyed.block_tokens)
        explicit: Int64Array = np.diff(summed[offsets_of(keyed.prompt_blocks)])
        return explicit
    filled_blocks = -(-keyed.covered_tokens // keyed.block_size)
    # Blocks beyond what the prompt fills weigh one token each.
    covered: Int64Array = keyed.covered_tokens + np.maximum(0, keyed.prompt_blocks - filled_blocks)
    return covered


@dataclass(frozen=True)
class _Part:
    """Requests of one pool in a batch: places in the batch (None: all), and ids of the whole trace."""

    pool: _Pool
    keyed: KeyedRequests
    chosen: Int64Array | None
    ids: Int64Array


def _by_pool(
    keyed: KeyedRequests,
    pool_column: pa.Array,
    first_id: int,
    pools: dict[str | None, _Pool],
    max_depth: int | None,
) -> Iterable[_Part]:
    """Yield the requests of each pool in one batch."""
    n_requests = keyed.request_offsets.size - 1
    ids = np.arange(first_id, first_id + n_requests)
    if pool_column.null_count == n_requests:
        yield _Part(_pool(pools, None, max_depth), keyed, None, ids)
        return
    import pyarrow.compute as pc  # Slow to import, and most traces are one pool.

    values = pc.unique(pool_column).to_pylist()
    if len(values) == 1:
        yield _Part(_pool(pools, values[0], max_depth), keyed, None, ids)
        return
    for value in values:
        mask = pc.is_null(pool_column) if value is None else pc.equal(pool_column, value)
        chosen = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).astype(np.int64)
        yield _Part(_pool(pools, value, max_depth), keyed, chosen, ids[chosen])


def _pool(pools: dict[str | None, _Pool], value: str | None, max_depth: int | None) -> _Pool:
    if value not in pools:
        pools[value] = _Pool(ReuseRunScanner(max_depth))
    return pools[value]


def _chosen(keyed: KeyedRequests, chosen: Int64Array) -> KeyedRequests:
    keys, offsets = take_requests(keyed.block_keys, keyed.request_offsets, chosen)
    block_tokens = None
    if keyed.block_tokens is not None:
        block_tokens, _ = take_requests(keyed.block_tokens, offsets_of(keyed.prompt_blocks), chosen)
    return replace(
        keyed,
        block_keys=keys,
        request_offsets=offsets,
        prompt_blocks=keyed.prompt_blocks[chosen],
        input_tokens=keyed.input_tokens[chosen],
        covered_tokens=keyed.covered_tokens[chosen],
        block_tokens=block_tokens,
        output_tokens=keyed.output_tokens[chosen],
    )


def _replay_part(part: _Part) -> WeightedRuns:
    """Replay requests of one pool and return their runs, with ids of the whole trace."""
    pool, ids = part.pool, part.ids
    keyed = part.keyed if part.chosen is None else _chosen(part.keyed, part.chosen)
    before = pool.scanner.n_requests
    runs = pool.scanner.feed(keyed.block_keys, keyed.request_offsets)
    local = runs._replace(request=runs.request - before)
    weighted = split_by_weight(
        local, offsets_of(keyed.prompt_blocks), keyed.covered_tokens, keyed.block_size, keyed.block_tokens
    )
    pool.request_ids.append(ids)
    return weighted._replace(
        request=ids[weighted.request], source_request=pool.global_ids()[weighted.source_request]
    )


def _in_request_order(runs: list[WeightedRuns]) -> WeightedRuns:
    if not runs:
        return WeightedRuns(*(np.empty(0, np.int64) for _ in WeightedRuns._fields))
    joined = WeightedRuns(*(np.concatenate(column) for column in zip(*runs, strict=True)))
    if np.all(joined.request[1:] >= joined.request[:-1]):
        return joined
    order = np.argsort(joined.request, kind="stable")
    return WeightedRuns(*(column[order] for column in joined))

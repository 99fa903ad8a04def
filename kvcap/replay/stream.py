"""One pass over a trace: batches in, reuse runs and per-request columns out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.blocks import BlockKeyer, KeyedRequests
from kvcap.kernels.keys import take_requests
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.run_tables import WeightedRuns, split_by_weight
from kvcap.schema import PAYLOAD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

Int64Array = npt.NDArray[np.int64]

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
        Reuse runs of equal weights by request id, then position.
    columns
        The trace without its payload, one row per request.
    blocks, input_tokens, cacheable_tokens : int64 (n_requests,)
        Blocks looked up, prompt length, and the sum of the blocks' weights.
    block_size
        Tokens of a full block; 0 for an empty trace.
    """

    runs: WeightedRuns
    columns: pa.Table
    blocks: Int64Array
    input_tokens: Int64Array
    cacheable_tokens: Int64Array
    block_size: int


def stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, keyer: BlockKeyer) -> StreamedTrace:
    """Replay every batch, each pool on its own stack.

    Parameters
    ----------
    batches
        Requests in replay order, of ``schema``.
    schema
        Schema of the trace.
    keyer
        Turns them into block keys.
    """
    pools: dict[str | None, _Pool] = {}
    names = [name for name in schema.names if name not in _PAYLOAD_NAMES]
    columns: list[pa.RecordBatch] = []
    runs: list[WeightedRuns] = []
    blocks: list[Int64Array] = [np.empty(0, np.int64)]
    input_tokens: list[Int64Array] = [np.empty(0, np.int64)]
    cacheable_tokens: list[Int64Array] = [np.empty(0, np.int64)]
    block_size = 0
    first_id = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keyed = keyer.key(batch)
        block_size = keyed.block_size
        runs.extend(_replay_batch(keyed, batch.column("pool"), first_id, pools))
        columns.append(batch.select(names))
        blocks.append(np.diff(keyed.request_offsets))
        input_tokens.append(keyed.input_tokens)
        cacheable_tokens.append(_cacheable_tokens(keyed))
        first_id += batch.num_rows
    return StreamedTrace(
        runs=_in_request_order(runs),
        columns=pa.Table.from_batches(columns, pa.schema([schema.field(name) for name in names])),
        blocks=np.concatenate(blocks),
        input_tokens=np.concatenate(input_tokens),
        cacheable_tokens=np.concatenate(cacheable_tokens),
        block_size=block_size,
    )


def _cacheable_tokens(keyed: KeyedRequests) -> Int64Array:
    """Return the sum of each request's block weights: int64 (n_requests,)."""
    if keyed.block_tokens is not None:
        summed = np.concatenate([np.zeros(1, np.int64), np.cumsum(keyed.block_tokens, dtype=np.int64)])
        explicit: Int64Array = np.diff(summed[keyed.request_offsets])
        return explicit
    filled_blocks = -(-keyed.covered_tokens // keyed.block_size)
    # Blocks beyond what the prompt fills weigh one token each.
    return keyed.covered_tokens + np.maximum(0, np.diff(keyed.request_offsets) - filled_blocks)


def _replay_batch(
    keyed: KeyedRequests, pool_column: pa.Array, first_id: int, pools: dict[str | None, _Pool]
) -> Iterable[WeightedRuns]:
    """Yield the runs of each pool's requests in one batch, with ids of the whole trace."""
    n_requests = keyed.request_offsets.size - 1
    ids = np.arange(first_id, first_id + n_requests)
    values = pc.unique(pool_column).to_pylist()
    if len(values) == 1:
        yield _replay_pool(_pool(pools, values[0]), keyed, ids)
        return
    for value in values:
        mask = pc.is_null(pool_column) if value is None else pc.equal(pool_column, value)
        chosen = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).astype(np.int64)
        yield _replay_pool(_pool(pools, value), _chosen(keyed, chosen), ids[chosen])


def _pool(pools: dict[str | None, _Pool], value: str | None) -> _Pool:
    if value not in pools:
        pools[value] = _Pool(ReuseRunScanner())
    return pools[value]


def _chosen(keyed: KeyedRequests, chosen: Int64Array) -> KeyedRequests:
    keys, offsets = take_requests(keyed.block_keys, keyed.request_offsets, chosen)
    block_tokens = None
    if keyed.block_tokens is not None:
        block_tokens, _ = take_requests(keyed.block_tokens, keyed.request_offsets, chosen)
    return KeyedRequests(
        keys,
        offsets,
        keyed.input_tokens[chosen],
        keyed.covered_tokens[chosen],
        block_tokens,
        keyed.block_size,
    )


def _replay_pool(pool: _Pool, keyed: KeyedRequests, ids: Int64Array) -> WeightedRuns:
    before = pool.scanner.n_requests
    runs = pool.scanner.feed(keyed.block_keys, keyed.request_offsets)
    local = runs._replace(request=runs.request - before)
    weighted = split_by_weight(
        local, keyed.request_offsets, keyed.covered_tokens, keyed.block_size, keyed.block_tokens
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

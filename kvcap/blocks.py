"""From requests to prefix-chained block keys, batch by batch.

Token blocks are hashed by Polars, block ids are taken as they are; both are then chained over their
prefix. Hashes of content never leave the process: Polars keeps them stable within a version only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.errors import UsageError
from kvcap.kernels.keys import (
    chain_keys,
    drop_last_blocks,
    every_mth_key,
    gather_full_blocks,
    interleave_tails,
)

Int64Array = npt.NDArray[np.int64]
PartialBlock = Literal["keep", "drop"]

DEFAULT_TOKEN_BLOCK_SIZE: Final = 64
DEFAULT_PARTIAL_BLOCK: Final[dict[str, PartialBlock]] = {"token_ids": "drop", "hash_ids": "keep"}


@dataclass(frozen=True)
class BlockOptions:
    """What a block is.

    Parameters
    ----------
    block_size
        Tokens per block: of a token trace (None: 64), or of hash ids that declare none.
    coarsen
        How many consecutive blocks become one.
    partial_block
        Whether an incomplete last block counts as a block; None drops it in token traces and keeps it
        in hash traces.
    """

    block_size: int | None = None
    coarsen: int = 1
    partial_block: PartialBlock | None = None


@dataclass(frozen=True)
class KeyedRequests:
    """Requests as block keys.

    Attributes
    ----------
    block_keys : uint64 (n_accesses,)
        Equal key, equal prefix.
    request_offsets : int64 (n_requests + 1,)
        Request r owns ``block_keys[request_offsets[r]:request_offsets[r + 1]]``.
    input_tokens : int64 (n_requests,)
        Prompt length, the denominator of token rates.
    covered_tokens : int64 (n_requests,)
        Tokens of the prompt that its blocks cover: block i weighs ``covered_tokens - i * block_size``,
        at least 1 and at most ``block_size``.
    block_tokens : int32 (n_accesses,) or None
        Explicit weights; None where they follow from ``covered_tokens``.
    block_size
        Tokens of a full block, after coarsening.
    """

    block_keys: npt.NDArray[np.uint64]
    request_offsets: Int64Array
    input_tokens: Int64Array
    covered_tokens: Int64Array
    block_tokens: npt.NDArray[np.int32] | None
    block_size: int


class BlockKeyer:
    """Key the batches of one trace, all with one block size.

    Parameters
    ----------
    options
        What a block is.
    chained
        Whether hash ids are keys of whole prefixes already and need no chaining.
    """

    def __init__(self, options: BlockOptions, *, chained: bool = False) -> None:
        self._options = options
        self._chained = chained
        self._declared_block_size: int | None = None

    def key(self, batch: pa.RecordBatch) -> KeyedRequests:
        """Return the block keys of a batch of a token or hash trace.

        Raises
        ------
        UsageError
            If hash ids come without a block size, or with several.
        """
        keyed = self._key_tokens(batch) if "token_ids" in batch.schema.names else self._key_hashes(batch)
        return _coarsened(keyed, self._options.coarsen, keep_incomplete=self._keeps_partial(batch))

    def _keeps_partial(self, batch: pa.RecordBatch) -> bool:
        kind = "token_ids" if "token_ids" in batch.schema.names else "hash_ids"
        return (self._options.partial_block or DEFAULT_PARTIAL_BLOCK[kind]) == "keep"

    def _key_tokens(self, batch: pa.RecordBatch) -> KeyedRequests:
        block_size = self._options.block_size or DEFAULT_TOKEN_BLOCK_SIZE
        tokens, token_offsets = list_arrays(batch.column("token_ids"), np.dtype(np.uint32))
        full, tails, tail_lengths = gather_full_blocks(tokens, token_offsets, block_size)
        contents = _hash_blocks(full, block_size)
        lengths = np.diff(token_offsets)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths // block_size)])
        if self._keeps_partial(batch):
            contents, offsets = interleave_tails(
                contents, _hash_blocks(tails, block_size), tail_lengths, offsets
            )
        covered = np.minimum(lengths, np.diff(offsets) * block_size)
        return KeyedRequests(chain_keys(contents, offsets), offsets, lengths, covered, None, block_size)

    def _key_hashes(self, batch: pa.RecordBatch) -> KeyedRequests:
        block_size = self._hash_block_size(batch.column("block_size"))
        ids, offsets = list_arrays(batch.column("hash_ids"), np.dtype(np.uint64))
        keys = ids if self._chained else chain_keys(ids, offsets)
        input_tokens = batch.column("input_length").to_numpy(zero_copy_only=False).astype(np.int64)
        weights = batch.column("block_tokens")
        explicit = weights.null_count < len(weights)
        block_tokens = _explicit_weights(weights, offsets) if explicit else None
        if not self._keeps_partial(batch):
            if block_tokens is None:
                dropped = np.maximum(0, np.diff(offsets) - input_tokens // block_size)
            else:
                dropped = _has_incomplete_last_block(block_tokens, offsets, block_size)
                block_tokens, _ = drop_last_blocks(block_tokens, offsets, dropped)
            keys, offsets = drop_last_blocks(keys, offsets, dropped)
        covered = np.minimum(input_tokens, np.diff(offsets) * block_size)
        return KeyedRequests(keys, offsets, input_tokens, covered, block_tokens, block_size)

    def _hash_block_size(self, column: pa.Array) -> int:
        sizes = column.unique().drop_null().to_pylist()
        if self._declared_block_size is not None:
            sizes = sorted({self._declared_block_size, *sizes})
        if len(sizes) > 1:
            raise UsageError(f"the trace mixes block sizes {sizes}, expected one; replay each on its own")
        if not sizes and self._options.block_size is None:
            raise UsageError("the trace declares no block size: give --block-size")
        self._declared_block_size = int(sizes[0]) if sizes else self._options.block_size
        assert self._declared_block_size is not None
        return self._declared_block_size


def list_arrays(column: pa.ListArray, dtype: np.dtype) -> tuple[npt.NDArray, Int64Array]:  # type: ignore[type-arg]
    """Return a list column's values and offsets from 0, without a copy of the values where possible."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    array = values.to_numpy(zero_copy_only=False)
    return _writable(np.ascontiguousarray(array, dtype)), offsets - offsets[0]


def _writable(array: npt.NDArray) -> npt.NDArray:  # type: ignore[type-arg]
    """Return a view that Numba takes for writable: Arrow's buffers are not, and a kernel has one signature.

    No kernel writes to its inputs.
    """
    if array.flags.writeable:
        return array
    address = array.__array_interface__["data"][0]
    interface = {"data": (address, False), "shape": array.shape, "typestr": array.dtype.str, "version": 3}
    holder = type("_Holder", (), {"__array_interface__": interface, "owner": array})()
    return np.asarray(holder)


def _hash_blocks(tokens: npt.NDArray[np.uint32], block_size: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of every block of tokens: uint32 (n * block_size,) -> uint64 (n,)."""
    if tokens.size == 0:
        return np.empty(0, np.uint64)
    # Hash traces never need it, and a tenth of a second of start-up is a tenth of a small replay.
    import polars as pl

    hashes = pl.Series(tokens).reshape((-1, block_size)).hash()
    return np.ascontiguousarray(hashes.to_numpy(), np.uint64)


def _explicit_weights(weights: pa.ListArray, offsets: Int64Array) -> npt.NDArray[np.int32]:
    if weights.null_count:
        raise UsageError("block_tokens stand in some records only, expected in all or none")
    values, weight_offsets = list_arrays(weights, np.dtype(np.int32))
    if not np.array_equal(weight_offsets, offsets):
        raise UsageError("block_tokens and hash_ids differ in length")
    return values


def _has_incomplete_last_block(
    block_tokens: npt.NDArray[np.int32], offsets: Int64Array, block_size: int
) -> Int64Array:
    """Return 1 for each request whose last block is not full, 0 for others."""
    incomplete = np.zeros(offsets.size - 1, np.int64)
    occupied = np.diff(offsets) > 0
    incomplete[occupied] = block_tokens[offsets[1:][occupied] - 1] < block_size
    return incomplete


def _coarsened(keyed: KeyedRequests, coarsen: int, *, keep_incomplete: bool) -> KeyedRequests:
    if coarsen == 1:
        return keyed
    keys, offsets = every_mth_key(keyed.block_keys, keyed.request_offsets, coarsen, keep_incomplete)
    block_tokens = None
    if keyed.block_tokens is not None:
        block_tokens = _summed_weights(keyed.block_tokens, keyed.request_offsets, offsets, coarsen)
    return KeyedRequests(
        keys,
        offsets,
        keyed.input_tokens,
        np.minimum(keyed.covered_tokens, np.diff(offsets) * keyed.block_size * coarsen),
        block_tokens,
        keyed.block_size * coarsen,
    )


def _summed_weights(
    block_tokens: npt.NDArray[np.int32], fine_offsets: Int64Array, offsets: Int64Array, coarsen: int
) -> npt.NDArray[np.int32]:
    """Return the weights of blocks ``coarsen`` times larger."""
    groups = np.diff(offsets)
    group = np.arange(offsets[-1]) - np.repeat(offsets[:-1], groups)
    first = np.repeat(fine_offsets[:-1], groups) + group * coarsen
    end = np.minimum(first + coarsen, np.repeat(fine_offsets[1:], groups))
    summed = np.concatenate([np.zeros(1, np.int64), np.cumsum(block_tokens, dtype=np.int64)])
    weights: npt.NDArray[np.int32] = (summed[end] - summed[first]).astype(np.int32)
    return weights

"""From requests to prefix-chained block keys, batch by batch.

Token blocks are hashed by Polars, block ids are taken as they are; both are then chained over their
prefix. Hashes of content never leave the process: Polars keeps them stable within a version only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.blocks.options import BlockOptions
from kvcap.errors import UsageError
from kvcap.kernels.arrays import Int64Array, UInt64Array, offsets_of
from kvcap.kernels.engine_rules import generated_blocks, with_private_blocks
from kvcap.kernels.keys import (
    append_to_requests,
    chain_keys,
    drop_last_blocks,
    enter_roots,
    every_mth_key,
    fold_media,
    gather_full_blocks,
    interleave_tails,
    media_roots,
)

UNKNOWN_TOKENS: Final = -1
_FEW_NAMES: Final = 4096
"""So many are encoded one by one: Arrow's own way is quicker from here on, but slow to import."""


@dataclass(frozen=True)
class KeyedRequests:
    """Requests as block keys.

    Attributes
    ----------
    block_keys : uint64 (n_accesses,)
        Equal key, equal prefix.
    request_offsets : int64 (n_requests + 1,)
        Request r touches ``block_keys[request_offsets[r]:request_offsets[r + 1]]``.
    prompt_blocks : int64 (n_requests,)
        How many of them, from the first, belong to its prompt; those behind hold generated tokens.
    input_tokens : int64 (n_requests,)
        Prompt length, the denominator of token rates.
    covered_tokens : int64 (n_requests,)
        Tokens of the prompt that its blocks cover: block i weighs ``covered_tokens - i * block_size``,
        at least 1 and at most ``block_size``.
    block_tokens : int32 (sum of prompt_blocks,) or None
        Explicit weights of the prompts' blocks; None where they follow from ``covered_tokens``.
    block_size, coarsen
        Tokens of a full block, and how many blocks of the trace it is.
    output_tokens : int64 (n_requests,)
        Generated tokens that take part: none without output blocks, ``UNKNOWN_TOKENS`` where the log does
        not say.
    """

    block_keys: npt.NDArray[np.uint64]
    request_offsets: Int64Array
    prompt_blocks: Int64Array
    input_tokens: Int64Array
    covered_tokens: Int64Array
    block_tokens: npt.NDArray[np.int32] | None
    block_size: int
    coarsen: int
    output_tokens: Int64Array


class BlockKeyer:
    """Key the batches of one trace, all with one block size.

    Parameters
    ----------
    options
        What a block is.
    chained
        Whether hash ids are keys of whole prefixes already, within their namespace, and need no chaining.
    namespaces
        Whether namespaces enter the keys, so that no block is shared across them.
    media
        Whether media enter the keys where they stand; not where hash ids are keys that hold them already.
    """

    def __init__(
        self, options: BlockOptions, *, chained: bool = False, namespaces: bool = True, media: bool = True
    ) -> None:
        self._options = options
        self._chained = chained
        self._namespaces = namespaces
        self._media = media
        self._declared_block_size: int | None = None
        self._first_root: np.uint64 | None = None
        self._n_blocks = 0

    def key(self, batch: pa.RecordBatch) -> KeyedRequests:
        """Return the block keys of a batch of a token or hash trace.

        Raises
        ------
        UsageError
            If hash ids come without a block size, or with several, or one that does not make the chunks
            asked for; or if generated tokens would go behind incomplete blocks.
        """
        keeps_partial = self._keeps_partial(batch)
        if keeps_partial and self._options.output_blocks:
            raise UsageError(
                "generated tokens complete a partial last block: --output-blocks on needs "
                "--partial-block drop"
            )
        keyed = self._key_tokens(batch) if "token_ids" in batch.schema.names else self._key_hashes(batch)
        coarse = _coarsened(
            keyed, self._options.coarsen_from(keyed.block_size), keep_incomplete=keeps_partial
        )
        return self._with_generated_blocks(batch, coarse) if self._options.output_blocks else coarse

    def _keeps_partial(self, batch: pa.RecordBatch) -> bool:
        kind = "token_ids" if "token_ids" in batch.schema.names else "hash_ids"
        return self._options.partial_block_of(kind) == "keep"

    def _key_tokens(self, batch: pa.RecordBatch) -> KeyedRequests:
        block_size = self._token_block_size()
        if self._options.cut_prompts_at_ids:
            raise UsageError("a log of token ids hides nothing: expected no --cut-prompts-at-ids")
        tokens, token_offsets = list_arrays(batch.column("token_ids"), np.dtype(np.uint32))
        lengths = np.diff(token_offsets)
        if self._options.output_blocks:
            tokens, token_offsets = _with_output_ids(tokens, token_offsets, batch.column("output_ids"))
        full, tails, tail_lengths = gather_full_blocks(tokens, token_offsets, block_size)
        contents = _hash_blocks(full, block_size)
        offsets = offsets_of(np.diff(token_offsets) // block_size)
        prompt_blocks = lengths // block_size
        if self._keeps_partial(batch):
            contents, offsets = interleave_tails(
                contents, _hash_blocks(tails, block_size), tail_lengths, offsets
            )
            prompt_blocks = np.diff(offsets)
        return KeyedRequests(
            block_keys=self._chain(batch, contents, offsets, block_size),
            request_offsets=offsets,
            prompt_blocks=prompt_blocks,
            input_tokens=lengths,
            covered_tokens=np.minimum(lengths, prompt_blocks * block_size),
            block_tokens=None,
            block_size=block_size,
            coarsen=1,
            output_tokens=np.zeros_like(lengths),
        )

    def _chain(
        self, batch: pa.RecordBatch, contents: UInt64Array, offsets: Int64Array, block_size: int
    ) -> UInt64Array:
        """Return keys chained over contents, namespaces and media."""
        roots = self._roots(batch)
        column = _column(batch, "media_hashes") if self._media else None
        if column is not None:
            media, media_offsets = _present_lists(column, np.dtype(np.uint64))
            places, known = _media_places(batch, media_offsets)
            contents = fold_media(contents, offsets, media, media_offsets, places, block_size)
            roots = roots ^ np.where(known, np.uint64(0), media_roots(media, media_offsets))
        return chain_keys(contents, offsets, roots)

    def _enter(self, batch: pa.RecordBatch, ids: UInt64Array, offsets: Int64Array) -> UInt64Array:
        """Return ids of whole prefixes as keys: those of the first namespace as they stand."""
        roots = self._roots(batch)
        if self._first_root is None and roots.size:
            self._first_root = roots[0]
        roots = roots ^ (self._first_root or np.uint64(0))
        keys: UInt64Array = enter_roots(ids, offsets, roots) if roots.any() else ids
        return keys

    def _roots(self, batch: pa.RecordBatch) -> UInt64Array:
        names = _column(batch, "namespace") if self._namespaces else None
        return np.zeros(batch.num_rows, np.uint64) if names is None else namespace_roots(names)

    def _token_block_size(self) -> int:
        options = self._options
        return options.block_size or options.chunk_tokens or options.token_block_size

    def _key_hashes(self, batch: pa.RecordBatch) -> KeyedRequests:
        block_size = self._hash_block_size(batch.column("block_size"))
        ids, offsets = list_arrays(batch.column("hash_ids"), np.dtype(np.uint64))
        keys = (
            self._enter(batch, ids, offsets)
            if self._chained
            else self._chain(batch, ids, offsets, block_size)
        )
        input_tokens = batch.column("input_length").to_numpy(zero_copy_only=False).astype(np.int64)
        if self._options.cut_prompts_at_ids:
            input_tokens = np.where(input_tokens, (input_tokens - 1) // block_size * block_size + 1, 0)
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
        blocks = np.diff(offsets)
        return KeyedRequests(
            block_keys=keys,
            request_offsets=offsets,
            prompt_blocks=blocks,
            input_tokens=input_tokens,
            covered_tokens=np.minimum(input_tokens, blocks * block_size),
            block_tokens=block_tokens,
            block_size=block_size,
            coarsen=1,
            output_tokens=np.zeros_like(blocks),
        )

    def _with_generated_blocks(self, batch: pa.RecordBatch, keyed: KeyedRequests) -> KeyedRequests:
        """Add private blocks for generated tokens whose ids the log does not have."""
        output_tokens = batch.column("output_length").fill_null(UNKNOWN_TOKENS)
        output_tokens = np.asarray(output_tokens.to_numpy(zero_copy_only=False), np.int64)
        unseen_tokens = output_tokens
        if "output_ids" in batch.schema.names:
            ids = batch.column("output_ids")
            absent = ids.is_null().to_numpy(zero_copy_only=False)
            lengths = np.where(absent, UNKNOWN_TOKENS, np.diff(ids.offsets))
            output_tokens = np.where(lengths == UNKNOWN_TOKENS, output_tokens, lengths)
            unseen_tokens = np.where(lengths == UNKNOWN_TOKENS, output_tokens, 0)
        private = generated_blocks(keyed.input_tokens, unseen_tokens, keyed.block_size)
        keys, offsets = with_private_blocks(keyed.block_keys, keyed.request_offsets, private, self._n_blocks)
        self._n_blocks += keys.size
        return replace(keyed, block_keys=keys, request_offsets=offsets, output_tokens=output_tokens)

    def _hash_block_size(self, column: pa.Array) -> int:
        # Arrow's own unique would import pyarrow.compute, which takes as long as a small replay's pass.
        declared = column.to_numpy(zero_copy_only=False)
        known = declared[declared == declared] if column.null_count < len(column) else []
        sizes = [int(size) for size in np.unique(known)]
        if self._declared_block_size is not None:
            sizes = sorted({self._declared_block_size, *sizes})
        if len(sizes) > 1:
            raise UsageError(f"the trace mixes block sizes {sizes}, expected one; replay each on its own")
        if not sizes and self._options.block_size is None:
            raise UsageError("the trace declares no block size: give --block-size")
        self._declared_block_size = int(sizes[0]) if sizes else self._options.block_size
        assert self._declared_block_size is not None
        return self._declared_block_size


def namespace_roots(names: pa.Array | Iterable[str | None]) -> UInt64Array:
    """Return 64 bits of a hash of every namespace, the same in every process, and 0 for none: (n,)."""
    if isinstance(names, pa.Array):
        if len(names) < _FEW_NAMES:
            return namespace_roots(names.to_pylist())
        encoded = names.dictionary_encode()
        roots = namespace_roots([*encoded.dictionary.to_pylist(), None])
        # A null is the last of them.
        places = encoded.indices.fill_null(roots.size - 1)
        taken: UInt64Array = roots[places.to_numpy(zero_copy_only=False)]
        return taken
    return np.array([0 if name is None else _root(name) for name in names], np.uint64)


@lru_cache(1 << 16)
def _root(namespace: str) -> int:
    return int.from_bytes(blake2b(namespace.encode(), digest_size=8).digest(), "little")


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column that says something, or None."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column


def _media_places(
    batch: pa.RecordBatch, media_offsets: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return where media stand, beyond every block where that is unknown, and which requests' are known."""
    places = np.full(media_offsets[-1], np.iinfo(np.int64).max, np.int64)
    column = _column(batch, "media_offsets")
    if column is None:
        return places, np.zeros(batch.num_rows, np.bool_)
    values, offsets = _present_lists(column, np.dtype(np.int64))
    known = column.is_valid().to_numpy(zero_copy_only=False)
    count = np.diff(media_offsets)
    if not np.array_equal(np.diff(offsets)[known], count[known]):
        raise UsageError(
            "media_offsets and media_hashes differ in length, expected an offset of each or null"
        )
    places[np.repeat(known, count)] = values
    return places, known


def _present_lists(column: pa.ListArray, dtype: np.dtype) -> tuple[npt.NDArray, Int64Array]:  # type: ignore[type-arg]
    """Return the values of a list column of which rows may be null, and their offsets from 0."""
    values = column.flatten()
    if values.null_count:
        raise UsageError("media_hashes or media_offsets hold nulls, expected numbers")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    array = _writable(np.ascontiguousarray(values.to_numpy(zero_copy_only=False), dtype))
    return array, offsets_of(lengths)


def list_arrays(column: pa.ListArray, dtype: np.dtype) -> tuple[npt.NDArray, Int64Array]:  # type: ignore[type-arg]
    """Return a list column's values and offsets from 0, without a copy of the values where possible."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    array = values.to_numpy(zero_copy_only=False)
    return _writable(np.ascontiguousarray(array, dtype)), offsets - offsets[0]


def _with_output_ids(
    tokens: npt.NDArray[np.uint32], offsets: Int64Array, output_ids: pa.ListArray
) -> tuple[npt.NDArray[np.uint32], Int64Array]:
    """Return prompts with what they generated behind, without its last token."""
    values, value_offsets = list_arrays(output_ids, np.dtype(np.uint32))
    lengths = np.diff(value_offsets)
    absent = output_ids.is_null().to_numpy(zero_copy_only=False)
    fed_back, fed_back_offsets = drop_last_blocks(
        values, value_offsets, np.where(absent, lengths, np.minimum(lengths, 1))
    )
    joined, joined_offsets = append_to_requests(tokens, offsets, fed_back, fed_back_offsets)
    return joined, joined_offsets


class _WritableView:
    """An array's memory, for NumPy to take for writable; holds the array, and no cycle that would keep it."""

    def __init__(self, array: npt.NDArray) -> None:  # type: ignore[type-arg]
        self.owner = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = {
            "data": (address, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }


def _writable(array: npt.NDArray) -> npt.NDArray:  # type: ignore[type-arg]
    """Return a view that Numba takes for writable: Arrow's buffers are not, and a kernel has one signature.

    No kernel writes to its inputs.
    """
    if array.flags.writeable:
        return array
    return np.asarray(_WritableView(array))


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
    prompt_blocks = -(-keyed.prompt_blocks // coarsen) if keep_incomplete else keyed.prompt_blocks // coarsen
    block_tokens = None
    if keyed.block_tokens is not None:
        block_tokens = _summed_weights(keyed.block_tokens, keyed.prompt_blocks, prompt_blocks, coarsen)
    return replace(
        keyed,
        block_keys=keys,
        request_offsets=offsets,
        prompt_blocks=prompt_blocks,
        covered_tokens=np.minimum(keyed.covered_tokens, prompt_blocks * keyed.block_size * coarsen),
        block_tokens=block_tokens,
        block_size=keyed.block_size * coarsen,
        coarsen=coarsen,
    )


def _summed_weights(
    block_tokens: npt.NDArray[np.int32], fine_blocks: Int64Array, groups: Int64Array, coarsen: int
) -> npt.NDArray[np.int32]:
    """Return the weights of blocks ``coarsen`` times larger, ``groups`` of them in each request."""
    fine_offsets = offsets_of(fine_blocks)
    offsets = offsets_of(groups)
    group = np.arange(offsets[-1]) - np.repeat(offsets[:-1], groups)
    first = np.repeat(fine_offsets[:-1], groups) + group * coarsen
    end = np.minimum(first + coarsen, np.repeat(fine_offsets[1:], groups))
    summed = offsets_of(block_tokens)
    weights: npt.NDArray[np.int32] = (summed[end] - summed[first]).astype(np.int32)
    return weights

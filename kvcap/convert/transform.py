"""Give requests other ids that replay to the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kvcap.errors import UsageError
from kvcap.schema import TraceKind, trace_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvcap.blocks.keyer import BlockKeyer
    from kvcap.formats import ReadReport, Trace
    from kvcap.kernels.id_table import IdTable


class TransformedTrace:
    """A trace whose ids are numbers in the order of their first appearance.

    Token lists become hash ids: the numbers of their blocks' keys. See :class:`kvcap.formats.base.Trace`.

    Parameters
    ----------
    trace
        A trace of hash ids or token ids.
    block_size
        Tokens per block of token lists; None takes the default.
    anonymize
        Whether to drop names and kept columns, too.

    Raises
    ------
    UsageError
        If it is text.
    """

    def __init__(self, trace: Trace, block_size: int | None, *, anonymize: bool) -> None:
        if trace.kind == "request_json":
            raise UsageError("this log holds text, expected token ids or hash ids: tokenize it first")
        from kvcap.kernels.id_table import IdTable

        self._trace = trace
        self._anonymize = anonymize
        self._table = IdTable()
        self._media = IdTable()
        self._names: dict[str, dict[str, str]] = {"pool": {}, "namespace": {}, "instance": {}}
        self._keyer: BlockKeyer | None = None
        self._block_size = 0
        if trace.kind == "token_ids":
            from kvcap.blocks.keyer import BlockKeyer
            from kvcap.blocks.options import DEFAULT_TOKEN_BLOCK_SIZE, BlockOptions

            self._block_size = block_size or DEFAULT_TOKEN_BLOCK_SIZE
            # Namespaces stand beside the ids, to be left out or chosen anew; media have no other place.
            self._keyer = BlockKeyer(BlockOptions(self._block_size), namespaces=False)
            trace.report.notice(f"token ids became ids of their full blocks of {self._block_size} tokens")
        own = set(trace_schema(trace.kind).names)
        kept = () if anonymize else tuple(field for field in trace.schema if field.name not in own)
        self.kind: TraceKind = "hash_ids"
        self.schema = trace_schema("hash_ids", kept)

    @property
    def report(self) -> ReadReport:
        """The account of reading the trace below."""
        return self._trace.report

    @property
    def chained(self) -> bool:
        """Whether ids are keys of whole prefixes: those of token lists are."""
        return self._keyer is not None or self._trace.chained

    def close(self) -> None:
        """Release files and workers."""
        self._trace.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in replay order; may be called once."""
        for batch in self._trace.batches():
            yield self._transformed(batch)

    def _transformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._keyer is not None:
            keyed = self._keyer.key(batch)
            ids, offsets = keyed.block_keys, keyed.request_offsets
        else:
            ids, offsets = ids_and_offsets(batch.column("hash_ids"))
        numbers = self._table.add(ids)
        arrays = [self._column(field, batch, numbers, offsets) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, numbers: NDArray[np.uint64], offsets: NDArray[np.int64]
    ) -> Any:
        if field.name == "hash_ids":
            return pa.ListArray.from_arrays(offsets.astype(np.int32), pa.array(numbers), type=field.type)
        if self._keyer is not None and field.name == "block_size":
            return pa.array(np.full(batch.num_rows, self._block_size, dtype=np.int32))
        if self._keyer is not None and field.name in ("block_tokens", "media_hashes", "media_offsets"):
            return pa.nulls(batch.num_rows, field.type)
        if self._anonymize and field.name in ("session_id", "model"):
            return pa.nulls(batch.num_rows, field.type)
        if self._anonymize and field.name == "media_hashes":
            return _numbered(batch.column(field.name), self._media)
        if self._anonymize and field.name in self._names:
            numbers_of = self._names[field.name]
            names = batch.column(field.name).to_pylist()
            renamed = [
                None if name is None else numbers_of.setdefault(name, str(len(numbers_of))) for name in names
            ]
            return pa.array(renamed, type=field.type)
        return batch.column(field.name)


def _numbered(column: Any, table: IdTable) -> Any:
    """Return a list column that may hold nulls with its values numbered by first appearance."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    numbers = table.add(column.flatten().to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(offsets, pa.array(numbers), type=column.type, mask=column.is_null())


def ids_and_offsets(column: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the ids of a list column and the offsets of its requests, from 0."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    ids = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_numpy()
    return ids, offsets - offsets[0]

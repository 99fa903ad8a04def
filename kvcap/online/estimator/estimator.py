"""Feed requests, ask what they needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvcap.blocks.keyer import namespace_roots
from kvcap.errors import SchemaError, UsageError
from kvcap.kernels.arrays import Int64Array, UInt64Array
from kvcap.kernels.keys import chain_keys, drop_last_blocks, take_requests
from kvcap.kernels.observations import CEILING_BLOCKS, FIRST_CAPACITY, observe
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.state_check import state_is_sound
from kvcap.kernels.token_keys import token_block_keys
from kvcap.kernels.tree_state import TreeState
from kvcap.online.estimator.options import EstimatorOptions
from kvcap.online.estimator.requests import Observation, ObservedBatch, RequestBatch, RequestKind, as_ids
from kvcap.online.estimator.snapshot import Snapshot, required_capacity, traffic
from kvcap.online.estimator.state import (
    Arrays,
    checked_metadata,
    checked_rows,
    pack_state,
    state_error,
    unpack_state,
)
from kvcap.online.estimator.window import Window

if TYPE_CHECKING:
    import pyarrow as pa

_NO_ROWS: Final = np.empty(0, np.bool_)
"""Stands for an array that is not there, and is none of a state's."""


class Estimator:
    """One LRU stack per pool, the sums over all requests, and a window of the latest.

    Fed in any chunking it counts what a batch replay of the same requests counts: exactly, at every
    capacity up to the bound. All requests are of one kind, that of the first.

    Parameters
    ----------
    options
        What a block, a hit, the target, the bound and the window are.
    """

    def __init__(self, options: EstimatorOptions) -> None:
        self.options = options
        self._capacities = np.array(options.capacities_blocks, np.int64)
        self._kind: RequestKind | None = None
        self._scanners: dict[str | None, ReuseRunScanner] = {}
        n_columns = FIRST_CAPACITY + 2 * self._capacities.size
        self._sums = np.zeros(n_columns, np.int64)
        self._window = Window(options.window_requests, n_columns)
        self._n_requests = 0
        self._latest_us: int | None = None

    @property
    def n_requests(self) -> int:
        """Requests observed so far."""
        return self._n_requests

    @property
    def kind(self) -> RequestKind | None:
        """What requests are made of; None before the first."""
        return self._kind

    def observe(
        self,
        token_ids: npt.ArrayLike | None = None,
        *,
        hash_ids: npt.ArrayLike | None = None,
        input_tokens: int | None = None,
        timestamp_us: int | None = None,
        pool: str | None = None,
        namespace: str | None = None,
    ) -> Observation:
        """Observe one request: its token ids, or the ids of its blocks.

        Parameters
        ----------
        token_ids, hash_ids
            Exactly one of them.
        input_tokens
            Prompt length of hash ids; None where all blocks are full.
        timestamp_us
            When it arrived, in microseconds since any epoch.
        pool
            Whose cache it looks up.
        namespace
            What besides its ids must agree for it to share blocks with another request.

        Raises
        ------
        UsageError
            As :meth:`observe_many`, or if an id is no whole number in its range.
        """
        if (token_ids is None) == (hash_ids is None):
            raise UsageError("expected either token_ids or hash_ids")
        kind: RequestKind = "token_ids" if hash_ids is None else "hash_ids"
        ids = as_ids(token_ids if hash_ids is None else hash_ids, kind)
        batch = RequestBatch(
            kind,
            ids,
            np.array((0, ids.size), np.int64),
            None if input_tokens is None else np.array((input_tokens,), np.int64),
            None if timestamp_us is None else np.array((timestamp_us,), np.int64),
            None if pool is None else (pool,),
            None if namespace is None else (namespace,),
        )
        return next(iter(self.observe_many(batch)))

    def observe_many(self, batch: RequestBatch) -> ObservedBatch:
        """Observe requests in their order.

        Raises
        ------
        UsageError
            If they are of another kind than those before, name too many pools, or lack the timestamps
            that a window in seconds needs. None of them is observed then.
        """
        self._check(batch)
        self._kind = batch.kind
        keys, offsets, input_tokens = self._keyed(batch)
        timestamps = batch.timestamps_us
        if timestamps is None:
            timestamps = np.zeros(len(batch), np.int64)
        requests = (timestamps, input_tokens, np.diff(offsets))
        if batch.pools is None:
            rows = self._replay(None, keys, offsets, requests)
        else:
            rows = self._replay_pools(batch.pools, keys, offsets, requests)
        self._window.append(rows)
        self._sums += rows.sum(axis=0)
        first = self._n_requests
        self._n_requests += len(batch)
        if batch.timestamps_us is not None and timestamps.size:
            latest = int(timestamps.max())
            self._latest_us = latest if self._latest_us is None else max(latest, self._latest_us)
        return ObservedBatch(first, rows)

    def snapshot(self, now_us: int | None = None) -> Snapshot:
        """Return what is known.

        Parameters
        ----------
        now_us
            Where a window in seconds ends; None takes the latest timestamp.
        """
        options = self.options
        not_before = None
        now = self._latest_us if now_us is None else now_us
        if options.window_seconds is not None and now is not None:
            not_before = now - int(options.window_seconds * 1_000_000)
        rows = self._window.latest(not_before)
        reusing = rows[rows[:, CEILING_BLOCKS] > 0]
        scanners = self._scanners.values()
        return Snapshot(
            totals=traffic(self._n_requests, self._sums, options.capacities_blocks, options.block_bytes),
            window=traffic(rows.shape[0], rows.sum(axis=0), options.capacities_blocks, options.block_bytes),
            samples=required_capacity(rows, options.block_bytes),
            reusing=required_capacity(reusing, options.block_bytes),
            pools=len(self._scanners),
            tracked_blocks=sum(scanner.live_blocks for scanner in scanners),
            forgotten_blocks=sum(scanner.forgotten_blocks for scanner in scanners),
            memory_bytes=self._window.nbytes + sum(scanner.memory_bytes for scanner in scanners),
        )

    def state(self) -> pa.Table:
        """Return everything that is remembered, as a table to store: :meth:`restore` goes on from it."""
        arrays: Arrays = {"sums": self._sums, "window": self._window.latest()}
        for number, scanner in enumerate(self._scanners.values()):
            arrays.update((f"{number}/{name}", array) for name, array in scanner.export_state().items())
        metadata = {
            "kind": self._kind,
            "pools": list(self._scanners),
            "n_requests": self._n_requests,
            "latest_us": self._latest_us,
            "options": self.options.identity(),
        }
        return pack_state(arrays, metadata)

    @classmethod
    def restore(cls, options: EstimatorOptions, state: pa.Table) -> Estimator:
        """Return an estimator that goes on where another was.

        Raises
        ------
        SchemaError
            If ``state`` is no state, is damaged or not one that an estimator can have made, or is one of
            other options. The window may differ; a longer one fills up again.
        """
        arrays, metadata = unpack_state(state)
        if metadata.get("options") != options.identity():
            raise SchemaError("estimator state", f"{options.identity()}", f"{metadata.get('options')}")
        estimator = cls(options)
        estimator._kind, estimator._latest_us, pools = checked_metadata(metadata, options.max_pools)
        estimator._sums = checked_rows(arrays.pop("sums", None), 1, estimator._sums.size)
        estimator._window.append(checked_rows(arrays.pop("window", None), 2, estimator._sums.size))
        for number, pool in enumerate(pools):
            own = {name: arrays.pop(f"{number}/{name}", _NO_ROWS) for name in TreeState._fields}
            if not state_is_sound(TreeState(**own)):
                raise state_error(f"a cache (pool {pool}) that no replay leaves so")
            estimator._scanners[pool] = ReuseRunScanner.from_state(own, options.remembered_depth)
        counted = sum(scanner.n_requests for scanner in estimator._scanners.values())
        if arrays or counted != metadata["n_requests"]:
            raise state_error(f"{metadata['n_requests']} requests where its caches count {counted}")
        estimator._n_requests = counted
        return estimator

    def _check(self, batch: RequestBatch) -> None:
        if self._kind is not None and batch.kind != self._kind:
            raise UsageError(f"requests hold {batch.kind}, expected {self._kind} like those before")
        if self.options.window_seconds is not None and batch.timestamps_us is None and len(batch):
            raise UsageError("requests have no timestamps, which a window in seconds needs")
        pools = {None} if batch.pools is None else set(batch.pools)
        if len(pools | self._scanners.keys()) > self.options.max_pools:
            raise UsageError(f"requests name more than the {self.options.max_pools} pools allowed")

    def _keyed(self, batch: RequestBatch) -> tuple[UInt64Array, Int64Array, Int64Array]:
        """Return block keys, their offsets and prompt lengths."""
        block_size = self.options.block_size
        keep_partial = self.options.blocks.partial_block_of(batch.kind) == "keep"
        roots = namespace_roots(batch.namespaces or [None] * len(batch))
        if batch.kind == "token_ids":
            tokens = np.require(batch.ids, np.uint32, ("C", "W"))
            keys, offsets = token_block_keys(
                tokens, batch.offsets, roots, block_size, keep_partial=keep_partial
            )
            return keys, offsets, np.diff(batch.offsets)
        offsets = batch.offsets
        keys = chain_keys(np.require(batch.ids, np.uint64, ("C", "W")), offsets, roots)
        lengths = np.diff(offsets)
        input_tokens = lengths * block_size if batch.input_tokens is None else batch.input_tokens
        if not keep_partial:
            dropped = np.maximum(0, lengths - input_tokens // block_size)
            keys, offsets = drop_last_blocks(keys, offsets, dropped)
        return keys, offsets, input_tokens

    def _replay_pools(
        self,
        pools: Sequence[str | None],
        keys: UInt64Array,
        offsets: Int64Array,
        requests: tuple[Int64Array, Int64Array, Int64Array],
    ) -> Int64Array:
        """Replay every pool's requests on its own stack; rows come back in arrival order."""
        rows = np.empty((len(pools), self._sums.size), np.int64)
        members: dict[str | None, list[int]] = {}
        for row, pool in enumerate(pools):
            members.setdefault(pool, []).append(row)
        for pool, listed in members.items():
            chosen = np.array(listed, np.int64)
            its_keys, its_offsets = take_requests(keys, offsets, chosen)
            times, tokens, blocks = requests
            its_requests = (times[chosen], tokens[chosen], blocks[chosen])
            rows[chosen] = self._replay(pool, its_keys, its_offsets, its_requests)
        return rows

    def _replay(
        self,
        pool: str | None,
        keys: UInt64Array,
        offsets: Int64Array,
        requests: tuple[Int64Array, Int64Array, Int64Array],
    ) -> Int64Array:
        options = self.options
        scanner = self._scanners.get(pool)
        if scanner is None:
            scanner = self._scanners[pool] = ReuseRunScanner(options.remembered_depth)
        first = scanner.n_requests
        runs = scanner.feed(keys, offsets)
        target = (options.target.numerator, options.target.denominator)
        return observe(
            runs,
            first,
            requests,
            self._capacities,
            options.max_capacity_blocks,
            options.block_size,
            target,
            tail_first=options.tail_first,
        )

"""Deal a recorded stream to instances, replay each as its own pool, and set it beside one shared pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.analysis.routing.deal import Stream, deal, has_sessions, window_starts
from kvcap.analysis.routing.notices import router_notices, stream_notices
from kvcap.analysis.routing.options import DEALINGS, IDEAL_PREFIX, Policy, RouteOptions, policy_of
from kvcap.analysis.routing.routed import CHARACTERS_PER_TOKEN, Routed, RoutedStream
from kvcap.analysis.routing.rows import DealtInstance, RouteRow, RoutingAnswer
from kvcap.blocks.keyer import BlockKeyer
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions, open_table, open_trace
from kvcap.formats.parallel import READING_THREADS, ahead, working_threads
from kvcap.kernels.curve import hit_curve, hits_at, smallest_capacity
from kvcap.kernels.dealt_runs import blocks_in_caches, dealt_runs, weigh_runs
from kvcap.kernels.run_tables import WeightedRuns, leading_parts, run_hits
from kvcap.kernels.segments import segment_paths
from kvcap.replay import ReplayOptions
from kvcap.replay.job import source_paths
from kvcap.replay.policy_tables import lookup_limits
from kvcap.replay.sizing import bytes_per_token
from kvcap.replay.stream import StreamedTrace, keyed_batches
from kvcap.replay.stream import stream as replay_stream
from kvcap.units import parse_capacity

if TYPE_CHECKING:
    import polars as pl

    from kvcap.formats import Trace


_CAPACITY: Final = "--capacity-per-instance"


def route(
    source: str | PathLike[str] | Sequence[str | PathLike[str]] | pa.Table | pl.DataFrame,
    options: RouteOptions,
    replay_options: ReplayOptions | None = None,
    *,
    reading: ReadOptions | None = None,
    progress: Callable[[int], None] | None = None,
) -> RoutingAnswer:
    """Deal one recorded stream to instances in several ways, and say what each way costs.

    Parameters
    ----------
    source
        As for :func:`kvcap.replay`; its pools, if it has any, are taken as one stream.
    options
        How to deal.
    replay_options
        What a block and a hit are.
    reading
        How to read files.
    progress
        Called with the number of requests so far.

    Raises
    ------
    TraceError
        If the log cannot be read.
    UsageError
        If options contradict each other or the log.

    Notes
    -----
    The log is read once. All the rest follows from its prefix segments, at O(steps) for each way of dealing
    and O(steps * instances) for ``ideal-prefix`` and routers.
    """
    replay_options = replay_options or ReplayOptions()
    reading = reading or ReadOptions(block_size=replay_options.blocks.block_size)
    if reading.pool is not None:
        raise UsageError("routing deals one stream to instances, expected no --pool")
    paths = source_paths(source)
    trace = open_table(source, reading) if paths is None else open_trace(paths, reading)
    try:
        streamed = _streamed(trace, replay_options, progress, reading.threads)
    finally:
        trace.close()
    return _Comparison(streamed, options, replay_options).answer()


def _streamed(
    trace: Trace,
    options: ReplayOptions,
    progress: Callable[[int], None] | None,
    threads: int | None,
) -> StreamedTrace:
    if trace.kind == "request_json":
        raise UsageError("this log holds text: run `kvcap tokenize` first")
    with closing(_one_stream(trace, progress, working_threads(threads))) as batches:
        return replay_stream(
            keyed_batches(batches, BlockKeyer(options.blocks, chained=trace.chained)), trace.schema
        )


def _one_stream(
    trace: Trace, progress: Callable[[int], None] | None, threads: int
) -> Generator[pa.RecordBatch, None, None]:
    index = trace.schema.get_field_index("pool")
    n_requests = 0
    with closing(ahead(trace.batches(), threads - READING_THREADS)) as batches:
        for batch in batches:
            yield batch.set_column(index, trace.schema.field(index), pa.nulls(batch.num_rows, pa.string()))
            n_requests += batch.num_rows
            if progress is not None:
                progress(n_requests)


class _Comparison:
    """One stream, and every way of dealing it."""

    def __init__(self, streamed: StreamedTrace, options: RouteOptions, replay_options: ReplayOptions) -> None:
        self._streamed = streamed
        self._options = options
        self._tail_first = replay_options.tail_first
        self._limits = lookup_limits(streamed, replay_options)
        n_requests = streamed.blocks.size
        self._warm_up = math.floor(n_requests * replay_options.warm_up)
        self._blocks = int(streamed.blocks[self._warm_up :].sum())
        self._input_tokens = int(streamed.input_tokens[self._warm_up :].sum())
        per_token, _ = bytes_per_token(replay_options, streamed.input_tokens)
        self._block_bytes = None if per_token is None else math.ceil(per_token * streamed.block_size)
        self._capacity = parse_capacity(options.capacity_per_instance, _CAPACITY).in_blocks(
            _CAPACITY, streamed.block_size, self._block_bytes
        )
        self._stream = Stream(
            segment_paths(streamed.runs, streamed.touched_blocks),
            streamed.input_tokens,
            window_starts(streamed.columns.column("timestamp"), options),
            streamed.columns.column("session_id"),
            self._capacity,
            self._tail_first,
        )
        self._routers = RoutedStream(self._stream, streamed.block_size, streamed.columns, options)

    def answer(self) -> RoutingAnswer:
        """Return every row."""
        texts = self._options.policies or [
            policy for policy in DEALINGS if policy != "session" or has_sessions(self._stream)
        ]
        policies = {text: policy_of(text) for text in texts}
        rows = []
        notices = stream_notices(policies.values(), self._streamed.block_size, CHARACTERS_PER_TOKEN)
        for n_instances in self._options.instances:
            shared = self._shared_row(n_instances)
            rows.append(shared)
            for text, policy in policies.items():
                routed = self._routers.route(policy, n_instances) if policy.router is not None else None
                rows.append(self._row(text, policy, routed, n_instances, shared.hit_blocks))
                notices += router_notices(rows[-1], policy, routed)
        n_requests = self._streamed.blocks.size
        return RoutingAnswer(
            requests=n_requests,
            measured_requests=n_requests - self._warm_up,
            blocks=self._blocks,
            input_tokens=self._input_tokens,
            block_size=self._streamed.block_size,
            block_bytes=self._block_bytes,
            capacity_blocks=self._capacity,
            has_load_window=bool(self._stream.window_starts.any()),
            rows=tuple(rows),
            notices=tuple(notices),
        )

    def _shared_row(self, n_instances: int) -> RouteRow:
        together = np.zeros(self._streamed.blocks.size, np.int32)
        return self._measure(None, n_instances, n_instances * self._capacity, together, self._streamed.runs)

    def _row(
        self, text: str, policy: Policy, routed: Routed | None, n_instances: int, shared_hit_blocks: int
    ) -> RouteRow:
        router = policy.router
        by_caches = policy.name == IDEAL_PREFIX if router is None else router.hears_caches
        # At another capacity it would deal otherwise, and nothing follows from these runs.
        matching = None if by_caches else shared_hit_blocks
        if router is None or routed is None:
            dealt = deal(self._stream, policy.name, n_instances, self._options)
            row = self._dealt_row(policy.name, n_instances, dealt, matching)
            return replace(row, deals_by_caches=by_caches)
        rows = [self._dealt_row(text, n_instances, draw.instances, matching) for draw in routed.draws]
        hit_rates = [row.token_hit_rate for row in rows if row.token_hit_rate is not None]
        peaks = [row.requests_peak for row in rows if row.requests_peak is not None]
        first = routed.draws[0]
        return replace(
            rows[0],
            deals_by_caches=by_caches,
            checked_against=router.checked_against,
            parameters={name: f"{value:g}" for name, value in policy.parameters.items()},
            draws=len(rows),
            drawn_share=_share(first.drawn_requests, first.instances.size),
            token_hit_rate_low=min(hit_rates, default=None),
            token_hit_rate_high=max(hit_rates, default=None),
            requests_peak_low=min(peaks, default=None),
            requests_peak_high=max(peaks, default=None),
            in_flight_peak=first.peak_in_flight if router.needs_times else None,
        )

    def _dealt_row(
        self, name: str, n_instances: int, dealt: npt.NDArray[np.int32], matching: int | None
    ) -> RouteRow:
        runs = weigh_runs(dealt_runs(self._stream.paths, dealt), self._streamed.runs)
        return self._measure(name, n_instances, self._capacity, dealt, runs, matching)

    def _measure(
        self,
        policy: str | None,
        n_instances: int,
        capacity: int,
        dealt: npt.NDArray[np.int32],
        runs: WeightedRuns,
        matching_hit_blocks: int | None = None,
    ) -> RouteRow:
        measured = leading_parts(
            WeightedRuns(*(column[runs.request >= self._warm_up] for column in runs)), self._limits
        )
        curve = hit_curve(measured, tail_first=self._tail_first)
        blocks, tokens = hits_at(curve, np.array([capacity]))
        held, different = blocks_in_caches(self._stream.paths, dealt, capacity, tail_first=self._tail_first)
        per_instance = () if policy is None else self._instances(dealt, measured, n_instances)
        return RouteRow(
            policy=policy,
            instances=n_instances,
            capacity_blocks=capacity,
            hit_blocks=int(blocks[0]),
            hit_tokens=int(tokens[0]),
            block_hit_rate=_share(int(blocks[0]), self._blocks),
            token_hit_rate=_share(int(tokens[0]), self._input_tokens),
            ceiling_block_hit_rate=_share(int(measured.blocks.sum()), self._blocks),
            distinct_blocks=int(self._streamed.touched_blocks.sum() - runs.blocks.sum()),
            held_blocks=held,
            different_held_blocks=different,
            requests_peak=_peak([instance.requests for instance in per_instance]),
            input_tokens_peak=_peak([instance.input_tokens for instance in per_instance]),
            computed_tokens_peak=_peak([instance.computed_tokens for instance in per_instance]),
            matching_capacity_blocks=None
            if matching_hit_blocks is None
            else smallest_capacity(curve, matching_hit_blocks),
            per_instance=per_instance,
            busiest_instance=_busiest(per_instance),
        )

    def _instances(
        self, dealt: npt.NDArray[np.int32], runs: WeightedRuns, n_instances: int
    ) -> tuple[DealtInstance, ...]:
        """Return what each instance was dealt, at the capacity asked for."""
        hits = run_hits(runs, self._capacity, tail_first=self._tail_first)
        measured = dealt[self._warm_up :]
        requests = np.bincount(measured, minlength=n_instances)
        tokens, hit_blocks, hit_tokens = (np.zeros(n_instances, np.int64) for _ in range(3))
        np.add.at(tokens, measured, self._streamed.input_tokens[self._warm_up :])
        np.add.at(hit_blocks, dealt[runs.request], hits)
        np.add.at(hit_tokens, dealt[runs.request], hits * runs.tokens_per_block)
        return tuple(
            DealtInstance(*(int(value) for value in values))
            for values in zip(requests, tokens, tokens - hit_tokens, hit_blocks, strict=True)
        )


def _busiest(per_instance: tuple[DealtInstance, ...]) -> int | None:
    """Return the instance with most requests, the first one of several."""
    numbers = range(len(per_instance))
    return max(numbers, key=lambda number: per_instance[number].requests, default=None)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _peak(values: list[int]) -> float | None:
    """Return the largest of some values as a multiple of their mean."""
    total = sum(values)
    return max(values) * len(values) / total if total else None

"""The answer of a growth what-if: today's row first, then each growth, with what is known of its error."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from kvcap.analysis.growing.assumptions import assumptions_of
from kvcap.analysis.growing.measured import Measured, measure
from kvcap.analysis.growing.options import GrowOptions
from kvcap.analysis.growing.reading import GrowthLog, read_growth_log
from kvcap.analysis.growing.records import BackTest, GrowthAnswer, GrowthHits, GrowthRow, Kind, Range
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions
from kvcap.formats.parallel import working_threads
from kvcap.growth import (
    PathTrace,
    SessionSample,
    beginning_with,
    clocks_overlap,
    faster,
    grow,
    has_long_sessions,
    joined,
    longer,
    more_turns,
    sampled_sessions,
)
from kvcap.options import ReplayOptions
from kvcap.queries.capacities import ResolvedCapacity, resolve_capacities
from kvcap.replay.sizing import bytes_per_token

FEWEST_SESSIONS: Final = 26
"""From so many on more users are computed: of 25 sessions nothing foretells more."""

MOST_TOUCHES: Final = 1 << 28
"""Blocks that the requests of a grown trace may touch: 2 GiB, several times over."""

FEWEST_FOR_PERCENTILES: Final = 500
"""Sessions of a sample from which percentiles are given: those of few are 40 % off."""

PREVIEW_ERROR: Final = 0.95
"""Of hit rates from a sample, times the root of its sessions: the largest measured (0.70 to 0.95)."""

_HALVES: Final = 8
_WIDTH: Final = 2.36
"""Student's t of eight halves at 95 %."""

_MILLION: Final = 10**6


@dataclass(frozen=True)
class _Sizes:
    """What capacities are resolved with."""

    block_size: int
    block_bytes: int | None
    distinct_blocks: int
    bound_blocks: None = None
    hybrid: None = None


@dataclass(frozen=True)
class _Growth:
    """One growth measured, and halves of the sessions grown to the same size."""

    name: str
    kind: Kind
    factor: Fraction | None
    measured: Measured
    halves: tuple[Measured, ...] = ()
    sampled_from: int | None = None

    def percentile(self, percent: int) -> int | None:
        """Return a percentile of required capacity; None from a sample that is too small for it."""
        too_few = self.sampled_from is not None and self.sampled_from < FEWEST_FOR_PERCENTILES
        return None if too_few else self.measured.percentile(percent)


def grow_log(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: GrowOptions,
    replay_options: ReplayOptions | None = None,
    *,
    reading: ReadOptions | None = None,
    progress: Callable[[int], None] | None = None,
) -> GrowthAnswer:
    """Say what capacity, hit rates and percentiles will be when a log grows.

    Parameters
    ----------
    source
        Logs in replay order; their pools, if any, are one stream.
    options
        What grows.
    replay_options
        What a block and a hit are: plain LRU, without rules of engines.
    reading
        How to read files, those that are added too.
    progress
        Called with the number of requests so far.

    Raises
    ------
    TraceError
        If a log cannot be read.
    UsageError
        If options contradict each other, or the log cannot foretell what is asked.
    """
    replay_options = replay_options or ReplayOptions()
    reading = reading or ReadOptions(block_size=replay_options.blocks.block_size)
    paths = [os.fspath(path) for path in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    sample = None if options.sample_sessions is None else SessionSample(options.sample_sessions, options.seed)
    log = read_growth_log(paths, replay_options, reading, progress, sample)
    other = read_growth_log(options.add, replay_options, reading, progress) if options.add else None
    _check(log, other, options)
    growths = list(_growths(log, other, options, replay_options, working_threads(reading.threads)))
    per_token, _ = bytes_per_token(replay_options, log.trace.input_tokens)
    sizes = _Sizes(
        block_size=log.trace.block_size,
        block_bytes=None if per_token is None else math.ceil(per_token * log.trace.block_size),
        distinct_blocks=max(growth.measured.distinct_blocks for growth in growths),
    )
    capacities = resolve_capacities(options.capacities, sizes)
    today = growths[0].measured
    tests_back = _more_users(options) and not log.is_sample
    return GrowthAnswer(
        block_size=sizes.block_size,
        block_bytes=sizes.block_bytes,
        rows=tuple(_row(growth, today, capacities) for growth in growths),
        back_test=_back_test(log.trace, today, options, replay_options) if tests_back else None,
        reading=tuple(read.account for read in (log, other) if read is not None),
        assumptions=assumptions_of(log, other, options),
    )


def _more_users(options: GrowOptions) -> list[Fraction]:
    """Return the factors that add something: once is today."""
    return [factor for factor in options.users if factor > 1]


def _check(log: GrowthLog, other: GrowthLog | None, options: GrowOptions) -> None:
    moves_in_time = log.is_sample or options.users or options.faster or options.turns or options.add
    if moves_in_time and not (log.has_times and (other is None or other.has_times)):
        raise UsageError(
            "requests without timestamps cannot be moved in time: expected a log with them, or --context"
        )
    trace = log.trace
    if (_more_users(options) or log.is_sample) and trace.n_sessions < FEWEST_SESSIONS:
        raise UsageError(
            f"the log has {trace.n_sessions} sessions, of which nothing foretells more users: expected "
            f"{FEWEST_SESSIONS} or more, so give a longer log"
        )
    largest = max([Fraction(1), *options.users, *options.context, *options.turns]) * log.share_inverse
    if trace.nodes.size * largest > MOST_TOUCHES:
        raise UsageError(
            f"{_say(largest)} times a log that touches {trace.nodes.size:,} blocks is more than the "
            f"{MOST_TOUCHES:,} that are held at once: expected a smaller factor, or a part of the log by "
            "--max-requests"
        )
    if options.turns and has_long_sessions(trace):
        raise UsageError(
            "--turns is not reliable here: sessions last above 15 % of the log, whose ends cut them, so that "
            "they look short and would be lengthened again; expected a longer log or shorter sessions"
        )


def _growths(
    log: GrowthLog,
    other: GrowthLog | None,
    options: GrowOptions,
    replay_options: ReplayOptions,
    threads: int,
) -> Iterator[_Growth]:
    seed, trace = options.seed, log.trace
    if log.is_sample:
        for name, kind, factor in _previews(options):
            millionths = math.ceil(factor * log.share_inverse * _MILLION)
            measured = measure(grow(trace, millionths, seed), replay_options)
            yield _Growth(name, kind, factor, measured, sampled_from=trace.n_sessions)
        return
    yield _Growth("today", "today", None, measure(trace, replay_options))
    for factor in _more_users(options):
        measured = measure(grow(trace, _millionths(factor), seed), replay_options)
        halves: tuple[Measured, ...] = ()
        if options.interval:
            halves = _measured_halves(trace, factor, seed, replay_options, threads)
        yield _Growth(_users_name(factor), "users", factor, measured, halves)
    for factor in options.context:
        measured = measure(longer(trace, factor), replay_options)
        yield _Growth(f"{_say(factor)} x context", "context", factor, measured)
    for factor in options.faster:
        measured = measure(faster(trace, factor), replay_options)
        yield _Growth(f"{_say(factor)} x as fast", "faster", factor, measured)
    for factor in options.turns:
        measured = measure(more_turns(trace, factor, seed), replay_options)
        yield _Growth(f"{_say(factor)} x turns", "turns", factor, measured)
    if other is not None:
        added = other.trace
        if not clocks_overlap(trace, added):
            added = beginning_with(added, trace)
        both = joined(trace, added)
        yield _Growth(f"with {', '.join(options.add)}", "add", None, measure(both, replay_options))


def _users_name(factor: Fraction) -> str:
    return f"{_say(factor)} x users"


def _previews(options: GrowOptions) -> Iterator[tuple[str, Kind, Fraction]]:
    yield "today", "today", Fraction(1)
    for factor in _more_users(options):
        yield _users_name(factor), "users", factor


def _measured_halves(
    trace: PathTrace, factor: Fraction, seed: int, options: ReplayOptions, threads: int
) -> tuple[Measured, ...]:
    def half(number: int) -> Measured:
        chosen = sampled_sessions(trace, 2, seed, number)
        return measure(grow(chosen, 2 * _millionths(factor), seed + number), options)

    # Number 0 is the half of the back-test.
    with ThreadPoolExecutor(threads, thread_name_prefix="kvcap-grow") as executor:
        return tuple(executor.map(half, range(1, _HALVES + 1)))


def _millionths(factor: Fraction) -> int:
    return int(factor * _MILLION)


def _say(factor: Fraction) -> str:
    return f"{float(factor):g}"


def _row(growth: _Growth, today: Measured, capacities: Sequence[ResolvedCapacity]) -> GrowthRow:
    measured, factor = growth.measured, growth.factor
    p99 = growth.percentile(99)
    blocks = np.array([capacity.blocks for capacity in capacities], np.int64)
    scales = growth.kind in ("users", "context")
    block_rates = measured.block_hit_rates(blocks)
    ranges = [_rate_range(growth, at, rate) for at, rate in zip(blocks, block_rates, strict=True)]
    return GrowthRow(
        name=growth.name,
        kind=growth.kind,
        factor=None if factor is None else float(factor),
        requests=measured.requests,
        sessions=measured.sessions,
        blocks=measured.blocks,
        input_tokens=measured.input_tokens,
        distinct_blocks=measured.distinct_blocks,
        ceiling_block_hit_rate=measured.ceiling,
        ceiling_range=_range(growth, measured.ceiling, [half.ceiling for half in growth.halves]),
        capacity_for_95_percent_blocks=measured.capacity_for_ceiling_share(Fraction(95, 100)),
        required_p50_blocks=growth.percentile(50),
        required_p90_blocks=growth.percentile(90),
        required_p99_blocks=p99,
        required_p99_range=_p99_range(growth),
        scaled_p99_blocks=math.ceil(today.percentile(99) * factor)
        if scales and factor and p99 is not None
        else None,
        hits=tuple(
            GrowthHits(capacity.label, capacity.blocks, float(block_rate), float(token_rate), spread)
            for capacity, block_rate, token_rate, spread in zip(
                capacities, block_rates, measured.token_hit_rates(blocks), ranges, strict=True
            )
        ),
    )


def _rate_range(growth: _Growth, capacity_blocks: int, rate: float) -> Range | None:
    at = np.array([capacity_blocks])
    return _range(growth, rate, [float(half.block_hit_rates(at)[0]) for half in growth.halves])


def _range(growth: _Growth, rate: float, halves: Sequence[float]) -> Range | None:
    """Return a rate and its sampling error both ways, inside 0 and 1."""
    width = _half_width(growth, rate, halves)
    return None if width is None else Range(max(0.0, rate - width), min(1.0, rate + width))


def _p99_range(growth: _Growth) -> Range | None:
    if not growth.halves:
        return None
    p99 = max(1, growth.measured.percentile(99))
    width = _half_width(
        growth, math.log(p99), [math.log(max(1, half.percentile(99))) for half in growth.halves]
    )
    return None if width is None else Range(p99 / math.exp(width), p99 * math.exp(width))


def _half_width(growth: _Growth, value: float, halves: Sequence[float]) -> float | None:
    """Return the sampling error of a value from halves of the sessions grown to the same size.

    Their spread shrinks as the log that was grown had more of the sessions; by how much their mean drifts
    from the value goes in as well.
    """
    if growth.sampled_from is not None:
        return PREVIEW_ERROR / math.sqrt(growth.sampled_from)
    if not halves or growth.factor is None:
        return None
    spread = _WIDTH * float(np.std(halves, ddof=1)) * math.sqrt(1 - 1 / growth.factor)
    return math.hypot(spread, float(np.mean(halves)) - value)


def _back_test(
    trace: PathTrace, today: Measured, options: GrowOptions, replay_options: ReplayOptions
) -> BackTest:
    half = sampled_sessions(trace, 2, options.seed)
    grown = measure(grow(half, 2 * _MILLION, options.seed), replay_options)
    points = today.curve_points()

    def ratio(percent: int) -> float | None:
        true = today.percentile(percent)
        return grown.percentile(percent) / true if true else None

    return BackTest(
        sessions=half.n_sessions,
        ceiling_error=grown.ceiling - today.ceiling,
        curve_error=float(np.abs(grown.block_hit_rates(points) - today.block_hit_rates(points)).max()),
        required_p90_ratio=ratio(90),
        required_p99_ratio=ratio(99),
    )

"""The whole explanation: what was observed, what was expected, and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kvcap.analysis.explain.engine import engine_expectation
from kvcap.analysis.explain.explanation import (
    CapacityRow,
    CauseRow,
    EffectiveCapacity,
    EffectiveTtl,
    EngineExpectation,
    Explanation,
    ObservedSide,
    RestartRow,
    Share,
)
from kvcap.analysis.explain.fitting import Fitting, fit
from kvcap.analysis.explain.groups import (
    UNEXPLAINED,
    Cells,
    group_rows,
    hours,
    worst_requests,
)
from kvcap.analysis.explain.observed import ObservedLog, observed_log
from kvcap.analysis.explain.options import ExplainOptions
from kvcap.analysis.explain.stored import stored_log
from kvcap.analysis.explain.surplus import Surplus, surplus
from kvcap.analysis.explain.survival import survival
from kvcap.analysis.explain.tables import explain_tables
from kvcap.analysis.explain.words import remarks
from kvcap.engines import Rules
from kvcap.errors import UsageError
from kvcap.formats import open_table, open_trace
from kvcap.formats.options import ReadOptions
from kvcap.formats.parallel import working_threads
from kvcap.kernels.observed.waterfall import waterfall
from kvcap.option_fields import changed
from kvcap.options import ReplayOptions
from kvcap.queries import open_results
from kvcap.queries.results import RUN_FILE
from kvcap.replay.directory import ResultsDirectory
from kvcap.replay.job import finished, source_paths, streamed_trace
from kvcap.schema import MISS_CAUSES
from kvcap.writing import check_apart

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from kvcap.formats.base import Trace
    from kvcap.queries import RunInfo
    from kvcap.tokenize.options import TokenizeOptions

EXPECTED_HIT: Final = "expected_hit"
WORST_REQUESTS: Final = 10
MORE: Final = "more_than_expected"


@dataclass(frozen=True)
class Explained:
    """An explanation with the tables of its replay and its own, by name."""

    explanation: Explanation
    tables: dict[str, pa.Table]


def explain(
    source: str | PathLike[str] | Sequence[str | PathLike[str]] | pa.Table | pl.DataFrame,
    options: ExplainOptions | None = None,
    replay_options: ReplayOptions | None = None,
    *,
    reading: ReadOptions | None = None,
    tokenizing: TokenizeOptions | None = None,
    out: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Explanation:
    """Say what caches really did with the requests of a log, beside what was to be expected of them.

    Parameters
    ----------
    source
        As for :func:`kvcap.replay`, or one directory of results that keeps its trace.
    options
        What is known of the caches.
    replay_options
        What a block is. Only full blocks are cached unless they say otherwise, and one token of every
        prompt is computed.
    reading
        How to read files, and what in them says how many tokens came from a cache, and on which instance.
    tokenizing
        How to turn a log of texts into token ids.
    out
        Directory for the results of the replay, with tables of the explanation beside them.
    force
        Replace an existing ``out``.
    progress
        Called with the number of requests so far.

    Raises
    ------
    TraceError
        If the log cannot be read.
    UsageError
        If options contradict each other or the log, results have no trace, or the log tells of no cache.
    """
    replay_options = replay_options or ReplayOptions()
    reading = reading or ReadOptions(block_size=replay_options.blocks.block_size)
    options = options or ExplainOptions()
    if out is None and (replay_options, reading) == (ReplayOptions(), ReadOptions()):
        at_hand = _from_tables(source, options)
        if at_hand is not None:
            return at_hand
    source, replay_options, reading = _with_results(source, replay_options, reading)
    paths = source_paths(source)
    trace = open_table(source, reading) if paths is None else open_trace(paths, reading)
    with ExitStack() as stack:
        if trace.kind == "request_json" and tokenizing is not None:
            from kvcap.tokenize.driver import tokenize_trace

            trace = tokenize_trace(trace, tokenizing)
        stack.callback(trace.close)
        if trace.kind == "request_json":
            raise UsageError("this log holds text: give --tokenizer, or run `kvcap tokenize` first")
        threads = working_threads(reading.threads)
        directory = None
        if out is not None:
            check_apart(out, trace.report.sources)
            directory = stack.enter_context(ResultsDirectory(out, trace.schema, force=force))
        found = explained_trace(trace, options, replay_options, reading.pool, directory, progress, threads)
        if directory is not None:
            directory.commit(found.explanation.run, found.tables, threads).close()
    return found.explanation


def _is_results(source: Any) -> bool:
    paths = source_paths(source)
    return paths is not None and len(paths) == 1 and (Path(paths[0]) / RUN_FILE).is_file()


def _from_tables(source: Any, options: ExplainOptions) -> Explanation | None:
    """Return the explanation of results from their tables alone, where these and the trace allow that."""
    if not _is_results(source):
        return None
    with open_results(source_paths(source)[0]) as results:  # type: ignore[index]
        stored = stored_log(results) if "trace" in results.table_names else None
        if stored is None:
            return None
        log = observed_log(stored[0], results.run.options, stored[1])
        explanation, _ = _explained(log, results.run, options, Rules())
    return explanation


def _with_results(
    source: Any, options: ReplayOptions, reading: ReadOptions
) -> tuple[Any, ReplayOptions, ReadOptions]:
    """Return the trace of results in their place, with their blocks and pools unless others are said."""
    paths = source_paths(source)
    if paths is None or not _is_results(source):
        return source, options, reading
    with open_results(paths[0]) as results:
        run, has_trace = results.run, "trace" in results.table_names
    if not has_trace:
        raise UsageError(
            f"{paths[0]} keeps no trace, from which instances are replayed: explain the log itself"
        )
    if options.blocks == ReplayOptions().blocks:
        options = replace(options, blocks=run.options.blocks)
    if options.warm_up == ReplayOptions().warm_up:
        options = replace(options, warm_up=run.options.warm_up)
    if options.kv_bytes_per_token is None and options.model_bytes is None and run.kv_bytes_per_token:
        from fractions import Fraction

        options = replace(options, kv_bytes_per_token=Fraction(run.kv_bytes_per_token))
    if reading.pool is None and run.pool_column is not None:
        reading = replace(reading, pool="pool")
    return str(Path(paths[0]) / "trace.parquet"), options, reading


def explained_trace(
    trace: Trace,
    options: ExplainOptions,
    replay_options: ReplayOptions,
    pool_column: str | None = None,
    directory: ResultsDirectory | None = None,
    progress: Callable[[int], None] | None = None,
    threads: int = 1,
) -> Explained:
    """Return the explanation of an open trace of ids, and its tables; see :func:`explain`."""
    rules = replay_options.rules
    replay_options = replace(replay_options, rules=Rules(compute_last_token=True))
    if replay_options.blocks.partial_block is None:
        replay_options = changed(replay_options, {"partial_block": "drop"})
    streamed = streamed_trace(trace, replay_options, pool_column, directory, progress, threads)
    log = observed_log(streamed, replay_options)
    run, tables = finished(streamed, replay_options, trace, pool_column, threads)
    explanation, own = _explained(log, run, options, rules)
    return Explained(explanation, tables | own)


def _explained(
    log: ObservedLog, run: RunInfo, options: ExplainOptions, rules: Rules
) -> tuple[Explanation, dict[str, pa.Table]]:
    """Return the explanation of a log, and its tables."""
    fitting = fit(log, options)
    found = waterfall(
        fitting.pieces, log.lookups, fitting.limits, log.prompts, fitting.step_tokens, fitting.least_tokens
    )
    cells = Cells.of(found)
    engine = engine_expectation(log, fitting, found, rules)
    explanation = _explanation(run, log, fitting, cells, surplus(log, found), engine)
    return explanation, explain_tables(log, fitting, found, cells)


def _explanation(
    run: RunInfo,
    log: ObservedLog,
    fitting: Fitting,
    cells: Cells,
    beyond: Surplus,
    engine: EngineExpectation | None,
) -> Explanation:
    columns = log.streamed.columns
    input_tokens = int(log.prompts.input_tokens[log.observed].sum())

    def share(tokens: int) -> Share:
        return Share(tokens, tokens / input_tokens if input_tokens else 0.0)

    observed = share(int(cells.observed.sum()))
    more, unexplained = share(int(cells.more.sum())), share(int(cells.unexplained.sum()))
    missed = dict(zip(MISS_CAUSES, cells.missed.sum(axis=0).tolist(), strict=True))
    steps = {EXPECTED_HIT: observed.tokens - more.tokens, MORE: more.tokens, **missed}
    steps[UNEXPLAINED] = unexplained.tokens
    capacity = _capacity(log, fitting, missed)
    ttl = _ttl(fitting, missed)
    return Explanation(
        run=run,
        observed=ObservedSide(
            requests=log.n_requests,
            requests_with_value=int(log.observed.sum()),
            input_tokens=input_tokens,
            tokens=observed.tokens,
            share=observed.share,
        ),
        expected=share(int(cells.expected.sum())),
        unlimited=share(int(log.prompts.pooled_tokens[log.observed].sum())),
        effective_capacity=capacity,
        effective_ttl=ttl,
        engine=engine,
        structure=fitting.fitted.chosen.name,
        misfit=fitting.fitted.misfit(fitting.fitted.chosen),
        restarts=tuple(
            RestartRow(
                instance=log.cache_names[restart.cache],
                after=log.time_text(restart.last_before),
                until=log.time_text(restart.first_after),
                requests=restart.requests,
                missed_tokens=restart.missed_tokens,
                is_given=restart.given,
            )
            for restart in fitting.restarts
        ),
        waterfall=tuple(CauseRow(cause, tokens, share(tokens).share) for cause, tokens in steps.items()),
        unexplained=unexplained,
        more_than_expected=more,
        surplus=beyond,
        survival=survival(log, fitting, by_depth=False),
        by_hour=group_rows(log, cells, hours(log)),
        by_instance=group_rows(log, cells, log.instances),
        by_session=group_rows(log, cells, columns.column("session_id")),
        by_model=group_rows(log, cells, columns.column("model")),
        worst_requests=worst_requests(log, cells, WORST_REQUESTS),
        remarks=remarks(log, fitting, cells, beyond),
    )


def _capacity(log: ObservedLog, fitting: Fitting, missed: dict[str, int]) -> EffectiveCapacity | None:
    limits = fitting.fitted.limits
    if all(limit.best is None for limit in limits):
        return None
    rows = tuple(
        CapacityRow(
            instance=log.cache_names[limit.cache],
            since=log.time_text(limit.first_request),
            capacity_blocks=limit.best,
            capacity_bytes=log.in_bytes(limit.best),
            range=(limit.low, limit.high),
        )
        for limit in limits
    )
    values = {limit.best for limit in limits}
    single = values.pop() if len(values) == 1 else None
    highest = [limit.high for limit in limits if limit.high is not None]
    depths = fitting.cut_depths
    return EffectiveCapacity(
        capacity_blocks=single,
        capacity_bytes=log.in_bytes(single),
        explained_share=_of_missed(fitting, missed["capacity"] + missed["capacity_and_ttl"]),
        range=(min(limit.low for limit in limits), max(highest) if highest else None),
        cuts=depths.size,
        cut_quantiles=tuple(
            int(value) for value in np.quantile(depths, [0.05, 0.25, 0.5, 0.75, 0.95], method="nearest")
        )
        if depths.size
        else (),
        limits=rows,
    )


def _ttl(fitting: Fitting, missed: dict[str, int]) -> EffectiveTtl | None:
    chosen = fitting.fitted.chosen
    if not chosen.has_lifetime or chosen.lifetime is None or chosen.lifetime.high is None:
        return None
    return EffectiveTtl(
        seconds=chosen.lifetime_us / 1e6,
        range=((chosen.lifetime.low or 0) / 1e6, chosen.lifetime.high / 1e6),
        explained_share=_of_missed(fitting, missed["ttl"] + missed["capacity_and_ttl"]),
    )


def _of_missed(fitting: Fitting, tokens: int) -> float:
    missed = fitting.fitted.missed_tokens
    return min(1.0, tokens / missed) if missed else 0.0

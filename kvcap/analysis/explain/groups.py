"""Observed beside expected, by hour, instance, session and model, and request by request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.kernels.observed.waterfall import CLASSES
from kvcap.schema import MISS_CAUSES

if TYPE_CHECKING:
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.kernels.arrays import Int64Array
    from kvcap.kernels.observed.waterfall import Waterfall

_RUNNING: Final = CLASSES.index("source_running")
_AVOIDABLE: Final = tuple(cause for cause in MISS_CAUSES if cause not in MISS_CAUSES[:3])
UNEXPLAINED: Final = "unexplained"


@dataclass(frozen=True)
class Cells:
    """Tokens of every request: int64 (n_requests,), or (n_requests, n_causes); 0 where nothing was observed.

    ``expected`` is what hit as expected and what is unexplained, ``more`` what hit beyond that.
    """

    observed: Int64Array
    expected: Int64Array
    more: Int64Array
    missed: Int64Array
    unexplained: Int64Array

    @classmethod
    def of(cls, found: Waterfall) -> Cells:
        """Return the cells of a waterfall; where a source is running, a hit is as expected as a miss."""
        observed = found.hit.sum(axis=1)
        as_expected = found.hit[:, _RUNNING] + found.hit[:, -1]
        unexplained = found.missed[:, -1]
        return cls(
            observed=observed,
            expected=as_expected + unexplained,
            more=observed - as_expected,
            missed=found.missed[:, :-1],
            unexplained=unexplained,
        )


@dataclass(frozen=True)
class GroupRow:
    """Requests with an observed value that share an hour, an instance, a session or a model."""

    group: str | None
    requests: int
    input_tokens: int
    observed_tokens: int
    expected_tokens: int
    unexplained_tokens: int
    more_tokens: int

    @property
    def gap_tokens(self) -> int:
        """Expected less observed."""
        return self.expected_tokens - self.observed_tokens


@dataclass(frozen=True)
class RequestRow:
    """One request that missed, and what most of it missed for, among what another cache could have served."""

    request_id: int
    timestamp: str | None
    instance: str | None
    session_id: str | None
    input_tokens: int
    observed_tokens: int
    expected_tokens: int
    unexplained_tokens: int
    cause: str
    cause_tokens: int


def group_rows(log: ObservedLog, cells: Cells, names: pa.Array | pa.ChunkedArray) -> tuple[GroupRow, ...]:
    """Return a row per name, by name; nothing where no request has one."""
    observed = log.observed
    if names.null_count == len(names):
        return ()
    encoded = pa.table({"name": names}).combine_chunks().column("name").combine_chunks().dictionary_encode()
    groups = encoded.dictionary.to_pylist()
    numbers = np.array(pc.fill_null(encoded.indices, len(groups)).to_numpy(zero_copy_only=False), np.int64)

    def summed(values: Int64Array) -> Int64Array:
        sums = np.zeros(len(groups) + 1, np.int64)
        np.add.at(sums, numbers[observed], values[observed])
        return sums

    columns = (
        summed(np.ones_like(cells.observed)),
        summed(log.prompts.input_tokens),
        summed(cells.observed),
        summed(cells.expected),
        summed(cells.unexplained),
        summed(cells.more),
    )
    rows = [
        GroupRow(group, *(int(column[i]) for column in columns))
        for i, group in enumerate([*groups, None])
        if columns[0][i]
    ]
    return tuple(sorted(rows, key=lambda row: (row.group is None, row.group or "")))


def hours(log: ObservedLog) -> pa.Array | pa.ChunkedArray:
    """Return the hour of every request, as ISO 8601 text."""
    times = log.streamed.columns.column("timestamp")
    return pc.strftime(pc.floor_temporal(times, unit="hour"), format="%Y-%m-%dT%H:00:00")


def worst_requests(log: ObservedLog, cells: Cells, count: int) -> tuple[RequestRow, ...]:
    """Return the requests with most unexplained tokens, then with most that a cache could have served."""
    avoidable = [MISS_CAUSES.index(cause) for cause in _AVOIDABLE]
    causes = np.column_stack([cells.unexplained, cells.missed[:, avoidable]])
    names = (UNEXPLAINED, *_AVOIDABLE)
    missed = causes.sum(axis=1)
    order = np.lexsort((-missed, -cells.unexplained))[:count]
    columns = log.streamed.columns
    rows = []
    for request in order[missed[order] > 0].tolist():
        worst = int(causes[request].argmax())
        rows.append(
            RequestRow(
                request_id=request,
                timestamp=log.time_text(request),
                instance=log.cache_names[log.caches[request]],
                session_id=columns.column("session_id")[request].as_py(),
                input_tokens=int(log.prompts.input_tokens[request]),
                observed_tokens=int(cells.observed[request]),
                expected_tokens=int(cells.expected[request]),
                unexplained_tokens=int(cells.unexplained[request]),
                cause=names[worst],
                cause_tokens=int(causes[request, worst]),
            )
        )
    return tuple(rows)

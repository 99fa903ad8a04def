"""Requests in replay order to record batches, with what can only be checked across records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kvcap.errors import RecordError
from kvcap.formats.base import MAX_EXAMPLES, ReadReport
from kvcap.formats.block_size import InferredSize
from kvcap.formats.columns import KeptColumn, list_array
from kvcap.formats.dialect import Dialect
from kvcap.formats.fields import NamedFields
from kvcap.formats.identity import compose
from kvcap.formats.options import ReadOptions, TimestampUnit
from kvcap.formats.rows import FieldError, Ids, Row, Skip, number_of_name, usual_weights
from kvcap.formats.timestamps import to_microseconds
from kvcap.kernels.json_flags import ABOVE_INT64, NEGATIVE
from kvcap.schema import (
    BLOCK_TOKENS,
    HASH_IDS,
    LOGGED_COLUMNS,
    TIMESTAMP,
    TOKEN_IDS,
    TraceKind,
    trace_schema,
)

MAX_BATCH_IDS: Final = 1 << 20
_MOST_START_UP_LINES: Final = 200
_IDS_PER_ROW: Final = 16
MAX_KNOWN_REQUESTS: Final = 1 << 20
"""So many requests are remembered to tell which come again, where those are not left out."""
_CHARACTERS_PER_ID: Final = 8


class Assembler:
    """Collect requests and make record batches of them.

    Parameters
    ----------
    dialect
        Where the rows come from.
    options
        The user's.
    report
        Is kept up to date.
    unit
        Unit of numeric timestamps.
    kept
        The kept columns.
    named
        The fields that the user named.
    inferred
        The block size where neither records nor options give one.
    """

    def __init__(
        self,
        dialect: Dialect,
        options: ReadOptions,
        report: ReadReport,
        unit: TimestampUnit,
        kept: Sequence[KeptColumn],
        named: NamedFields,
        inferred: InferredSize | None = None,
    ) -> None:
        self.kind: TraceKind = dialect.kind
        self.schema = trace_schema(dialect.kind, tuple(column.field for column in kept))
        self.report = report
        self._dialect = dialect
        if inferred is not None:
            options = replace(options, block_size=inferred.size)
        self._inferred = inferred
        self._options = options
        self._unit = unit
        self._kept = tuple(kept)
        self._named = named
        self._stamped_at_end = options.fields.timestamp_is == "end"
        self._pool = options.pool or dialect.pool
        self._needs_time = is_ordered_by_time(options, dialect)
        self._sequence = dialect.sequencer(options, report) if dialect.sequencer else None
        self._numbers: dict[str, int] = {}
        self._namespaces: dict[str | None, str | None] = {}
        self._id_type: type | None = None
        self._id_flags = 0
        self._block_size: int | None = None
        self._last_us: int | None = None
        self._n_requests = 0
        self._partial_ceil = self._partial_floor = 0
        self._fitting = self._weighed = 0
        self._known_requests: set[int] = set()
        self._repeated = 0
        self._remarks: Counter[str] = Counter()
        self._clear()

    def _clear(self) -> None:
        self._weight = 0
        self._rows: list[Row] = []
        self._times: list[int | None] = []
        self._ids: list[Ids] = []
        self._pools: list[str | None] = []
        self._paths: list[str] = []

    @property
    def is_full(self) -> bool:
        """Whether a batch's worth of ids waits."""
        return self._weight >= MAX_BATCH_IDS

    @property
    def is_done(self) -> bool:
        """Whether the user wants no more requests."""
        return self._options.max_requests is not None and self._n_requests >= self._options.max_requests

    def add(self, outcome: Row | Skip | RecordError, path: str) -> None:
        """Take what one record came to.

        Raises
        ------
        RecordError
            If the record is wrong, and more so than the user tolerates.
        """
        self.report.records += 1
        if isinstance(outcome, RecordError):
            self._bad(outcome)
            return
        try:
            if isinstance(outcome, Row):
                self._check_size(outcome)
            item = self._sequence(outcome) if self._sequence and isinstance(outcome, Row) else outcome
        except FieldError as error:
            self._bad(RecordError(path, outcome.line, error.field, error.reason))
            return
        if isinstance(item, Skip):
            self.report.skip(item.reason)
            if item.start_up is not None and len(self.report.start_up_lines) < _MOST_START_UP_LINES:
                self.report.start_up_lines.append(item.start_up)
        else:
            self._take(item, path)

    def add_rest(self, path: str) -> None:
        """Take what the dialect's sequencing still holds at the end of the log."""
        for row in getattr(self._sequence, "rest", list)():
            if not self.is_done:
                self._take(row, path)

    def _take(self, row: Row, path: str) -> None:
        try:
            self._add_row(row, path)
        except FieldError as error:
            self._bad(RecordError(path, row.line, error.field, error.reason))

    def _bad(self, error: RecordError) -> None:
        if self.report.bad_records >= self._options.skip_bad:
            raise error
        self.report.bad_records += 1
        if len(self.report.bad_examples) < MAX_EXAMPLES:
            self.report.bad_examples.append(str(error))

    def _check_size(self, row: Row) -> None:
        """Refuse what no request can be, before anything of that size is set aside."""
        most = self._options.max_request_tokens
        if max(row.input_length or 0, row.output_length or 0) > most:
            field = "input_length" if (row.input_length or 0) > most else "output_length"
            found = getattr(row, field)
            raise FieldError(field, f"is {found}, expected at most {most} (--max-request-tokens)")
        count = row.ids.values.size if isinstance(row.ids, Ids) else len(row.ids or ())
        if count > most:
            raise FieldError(
                self._id_field(row), f"holds {count} ids, expected at most {most} (--max-request-tokens)"
            )

    def _add_row(self, row: Row, path: str) -> None:
        """Check a row completely, then take it: a bad record leaves no trace."""
        if self._named.paths:
            n_kept = len(self._kept)
            self._named.apply(row, row.kept[n_kept : n_kept + len(self._named.paths)])
        time_us = None if row.timestamp is None else to_microseconds(row.timestamp, self._unit)
        if time_us is None and self._needs_time:
            raise FieldError(
                "timestamp", "is missing, expected one, since requests are put in the order of time"
            )
        if self._stamped_at_end and time_us is not None:
            if row.duration_us is None:
                raise FieldError(
                    "duration",
                    "is missing, expected one, since --timestamp-is end takes it off the timestamp",
                )
            time_us -= row.duration_us
        pool = self._pool_of(row)
        row.namespace = self._namespace_of(row)
        if self._is_repeated(row, time_us):
            self.report.skip("requests that are logged again, with the same id and time")
            return
        kept: Sequence[Any] = ()
        if self._kept:
            kept = [column.convert(value) for column, value in zip(self._kept, row.kept, strict=False)]
        if self.kind != "request_json":
            ids = self._ids_of(row)
            self._ids.append(ids)
            self._weight += ids.values.size
            self._complete_length(row, ids.values.size, path)
            self._clip_cached(row)
        row.kept = kept
        if row.kv_bytes_per_token is not None:
            self._note_bytes(row.kv_bytes_per_token)
        if row.remarks:
            self._remarks.update(row.remarks)
        self._rows.append(row)
        self._times.append(time_us)
        self._pools.append(pool)
        self._paths.append(path)
        self._weight += _IDS_PER_ROW + (len(row.text) // _CHARACTERS_PER_ID if row.text else 0)
        if time_us is not None:
            if self._last_us is not None and time_us < self._last_us:
                self.report.step_back([self._last_us - time_us])
            self._last_us = time_us
        self._n_requests += 1

    def _note_bytes(self, kv_bytes_per_token: Fraction) -> None:
        report = self.report
        if report.kv_bytes_per_token is None:
            report.kv_bytes_per_token = str(kv_bytes_per_token)
        elif report.kv_bytes_per_token != str(kv_bytes_per_token):
            report.notice(
                "records say different bytes per token: those of the first one are taken "
                "(--kv-bytes-per-token says it otherwise)"
            )

    def _is_repeated(self, row: Row, time_us: int | None) -> bool:
        """Count a request that came before; return whether it is to be left out."""
        drops = self._options.drop_repeats
        if row.request_id is None:
            return False
        known = hash((row.request_id, time_us))
        if known in self._known_requests:
            self._repeated += not drops
            return drops
        if drops or len(self._known_requests) < MAX_KNOWN_REQUESTS:
            self._known_requests.add(known)
        return False

    def _namespace_of(self, row: Row) -> str | None:
        columns = self._options.namespace
        if columns is not None:
            begin = len(self._kept) + len(self._named.paths)
            return compose(zip(columns, row.kept[begin : begin + len(columns)], strict=True))
        if row.namespace is not None or (row.model is None and row.identity is None):
            return row.namespace or None
        if row.identity is None:
            if row.model not in self._namespaces:
                self._namespaces[row.model] = compose([("model", row.model)])
            return self._namespaces[row.model]
        return compose([("model", row.model), *sorted(row.identity.items())])

    def _pool_of(self, row: Row) -> str | None:
        if self._pool is None:
            return None
        value = row.kept[-1]
        if value is None or isinstance(value, list | dict):
            found = "missing" if value is None else "a list or object"
            raise FieldError(self._pool, f"is {found}, expected a value, since it names the pool")
        return value if type(value) is str else str(value)

    def _ids_of(self, row: Row) -> Ids:
        ids = row.ids
        if isinstance(ids, Ids):
            if ids.values.size and self._id_type is str:
                raise FieldError(
                    self._id_field(row), "holds integers, expected strings as in the records before"
                )
            flags = self._id_flags | ids.flags
            if flags & NEGATIVE and flags & ABOVE_INT64:
                now, before = (
                    ("2**63 or more", "below 0") if ids.flags & ABOVE_INT64 else ("below 0", "2**63 or more")
                )
                raise FieldError(
                    self._id_field(row),
                    f"holds an id that is {now} where one before is {before}, expected ids that are either "
                    "signed or unsigned 64-bit integers throughout",
                )
        else:
            if self._id_type is int:
                raise FieldError(
                    self._id_field(row), "holds strings, expected integers as in the records before"
                )
            names = ids or ()
            ids = Ids(np.fromiter(map(self._number_of, names), dtype=np.uint64, count=len(names)))
            flags = self._id_flags
        self._check_block_size(row)
        self._id_flags = flags
        if ids.values.size:
            self._id_type = int if isinstance(row.ids, Ids) else str
        return ids

    def _number_of(self, name: str) -> int:
        # Not numbered as they appear: logs that are converted apart are replayed together.
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = number_of_name(name)
        return number

    def _id_field(self, row: Row) -> str:
        return "hash_ids" if self.kind == "hash_ids" else "token_ids"

    def _check_block_size(self, row: Row) -> None:
        if self.kind != "hash_ids":
            return
        declared = row.block_size
        if declared is None:
            declared = self._options.block_size
        elif self._options.block_size not in (None, declared):
            self.report.notice(
                f"the log declares blocks of {declared} tokens, which wins over --block-size "
                f"{self._options.block_size}"
            )
        if declared is not None and self._block_size not in (None, declared):
            raise FieldError(
                "block_size", f"is {declared}, expected {self._block_size} as in the records before"
            )
        row.block_size = self._block_size = declared if declared is not None else self._block_size

    def _complete_length(self, row: Row, count: int, path: str) -> None:
        if self.kind == "token_ids":
            row.input_length = count
            return
        if row.block_size is None:
            usual = self._dialect.usual_block_size
            hint = f" (published traces of this kind use {usual})" if usual else ""
            raise RecordError(
                path,
                row.line,
                "block_size",
                f"is missing, expected it in the record or as --block-size{hint}",
            )
        if row.input_length is None:
            weights = row.block_tokens
            row.input_length = count * row.block_size if weights is None else int(weights.values.sum())
            self.report.notice("requests without input_length count as full blocks")

    def _clip_cached(self, row: Row) -> None:
        cached, length = row.observed_cached_tokens, row.input_length
        if cached is not None and length is not None and cached > length:
            row.observed_cached_tokens = length
            self.report.clipped_cached_tokens += 1

    def flush(self) -> pa.RecordBatch | None:
        """Return what waits as a batch, or None if nothing does."""
        n = len(self._rows)
        if n == 0:
            return None
        rows = self._rows
        first = self.report.requests
        columns = [
            pa.array(np.arange(first, first + n, dtype=np.int64)),
            pa.array(self._times, type=TIMESTAMP),
            pa.array(self._pools, type=pa.string()),
            pa.array(list(map(attrgetter("session"), rows)), type=pa.string()),
            pa.array(list(map(attrgetter("model"), rows)), type=pa.string()),
            pa.array(list(map(attrgetter("input_length"), rows)), type=pa.int64()),
            pa.array(list(map(attrgetter("output_length"), rows)), type=pa.int64()),
            pa.array(list(map(attrgetter("block_size"), rows)), type=pa.int32()),
            *_logged(rows),
            *self._payload(rows),
            *(
                pa.array([row.kept[index] for row in rows], type=column.field.type)
                for index, column in enumerate(self._kept)
            ),
        ]
        self.report.requests += n
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _payload(self, rows: list[Row]) -> list[Any]:
        if self.kind == "request_json":
            return [
                pa.array(list(map(attrgetter("text"), rows)), type=pa.string()),
                pa.array(self._paths, type=pa.string()),
                pa.array(list(map(attrgetter("line"), rows)), type=pa.int64()),
            ]
        if self.kind == "token_ids":
            return [
                list_array(self._ids, TOKEN_IDS),
                list_array([row.output_ids for row in rows], TOKEN_IDS),
            ]
        self._count_lengths(rows)
        return [list_array(self._ids, HASH_IDS), list_array(self._weights(rows), BLOCK_TOKENS)]

    def _weights(self, rows: list[Row]) -> list[Ids | None]:
        """Return tokens per block where any record has them: then the others have the usual ones."""
        if all(row.block_tokens is None for row in rows):
            return [None] * len(rows)
        return [
            row.block_tokens or usual_weights(ids.values.size, row.input_length or 0, row.block_size or 1)
            for row, ids in zip(rows, self._ids, strict=True)
        ]

    def _count_lengths(self, rows: list[Row]) -> None:
        """Compare the ids of each request with what its length can fill."""
        plain = [index for index, row in enumerate(rows) if row.block_tokens is None]
        count = np.array([self._ids[index].values.size for index in plain], dtype=np.int64)
        length = np.array([rows[index].input_length for index in plain], dtype=np.int64)
        size = np.array([rows[index].block_size for index in plain], dtype=np.int64)
        full, partial = length // np.maximum(size, 1), length % np.maximum(size, 1) > 0
        self._fitting += int(np.count_nonzero((count == full) | (count == full + partial)))
        self._weighed += count.size
        self.report.overfull_requests += int(np.count_nonzero(count > full + partial))
        self.report.underfull_requests += int(np.count_nonzero(count < full + partial))
        self._partial_ceil += int(np.count_nonzero(partial & (count == full + 1)))
        self._partial_floor += int(np.count_nonzero(partial & (count == full)))

    def finish(self) -> None:
        """Say what only the whole log shows."""
        if self._repeated:
            self.report.notice(
                f"{self._repeated:,} requests come again, with the same id and time: "
                "--drop-repeats leaves them out"
            )
        if self._inferred is not None:
            requests = f"{self._weighed:,} requests"
            who = f"all {requests}" if self._fitting == self._weighed else f"{self._fitting:,} of {requests}"
            self.report.notice(
                f"blocks of {self._inferred.size:,} tokens, {self._inferred.reason.format(who)}"
            )
        for remark, count in self._remarks.items():
            self.report.notice(f"{count:,} {remark}")
        if self._partial_floor and not self._partial_ceil:
            self.report.notice(
                "ids cover full blocks only (floor): the tail of a prompt has no id, but its tokens count"
            )
        elif self._partial_ceil and not self._partial_floor:
            self.report.notice("ids cover a partial last block too (ceil)")


def is_ordered_by_time(options: ReadOptions, dialect: Dialect) -> bool:
    """Return whether requests are put in the order of time."""
    return options.by_time or dialect.by_time or options.fields.timestamp_is == "end"


_ROW_FIELDS: Final = {"media_hashes": "media"}


def _logged(rows: list[Row]) -> list[Any]:
    """Return the columns of what logs say beside prompts; most logs say none of it."""
    columns = []
    for field in LOGGED_COLUMNS:
        name = _ROW_FIELDS.get(field.name, field.name)
        values = list(map(attrgetter(name), rows))
        silent = values.count(None) == len(values)
        columns.append(pa.nulls(len(rows), field.type) if silent else pa.array(values, type=field.type))
    return columns

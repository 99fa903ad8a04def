"""Session documents of kv-cache-tester (callanjfox/kv-cache-tester): one JSON document per coding session.

::

    {"id": "trace_1", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 10,
     "system_tokens": 5,
     "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 150, "out": 20, "hash_ids": [1, 2]},
                  {"t": 3.0, "type": "subagent", "agent_id": "agent_001", "requests": [{"t": 0.5, ...}]}]}

A document may stand in a file of its own, over many lines, or on one line of many. ``t`` is in seconds from
the start of the session; inside a subagent it counts from the subagent's spawn. Requests come in the order
of time within a session, subagents among the others. Ids are local to their document unless
``hash_id_scope`` says ``global``, so they are put in a namespace of their own; they cover full blocks only
(``floor``). Types are ``n`` (normal) and ``s`` (streamed); both are requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kvcap.formats.base import ReadReport
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import (
    FieldError,
    Ids,
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inside,
    optional_count,
    optional_number,
    optional_size,
    optional_text,
    required,
    required_count,
    show,
)

_MAX_NESTING: Final = 20
_LOCAL_BITS: Final = 32


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "requests")
    scope = record.get("hash_id_scope", "local")
    if scope not in ("local", "global"):
        raise FieldError("hash_id_scope", f"is {show(scope)}, expected local or global")
    timed = list(_requests(record, values, 0.0, "", 0))
    timed.sort(key=lambda pair: pair[0])
    if not timed:
        yield Skip("session without a request")
    document = object()
    session, size = optional_text(record, "id"), optional_size(record, "block_size")
    for _, row in timed:
        row.session, row.block_size = session, size
        row.extra = document if scope == "local" else None
        yield row


def _requests(
    record: dict[str, Any], values: Values, start_s: float, path: str, depth: int
) -> Iterator[tuple[float, Row]]:
    if depth > _MAX_NESTING:
        raise FieldError(path, f"is nested more than {_MAX_NESTING} deep, expected fewer subagents")
    for index, item in enumerate(inner_list(record, "requests")):
        where = f"{path}requests[{index}]"
        with inside(where):
            entry = an_object(item, "t, in and hash_ids")
            time_s = start_s + (optional_number(entry, "t") or 0.0)
            is_nested = entry.get("requests") is not None
            if not is_nested:
                row = _request(entry, values, time_s)
        if is_nested:
            yield from _requests(entry, values, time_s, f"{where}.", depth + 1)
        else:
            yield time_s, row


def _request(entry: dict[str, Any], values: Values, time_s: float) -> Row:
    ids = values.integers(required(entry, "hash_ids", "a list of ids"), "hash_ids")
    return Row(
        ids=ids,
        timestamp=time_s,
        model=optional_text(entry, "model"),
        input_length=required_count(entry, "in"),
        output_length=optional_count(entry, "out"),
        record=entry,
    )


class _Namespaces:
    """Keep the ids of different documents apart."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._document: object = None
        self._n_documents = 0
        self._report = report

    def __call__(self, row: Row) -> Row:
        if row.extra is None or not isinstance(row.ids, Ids):
            return row
        if row.extra is not self._document:
            self._document = row.extra
            self._n_documents += 1
        values = row.ids.values
        if values.size and int(values.max()) >> _LOCAL_BITS:
            raise FieldError("hash_ids", f"holds an id from 2**{_LOCAL_BITS} on, expected smaller ones")
        row.ids = Ids(values | np.uint64((self._n_documents - 1) << _LOCAL_BITS))
        if self._n_documents == 2:
            self._report.notice(
                "every session counts its time from its own start and replays in file order; "
                "--sort-by-time starts them all at once"
            )
        return row


KV_CACHE_TESTER: Final = Dialect(
    name="kv-cache-tester",
    summary="kv-cache-tester sessions: one JSON document each, local ids, nested subagents",
    kind="hash_ids",
    matches=lambda record: (
        has(record, "requests", "block_size") or (has(record, "requests", "hash_id_scope"))
    ),
    read=_read,
    sequencer=_Namespaces,
    timestamp_unit="s",
)

"""Request traces of NVIDIA Dynamo (``dynamo.request.trace.v1``).

::

    {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1777312801000,
     "request": {"request_id": "r-1", "request_received_ms": 1777312800000, "output_tokens": 16,
                 "replay": {"trace_block_size": 64, "input_length": 128,
                            "input_sequence_hashes": [14879255164371896291]}}}

A line is written when a request ends, so requests are put in the order in which they were received. Sequence
hashes are unsigned 64-bit integers, chained over the prefix. Rows of tools are no requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.identity import identity_of
from kvcap.formats.rows import (
    Row,
    Skip,
    Values,
    an_object,
    inner_object,
    inside,
    optional_count,
    optional_size,
    optional_text,
    required,
    required_count,
    show,
)

_SCHEMA: Final = "dynamo.request.trace."


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "a request")
    event = record.get("event_type")
    if event != "request_end":
        kind = event.partition("_")[0] if type(event) is str else show(event)
        yield Skip("rows of tools" if kind == "tool" else f"rows of event_type {show(event)}")
        return
    request = inner_object(record, "request")
    with inside("request"):
        replay = inner_object(request, "replay")
        with inside("replay"):
            hashes = required(replay, "input_sequence_hashes", "a list of hashes")
            row = Row(
                ids=values.ids(hashes, "input_sequence_hashes"),
                timestamp=required(request, "request_received_ms", "a time in milliseconds"),
                session=optional_text(record, "session_id") or optional_text(request, "session_id"),
                model=optional_text(request, "model"),
                input_length=required_count(replay, "input_length"),
                output_length=optional_count(request, "output_tokens"),
                block_size=optional_size(replay, "trace_block_size"),
                identity=identity_of(replay, request),
                record=request,
            )
    yield row


DYNAMO: Final = Dialect(
    name="dynamo",
    summary="NVIDIA Dynamo request traces: input_sequence_hashes, put in the order received",
    kind="hash_ids",
    matches=lambda record: (
        has(record, "schema", "event_type")
        and isinstance(record["schema"], str)
        and record["schema"].startswith(_SCHEMA)
    ),
    read=_read,
    by_time=True,
)

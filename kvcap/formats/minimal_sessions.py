"""Minimal sessions: one session a line, with nothing but times and ids.

::

    {"requests": [{"timestamp": 0, "hash_ids": [10, 11]}, {"timestamp": 3, "hash_ids": [10, 11, 12]}]}

Times are seconds. Ids are shared by all sessions. Without ``input_length`` every block counts as full, of
``--block-size`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inside,
    optional_count,
    optional_size,
    optional_text,
    required,
)


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "requests")
    requests = inner_list(record, "requests")
    if not requests:
        yield Skip("session without a request")
    for index, item in enumerate(requests):
        with inside(f"requests[{index}]"):
            entry = an_object(item, "hash_ids")
            row = Row(
                ids=values.ids(required(entry, "hash_ids", "a list of ids"), "hash_ids"),
                timestamp=entry.get("timestamp"),
                session=optional_text(record, "session_id", "id"),
                model=optional_text(entry, "model"),
                input_length=optional_count(entry, "input_length"),
                output_length=optional_count(entry, "output_length"),
                block_size=optional_size(record, "block_size"),
                record=entry,
            )
        yield row


def _matches(record: Any) -> bool:
    return (
        has(record, "requests")
        and isinstance(record["requests"], list)
        and bool(record["requests"])
        and has(record["requests"][0], "hash_ids")
    )


MINIMAL_SESSIONS: Final = Dialect(
    name="minimal-sessions",
    summary="one session a line: requests with timestamp in s and hash_ids alone",
    kind="hash_ids",
    matches=_matches,
    read=_read,
    timestamp_unit="s",
)

"""Logs of Tair KVCache (Alibaba Cloud): scheduler rows, prefill timelines, and cache manager events.

::

    {"timestamp": 1780722022391.4, "input_length": 1997, "output_length": 1, "block_ids":
    [5692952558749735400, ...]}
    {"request_id": "req-0018", "timestamp": 1780923600.09, "model_name": "m", "input_length": 2800,
     "input_block_hash_ids": [18000, 18001], "pods": ["pod-a"], "prefill": {"request_arrival_ms":
     1780923609000}}
    {"type": "GetCacheLocation", "trigger_time_us": 1763975741548745, "query_type": "prefix_match",
     "keys": [7467810767593291063, -7262535415567954716], "source": "377"}

Keys are signed 64-bit integers, or hex strings. Blocks hold 256 tokens in the public replays, which the
records do not say. The cache manager publishes a read (``GetCacheLocation``) and later a write
(``StartWriteCache``) of one request: only the read counts. It gives no lengths, so blocks count as full.
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
    optional_count,
    optional_size,
    optional_text,
    required,
    required_count,
    show,
)

_BLOCK_SIZE: Final = 256


def _read_request(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "block_ids or input_block_hash_ids")
    field = "input_block_hash_ids" if "input_block_hash_ids" in record else "block_ids"
    yield Row(
        ids=values.ids(required(record, field, "a list of ids"), field),
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model_name"),
        input_length=required_count(record, "input_length"),
        output_length=optional_count(record, "output_length"),
        block_size=optional_size(record, "block_size"),
    )


def _read_event(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "keys")
    event = record.get("type")
    if event != "GetCacheLocation":
        yield Skip(f"events of type {show(event)}, which follow a read of the same request")
        return
    if record.get("query_type", "prefix_match") != "prefix_match":
        yield Skip(f"queries of type {show(record['query_type'])}, which read no prefix")
        return
    yield Row(
        ids=values.ids(required(record, "keys", "a list of keys"), "keys"),
        timestamp=record.get("trigger_time_us"),
        block_size=optional_size(record, "block_size"),
    )


TAIR: Final = Dialect(
    name="tair",
    summary="Tair KVCache scheduler rows and timelines: block_ids or input_block_hash_ids (signed)",
    kind="hash_ids",
    matches=lambda record: (
        has(record, "input_length") and (has(record, "block_ids") or has(record, "input_block_hash_ids"))
    ),
    read=_read_request,
    usual_block_size=_BLOCK_SIZE,
)

TAIR_EVENTS: Final = Dialect(
    name="tair-events",
    summary="Tair KVCache manager events: one request per GetCacheLocation, writes left out",
    kind="hash_ids",
    matches=lambda record: has(record, "type", "keys", "trigger_time_us"),
    read=_read_event,
    timestamp_unit="us",
    usual_block_size=_BLOCK_SIZE,
)

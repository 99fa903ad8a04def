"""Qwen-Bailian usage traces (Alibaba Cloud, USENIX ATC 2025).

::

    {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132,
     "type": "text", "turn": 2, "hash_ids": [1089, 1090, 1091, 6326]}

Times are seconds from the start. Blocks hold 16 tokens, which the records do not say. Every row is a whole
prompt; ``parent_chat_id`` is the request that it continues (-1 for none), and the first request of such a
chain names its session here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.base import ReadReport
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.hash_ids import read_hash_row
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import Row, Skip, Values, optional_text


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    row = read_hash_row(record, values)
    row.extra = optional_text(record, "parent_chat_id")
    yield row


class _Chains:
    """Name each request after the first one of its chain."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._first: dict[str, str] = {}

    def __call__(self, row: Row) -> Row:
        if row.session is not None:
            first = self._first.get(row.extra, row.session)
            self._first[row.session] = first
            row.session = first
        return row


QWEN_BAILIAN: Final = Dialect(
    name="qwen-bailian",
    summary="Qwen-Bailian traces: chat_id, parent_chat_id, timestamp in s, hash_ids of 16 tokens",
    kind="hash_ids",
    matches=lambda record: has(record, "chat_id", "parent_chat_id", "hash_ids"),
    read=_read,
    sequencer=_Chains,
    timestamp_unit="s",
    usual_block_size=16,
)

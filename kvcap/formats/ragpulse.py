"""RAGPulse (flashserve/RAGPulse): retrieval-augmented requests as ids of their parts.

::

    {"timestamp": "82", "input_length": 3112, "output_length": 192, "session_id": "1757-x",
     "hash_ids": {"sys_prompt": [8302, 14332], "passages_ids": [7398, 7370], "history": [15200],
     "web_search": [],
                  "user_input": [26923]}}
    {"passage_id": 7398, "token_length": 286}

Times are seconds from the start, in strings. Ids stand in categories, which follow each other in the prompt
as the record lists them. They name texts of different lengths, repeat, and are not chained. The side files
(passages, history and so on) give each id's tokens: named before the trace, they weigh the blocks
(``block_tokens``), and ``--block-size`` only says how large a block is for bytes; without them every block
counts as ``--block-size`` tokens.
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
    inner_object,
    inside,
    optional_count,
    optional_size,
    optional_text,
    required_count,
    show,
)

_WEIGHT: Final = "token_length"


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "hash_ids")
    if _is_side_row(record):
        size = optional_size(record, _WEIGHT)
        (name,) = (key for key in record if key != _WEIGHT)
        yield Row(extra=(required_count(record, name), size))
        return
    categories = inner_object(record, "hash_ids")
    with inside("hash_ids"):
        parts = [values.integers(ids, category) for category, ids in categories.items()]
    flags = 0
    for part in parts:
        flags |= part.flags
    joined = np.concatenate([part.values for part in parts]) if parts else np.empty(0, dtype=np.uint64)
    yield Row(
        ids=Ids(joined, flags),
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        input_length=required_count(record, "input_length"),
        output_length=optional_count(record, "output_length"),
        block_size=optional_size(record, "block_size"),
    )


class _Weights:
    """Weigh blocks by the rows of side files that came before."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._tokens: dict[int, int] = {}
        self._seen_request = False

    def __call__(self, row: Row) -> Row | Skip:
        if row.extra is not None:
            if self._seen_request:
                raise FieldError(_WEIGHT, "comes after a request, expected side files before the trace")
            number, size = row.extra
            self._tokens[number] = size or 1
            return Skip("rows of side files, which give the tokens of ids")
        self._seen_request = True
        if self._tokens and isinstance(row.ids, Ids):
            row.block_tokens = Ids(
                np.array([self._size(i) for i in row.ids.values.tolist()], dtype=np.uint64)
            )
        return row

    def _size(self, number: int) -> int:
        size = self._tokens.get(number)
        if size is None:
            raise FieldError("hash_ids", f"holds {show(number)}, expected an id that a side file gives")
        return size


def _is_side_row(record: dict[str, Any]) -> bool:
    return len(record) == 2 and _WEIGHT in record


RAGPULSE: Final = Dialect(
    name="ragpulse",
    summary="RAGPulse: hash_ids in categories; side files (token_length) named first weigh them",
    kind="hash_ids",
    matches=lambda record: (
        isinstance(record, dict)
        and (
            _is_side_row(record)
            or (has(record, "hash_ids", "input_length") and isinstance(record["hash_ids"], dict))
        )
    ),
    read=_read,
    sequencer=_Weights,
    timestamp_unit="s",
)

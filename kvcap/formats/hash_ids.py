"""Hash ids: one request a line, as the ids of its blocks.

::

    {"hash_ids": [0, 1, 2], "input_length": 1400, "block_size": 512, "block_tokens": [512, 512, 376],
     "timestamp": 27482, "output_length": 52, "session_id": "s", "model": "m"}

``hash_ids`` and ``input_length`` are required. Ids are integers of 64 bits, signed or unsigned, or strings.
Where a record has no ``block_size``, ``--block-size`` gives it. ``block_tokens`` weighs each block; without
it the last block weighs what is left of ``input_length``. ``timestamp`` is in milliseconds unless its size
shows another unit; ``timestamp_ms`` is another name for it. ``chat_id`` is another name for ``session_id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    FieldError,
    Ids,
    Row,
    Skip,
    Values,
    an_object,
    is_list,
    optional_count,
    optional_size,
    optional_text,
    required,
    required_count,
)

_SESSION_KEYS: Final = ("delay", "delay_ms", "group_id", "wait_for")


def read_hash_row(record: Any, values: Values) -> Row:
    """Return one record of hash ids."""
    record = an_object(record, "hash_ids")
    ids = values.ids(
        required(record, "hash_ids", "a list of ids: without them there are no blocks"), "hash_ids"
    )
    weights = record.get("block_tokens")
    count = ids.values.size if isinstance(ids, Ids) else len(ids)
    return Row(
        ids=ids,
        timestamp=record.get("timestamp", record.get("timestamp_ms")),
        session=optional_text(record, "session_id", "chat_id"),
        model=optional_text(record, "model", "model_name"),
        namespace=optional_text(record, "namespace"),
        input_length=required_count(record, "input_length"),
        output_length=optional_count(record, "output_length"),
        block_size=optional_size(record, "block_size"),
        block_tokens=None if weights is None else values.weights(weights, "block_tokens", count),
    )


def read_hash_ids(record: Any, values: Values) -> Iterator[Row | Skip]:
    """Read one record of hash ids that says everything itself."""
    row = read_hash_row(record, values)
    for key in _SESSION_KEYS:
        if record.get(key) is not None:
            raise FieldError(
                key,
                "is there, expected rows of whole prompts with a time of their own: for sessions say "
                "--input-format mooncake-sessions or mooncake-agentic",
            )
    yield row


HASH_ID_LOG: Final = Dialect(
    name="hash-ids",
    summary="one request a line: hash_ids (integers or strings), input_length, and what else is known",
    kind="hash_ids",
    matches=lambda record: has(record, "hash_ids") and is_list(record["hash_ids"]),
    read=read_hash_ids,
)

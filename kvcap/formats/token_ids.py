"""Token ids: one request a line, as the tokens of its prompt.

::

    [1, 2, 3]
    {"input_ids": [1, 2, 3], "timestamp": 1710000000000, "output_ids": [7, 8]}
    {"token_ids": [1, 2, 3], "output_length": 2}
    {"tokens": []}
    {"prompt": [1, 2, 3], "model": "m"}

The shapes may be mixed in one file. Token ids are integers from 0 to 2**32 - 1; an empty list is a request
of no blocks. ``timestamp`` is in milliseconds unless its size shows another unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect
from kvcap.formats.rows import FieldError, Row, Skip, Values, is_list, optional_count, optional_text, show

KEYS: Final = ("input_ids", "token_ids", "tokens", "prompt_token_ids")
"""Fields that hold token ids and nothing else; ``prompt`` may hold them, too."""


def read_token_ids(record: Any, values: Values) -> Iterator[Row | Skip]:
    """Read one record of token ids."""
    if type(record) is list:
        yield Row(ids=values.tokens(record, "token_ids"))
        return
    if type(record) is not dict:
        raise FieldError("", f"is {show(record)}, expected a list of token ids or an object with one")
    keys = [key for key in KEYS if record.get(key) is not None]
    if not keys and record.get("prompt") is not None:
        keys = ["prompt"]
    if len(keys) != 1:
        found = f"has {' and '.join(keys)}" if keys else "has no token ids"
        raise FieldError("", f"{found}, expected exactly one of {', '.join(KEYS)}")
    output = record.get("output_ids")
    output_ids = None if output is None else values.tokens(output, "output_ids")
    output_length = optional_count(record, "output_length")
    if output_length is None and output_ids is not None:
        output_length = output_ids.values.size
    yield Row(
        ids=values.tokens(record[keys[0]], keys[0]),
        timestamp=record.get("timestamp", record.get("timestamp_ms")),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model", "model_name"),
        namespace=optional_text(record, "namespace"),
        output_length=output_length,
        output_ids=output_ids,
    )


def _matches(record: Any) -> bool:
    if isinstance(record, list):
        return all(type(item) is int for item in record)
    if not isinstance(record, dict):
        return False
    prompt = record.get("prompt")
    is_prompt = isinstance(prompt, list) and bool(prompt) and all(type(item) is int for item in prompt)
    return is_prompt or any(is_list(record.get(key)) for key in KEYS)


TOKEN_ID_LOG = Dialect(
    name="token-ids",
    summary="one request a line: a list of token ids, or an object with input_ids, token_ids or tokens",
    kind="token_ids",
    matches=_matches,
    read=read_token_ids,
)

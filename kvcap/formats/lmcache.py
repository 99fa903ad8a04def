"""Logs of LMCache: lookups with the hashes of their chunks, and agent traces as text.

::

    {"timestamp": 1711929600.123, "request_id": "req-abc", "model_name": "m", "chunk_size": 256,
     "seq_len": 1024, "chunk_hashes": ["0xab12", "0xcd34", "0xef56", "0x0a78"]}
    {"timestamp": 1760587801647311, "input": "user: Hi", "output": "Hello", "session_id": "22ff"}

A lookup's hashes are hex strings over full chunks (``floor``); its time is in seconds. One log serves several
models, whose caches have nothing in common, so each ``model_name`` is a pool unless ``--pool`` says
otherwise. Agent traces hold the flattened prompt as text, with times in microseconds that need not ascend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    optional_size,
    optional_text,
    required,
    required_count,
    show,
)
from kvcap.formats.text_rows import text_row


def _read_lookup(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "chunk_hashes")
    yield Row(
        ids=values.ids(required(record, "chunk_hashes", "a list of hashes"), "chunk_hashes"),
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model_name"),
        input_length=required_count(record, "seq_len"),
        block_size=optional_size(record, "chunk_size"),
        kv_bytes_per_token=_bytes_per_token(record),
    )


_BYTES_OF: Final = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "uint8", "int8"), 1),
    **dict.fromkeys(("float16", "half", "bfloat16"), 2),
    **dict.fromkeys(("float32", "float"), 4),
}
"""Bytes of a value by PyTorch's name of its type."""


def _bytes_per_token(record: dict[str, Any]) -> Fraction | None:
    """Return what a token of a full chunk takes by ``shapes`` and ``dtypes``, None where they do not say."""
    shapes, kinds, chunk_tokens = (record.get(name) for name in ("shapes", "dtypes", "chunk_size"))
    if type(shapes) is not list or type(kinds) is not list or len(shapes) != len(kinds) or not shapes:
        return None
    size = 0
    for shape, kind in zip(shapes, kinds, strict=True):
        width = _BYTES_OF.get(kind.removeprefix("torch.")) if type(kind) is str else None
        counts = shape if type(shape) is list else ()
        if width is None or not counts or not all(type(n) is int and n > 0 for n in counts):
            return None
        size += width * math.prod(counts)
    return Fraction(size, chunk_tokens) if type(chunk_tokens) is int and chunk_tokens > 0 else None


def _read_text(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "input")
    prompt = record.get("input")
    if type(prompt) is not str:
        raise FieldError("input", f"is {show(prompt)}, expected text")
    yield text_row(
        {"prompt": prompt},
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model"),
    )


LMCACHE_LOOKUPS: Final = Dialect(
    name="lmcache-lookups",
    summary="LMCache lookup logs: chunk_hashes (hex), chunk_size, seq_len; one pool per model_name",
    kind="hash_ids",
    matches=lambda record: has(record, "chunk_hashes", "seq_len"),
    read=_read_lookup,
    timestamp_unit="s",
    pool="model_name",
)

LMCACHE_TEXT: Final = Dialect(
    name="lmcache-text",
    summary="LMCache agent traces: input as flattened text (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "input", "output", "timestamp") and isinstance(record["input"], str),
    read=_read_text,
    timestamp_unit="us",
)

"""What to do with a log of no known kind, from its first record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.bodies import is_body
from kvcap.formats.paths import unpacked

_MAX_DEPTH: Final = 5
_MAX_PLACES: Final = 500
_COUNTS: Final = ("token", "length", "lens")
_IDS: Final = ("hash", "token_ids", "input_ids")
_TEXTS: Final = ("prompt", "text", "content", "input", "query", "question", "instruction")
_LOG_INSTEAD: Final = (
    "log of each request its body (messages or prompt), its token_ids, or hash_ids with input_length"
)


def advice(record: Any) -> str:
    """Return what to do with a log that begins with this record, as the end of a sentence."""
    if isinstance(record, dict):
        for path, value in _places(record):
            if is_body(value):
                return f"a request body stands at {path}: read it with --body-field {path}"
        if "role" in record and "content" in record:
            return (
                "each line is a message of one conversation, not a request: gather them "
                "(jq -s '{messages: .}' FILE) and read that with --conversations turns"
            )
        for path, value in _places(record):
            name = path.rpartition(".")[2].lower()
            if isinstance(value, list) and any(mark in name for mark in _IDS) and _are_integers(value):
                return f"{path} looks like ids: name it hash_ids (with input_length) or token_ids"
        for path, value in _places(record):
            name = path.rpartition(".")[2].lower().removesuffix("s").rpartition("_")[2]
            if isinstance(value, str) and name in _TEXTS and "[]" not in path:
                return f"if {path} holds whole prompts, read it with --body-field {path}; else {_LOG_INSTEAD}"
        if any(mark in path.lower() for path, _ in _places(record) for mark in _COUNTS):
            return f"it holds lengths and no prompt that could be compared: {_LOG_INSTEAD}"
    return f"it holds no prompt that is known: {_LOG_INSTEAD}, and name where a body stands with --body-field"


def _places(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield path and value of what stands in a record, the outer before the inner."""
    level: list[tuple[str, Any]] = [(key, value) for key, value in record.items() if isinstance(key, str)]
    count = 0
    for _ in range(_MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            value = unpacked(value)
            count += 1
            if count > _MAX_PLACES:
                return
            yield path, value
            if isinstance(value, dict):
                below.extend((f"{path}.{key}", inner) for key, inner in value.items())
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                below.extend((f"{path}[].{key}", inner) for key, inner in value[0].items())
        level = below


def _are_integers(value: list[Any]) -> bool:
    return bool(value) and all(type(item) is int for item in value[:100])

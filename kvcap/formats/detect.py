"""Tell a log's dialect from its first records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from kvcap.errors import EmptyTraceError, RecordError, UnknownFormatError, UsageError
from kvcap.formats.advice import advice
from kvcap.formats.chunks import Chunk
from kvcap.formats.dialect import Dialect
from kvcap.formats.options import ReadOptions
from kvcap.formats.presets import named_body
from kvcap.formats.records import AnyChunk, decode_line, listed_records
from kvcap.formats.registry import DIALECTS
from kvcap.formats.rows import FieldError

_OF_LINES: Final = tuple(dialect for dialect in DIALECTS if dialect.decode is not None)
MAX_RECORDS: Final = 1000
_LIKE_JSON: Final = re.compile(r"""is ['"][\[{](?:\\[nrt]|\s)*["'\[{\d-]""")
_NOT_WHOLE: Final = "is the file whole, or are its lines cut?"
_NO_JSON: Final = (
    "of servers' own logs those of vLLM and SGLang that hold requests are read: log requests there, or at a "
    "gateway as JSON Lines with hash_ids, token_ids or messages"
)


def detect(chunk: AnyChunk, options: ReadOptions) -> Dialect:
    """Return the dialect that the user names, or that the first records show.

    Raises
    ------
    UsageError
        If there is no dialect of that name.
    UnknownFormatError
        If no dialect, or only such that cannot drive a replay, know the first records.
    RecordError
        If the first line is not JSON.
    EmptyTraceError
        If there is no record.
    """
    if options.fields.body is not None:
        return _body_at(options.fields.body, chunk, options)
    if options.input_format is not None:
        return _named(options.input_format, chunk)
    chosen: Dialect | None = None
    refused: Dialect | None = None
    first_error: RecordError | None = None
    first: Any = None
    seen = 0
    for line, record in _first_records(chunk):
        seen += 1
        if isinstance(record, FieldError):
            first_error = first_error or RecordError(chunk.path, line, record.field, record.reason)
            continue
        matching = _first_match(record)
        if isinstance(record, list) and seen > 1:
            # A list of integers among other records makes no log of token ids.
            matching = None
        if chosen is None:
            if matching is not None and matching.refusal is None:
                chosen = matching
            else:
                refused = refused or matching
        elif matching is not None and chosen.name in matching.refines:
            return matching
        first = record if first is None else first
    if not seen or (seen == 1 and first == []):
        raise EmptyTraceError(chunk.path, "is empty, expected at least one request")
    if chosen is not None:
        return chosen
    if refused is not None:
        raise UnknownFormatError(chunk.path, f"{refused.name}: {refused.refusal}")
    if first_error is not None:
        raise _with_advice(first_error)
    raise UnknownFormatError(chunk.path, f"the first record is {_keys(first)}: {advice(first)}")


def _named(name: str, chunk: AnyChunk) -> Dialect:
    named = {dialect.name: dialect for dialect in DIALECTS}.get(name)
    if named is None:
        names = ", ".join(dialect.name for dialect in DIALECTS)
        raise UsageError(f"--input-format is {name!r}, expected one of {names}")
    if named.refusal is not None:
        raise UnknownFormatError(chunk.path, f"{named.name}: {named.refusal}")
    if named.decode is not None and not isinstance(chunk, Chunk):
        raise UsageError(f"--input-format {named.name} reads lines of text, and {chunk.path} holds columns")
    return named


def _body_at(path: str, chunk: AnyChunk, options: ReadOptions) -> Dialect:
    if options.input_format is not None:
        raise UsageError("--body-field says how the log is read, expected no --input-format beside it")
    dialect = named_body(path)
    records = [record for _, record in _first_records(chunk)]
    if not any(dialect.matches(record) for record in records):
        found = next((record for record in records if isinstance(record, dict)), {})
        raise UsageError(
            f"--body-field {path}: the first records of {chunk.path} have no such field; "
            f"the first one is {_keys(found)}"
        )
    return dialect


def _with_advice(error: RecordError) -> RecordError:
    """Return the error of a first line that is no JSON, with what to do where it does not look like any."""
    if "expected JSON" not in error.reason:
        return error
    is_json = _LIKE_JSON.match(error.reason) is not None
    reason = f"{error.reason}; {_NOT_WHOLE if is_json else _NO_JSON}"
    return RecordError(error.path, error.line, error.field, reason)


def _first_records(chunk: AnyChunk) -> Iterator[tuple[int, Any]]:
    for line, record in islice(_records(chunk), MAX_RECORDS):
        items = None if isinstance(record, Dialect | FieldError) else listed_records(record)
        if items is None or _first_match(record) is not None:
            yield line, record
        else:
            yield from ((line, item) for item in items[:MAX_RECORDS])


def _records(chunk: AnyChunk) -> Iterator[tuple[int, Any]]:
    if not isinstance(chunk, Chunk):
        yield from chunk.first_records()
        return
    lines = [chunk.data] if chunk.is_document else chunk.data.split(b"\n")
    for line, text in enumerate(lines, chunk.first_line):
        if text.strip():
            try:
                yield line, _line_dialect(text) or decode_line(text)
            except FieldError as error:
                yield line, error


def _line_dialect(text: bytes) -> Dialect | None:
    for dialect in _OF_LINES:
        if dialect.matches(text):
            return dialect
    return None


def _first_match(record: Any) -> Dialect | None:
    if isinstance(record, Dialect):
        return record
    return next((d for d in DIALECTS if d.decode is None and d.matches(record)), None)


def _keys(record: Any) -> str:
    if isinstance(record, dict):
        return f"an object of {', '.join(list(record)[:8]) or 'nothing'}"
    return f"a JSON {type(record).__name__}"

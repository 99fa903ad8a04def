"""Tell a log's dialect from its first records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.errors import EmptyTraceError, RecordError, UnknownFormatError, UsageError
from kvcap.formats.chunks import Chunk
from kvcap.formats.dialect import Dialect
from kvcap.formats.options import ReadOptions
from kvcap.formats.records import AnyChunk, decode_line
from kvcap.formats.registry import DIALECTS
from kvcap.formats.rows import FieldError

MAX_RECORDS: Final = 1000


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
    if options.input_format is not None:
        named = {dialect.name: dialect for dialect in DIALECTS}.get(options.input_format)
        if named is None:
            names = ", ".join(dialect.name for dialect in DIALECTS)
            raise UsageError(f"--input-format is {options.input_format!r}, expected one of {names}")
        if named.refusal is not None:
            raise UnknownFormatError(chunk.path, f"{named.name}: {named.refusal}")
        return named
    chosen: Dialect | None = None
    refused: Dialect | None = None
    first_error: RecordError | None = None
    keys = ""
    seen = False
    for line, record in _first_records(chunk):
        seen = True
        if isinstance(record, FieldError):
            first_error = first_error or RecordError(chunk.path, line, record.field, record.reason)
            continue
        matching = _first_match(record)
        if chosen is None:
            if matching is not None and matching.refusal is None:
                chosen = matching
            else:
                refused = refused or matching
        elif matching is not None and chosen.name in matching.refines:
            return matching
        keys = keys or _keys(record)
    if chosen is not None:
        return chosen
    if not seen:
        raise EmptyTraceError(chunk.path, "is empty, expected at least one request")
    if refused is not None:
        raise UnknownFormatError(chunk.path, f"{refused.name}: {refused.refusal}")
    if first_error is not None:
        raise first_error
    raise UnknownFormatError(
        chunk.path, f"the first record is {keys}, expected one of the formats that `kvcap formats` lists"
    )


def _first_records(chunk: AnyChunk) -> Iterator[tuple[int, Any]]:
    if not isinstance(chunk, Chunk):
        yield from chunk.first_records()
        return
    if chunk.is_document:
        try:
            document = decode_line(chunk.data)
        except FieldError as error:
            yield 1, error
            return
        yield from enumerate(document[:MAX_RECORDS] if isinstance(document, list) else [document], 1)
        return
    count = 0
    for line, text in enumerate(chunk.data.split(b"\n"), chunk.first_line):
        if text.strip():
            count += 1
            try:
                yield line, _line_dialect(text) or decode_line(text)
            except FieldError as error:
                yield line, error
        if count >= MAX_RECORDS:
            return


def _line_dialect(text: bytes) -> Dialect | None:
    for dialect in DIALECTS:
        if dialect.decode is not None and dialect.matches(text):
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

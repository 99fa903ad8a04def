"""Decode the lines of a chunk and read each with a dialect.

Long lists of integers are nearly all of a log of ids. Measured on 1.03 GB of JSON Lines with 94 M ids (Python
3.11, seconds of one thread): orjson into lists 2.4 and 3 more into NumPy, pysimdjson ``as_buffer`` 1.8,
polars, duckdb and pyarrow.json 10 or more; the integer arrays cut out by a compiled kernel and orjson for
what is left 1.3. None of the libraries releases the interpreter lock while it parses, so they scale by
processes alone, which cost half a second to start and a copy of every id; the kernel runs in
threads, which cost nothing. So orjson reads the JSON, and the kernel the lists of integers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import orjson

from kvcap.errors import RecordError
from kvcap.formats.arrow_chunks import ArrowChunk
from kvcap.formats.chunks import Chunk
from kvcap.formats.csv_chunks import CsvChunk
from kvcap.formats.dialect import Dialect
from kvcap.formats.identity import find_media, identity_of
from kvcap.formats.paths import find
from kvcap.formats.rows import (
    INT64_MIN,
    PLAIN_VALUES,
    UINT64_MAX,
    CutValues,
    FieldError,
    Row,
    Skip,
    Values,
    show,
)

AnyChunk = Chunk | ArrowChunk | CsvChunk
Outcome = Row | Skip | RecordError
_REQUEST_IDS: Final = ("request_id", "rid", "req_id")
_REQUEST_ID_NAMES: Final = frozenset(_REQUEST_IDS)
_MOST_DIGITS: Final = 20
_LISTS: Final = ("data", "requests", "records", "items", "results", "rows", "value", "runs", "traces", "logs")
"""Keys under which documents list their records."""
_LISTS_OF: Final = frozenset(_LISTS)


def read_chunk(
    chunk: AnyChunk, dialect: Dialect, columns: tuple[str, ...], *, compiled: bool
) -> list[Outcome]:
    """Return what every record of a chunk comes to, in order.

    Parameters
    ----------
    chunk
        Whole lines.
    dialect
        Reads each record.
    columns
        Columns to look up for ``Row.kept``; one that is absent gives None.
    compiled
        Whether to use the kernel, which takes long to load and is worth it from a few MB on. Both
        ways give the same rows and errors.
    """
    outcomes: list[Outcome] = []
    if isinstance(chunk, ArrowChunk) and dialect.kind == "request_json":
        _read_decoded(chunk.path, chunk.plain_records(), PLAIN_VALUES, dialect, columns, outcomes)
        return outcomes
    if not isinstance(chunk, Chunk):
        _read_decoded(chunk.path, chunk.records(), chunk.values, dialect, columns, outcomes)
        return outcomes
    if compiled and dialect.decode is None and dialect.kind != "request_json" and not chunk.is_document:
        for line, begin, end, record, values in _cut_records(chunk):
            is_plain = record is not None and _items(record, dialect) is None
            if is_plain and _read_record(record, values, dialect, columns, line, outcomes) is None:
                continue
            _read_line(chunk.data[begin:end], dialect, columns, line, chunk.path, outcomes)
        return outcomes
    if chunk.is_document:
        _read_decoded(chunk.path, _document_records(chunk), PLAIN_VALUES, dialect, columns, outcomes)
        return outcomes
    for line, text in enumerate(chunk.data.split(b"\n")[:-1], chunk.first_line):
        if text.strip():
            _read_line(text, dialect, columns, line, chunk.path, outcomes)
    return outcomes


def _read_decoded(
    path: str,
    records: Iterable[tuple[int, Any]],
    values: Values,
    dialect: Dialect,
    columns: tuple[str, ...],
    outcomes: list[Outcome],
) -> None:
    """Read records that are decoded already; one that could not be is an error in its place."""
    for line, record in records:
        if isinstance(record, FieldError):
            outcomes.append(RecordError(path, line, record.field, record.reason))
            continue
        items = _items(record, dialect)
        for index, item in enumerate([record] if items is None else items):
            error = _read_record(item, values, dialect, columns, line, outcomes)
            if error is not None:
                place = "" if items is None else f"[{index}]"
                field = ".".join(part for part in (place, error.field) if part)
                outcomes.append(RecordError(path, line, field, error.reason))


def _items(record: Any, dialect: Dialect) -> list[Any] | None:
    """Return the records that one record is a list of, or None where it is a record itself."""
    items = None if dialect.decode is not None else listed_records(record)
    return None if items is None or dialect.matches(record) else items


def listed_records(record: Any) -> list[Any] | None:
    """Return the records of a list, or of an object with a list of them, such as ``{"data": [...]}``."""
    if isinstance(record, list):
        return record if record and all(isinstance(item, dict | list) for item in record) else None
    if isinstance(record, dict) and not _LISTS_OF.isdisjoint(record):
        for key in _LISTS:
            items = record.get(key)
            if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
                return items
    return None


def decode_line(text: bytes) -> Any:
    """Return the value of one line of JSON.

    Raises
    ------
    FieldError
        If it is not UTF-8 or not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            decoded = text.decode()
        except UnicodeDecodeError as wrong:
            where = f"byte 0x{text[wrong.start]:02x} at column {wrong.start + 1}"
            raise FieldError("", f"is not UTF-8 ({where}), expected UTF-8 text") from None
        with suppress(ValueError, RecursionError):
            # Python takes what others write: NaN, Infinity, 1e400, half a surrogate pair.
            return json.loads(decoded, parse_int=_integer)
        shown = show(decoded.strip())
        raise FieldError("", f"is {shown}, expected JSON ({error.msg} at column {error.colno})") from None


def _integer(digits: str) -> int | float:
    """Return an integer of 64 bits; a larger one becomes a number, as orjson has it."""
    number = int(digits) if len(digits) <= _MOST_DIGITS else None
    return number if number is not None and INT64_MIN <= number <= UINT64_MAX else float(digits)


def _read_line(
    text: bytes, dialect: Dialect, columns: tuple[str, ...], line: int, path: str, outcomes: list[Outcome]
) -> None:
    record: Any
    try:
        record = decode_line(text) if dialect.decode is None else dialect.decode(text)
    except FieldError as wrong:
        record = wrong
    _read_decoded(path, [(line, record)], PLAIN_VALUES, dialect, columns, outcomes)


def _read_record(
    record: Any,
    values: Values,
    dialect: Dialect,
    columns: tuple[str, ...],
    line: int,
    outcomes: list[Outcome],
) -> FieldError | None:
    """Append a record's rows, all or none of them, or return what is wrong."""
    before = len(outcomes)
    try:
        for item in dialect.read(record, values):
            item.line = line
            if isinstance(item, Row):
                records = (record,) if item.record is None else (item.record, record)
                item.request_id = request_id_of(records)
                item.identity = item.identity or identity_of(*records)
                if dialect.kind != "request_json":
                    find_media(item, records, values)
                if columns:
                    item.kept = [look_up(item, record, column) for column in columns]
            outcomes.append(item)
    except FieldError as error:
        del outcomes[before:]
        return error
    return None


def request_id_of(records: Iterable[Any]) -> str | None:
    """Return what the log calls a request, or None."""
    for record in records:
        if type(record) is dict and not _REQUEST_ID_NAMES.isdisjoint(record):
            for name in _REQUEST_IDS:
                value = record.get(name)
                if type(value) in (str, int):
                    return str(value)
    return None


def look_up(row: Row, record: Any, column: str) -> Any:
    """Return a column of the source: a field, a dotted path of fields, or what the dialect made of one."""
    for value in (row.record, record):
        found = find(value, column)
        if found is not None:
            return found
    known = {"session_id": row.session, "model": row.model, "instance": row.instance, **(row.identity or {})}
    return known.get(column)


def _document_records(chunk: Chunk) -> Iterator[tuple[int, Any]]:
    """Yield the one value of a file, as a record that may be a list of them."""
    try:
        yield 1, decode_line(chunk.data)
    except FieldError as error:
        yield 1, error


def _cut_records(chunk: Chunk) -> Iterator[tuple[int, int, int, Any, Values]]:
    """Yield line number, begin, end, record and values; no record where a line needs another look."""
    from kvcap.kernels.json_arrays import find_integer_arrays

    data = chunk.data
    found = find_integer_arrays(data, chunk.n_lines)
    line_starts = found.line_starts.tolist()
    line_arrays = found.line_arrays.tolist()
    irregular = found.irregular.tolist()
    starts, ends = found.starts.tolist(), found.ends.tolist()
    values = CutValues(found.values, found.offsets.tolist(), found.flags.tolist())
    for index, bad in enumerate(irregular):
        begin, end = line_starts[index], line_starts[index + 1]
        first, last = line_arrays[index], line_arrays[index + 1]
        pieces = []
        position = begin
        for array in range(first, last):
            pieces.append(b"%b[%d]" % (data[position : starts[array]], array))
            position = ends[array]
        pieces.append(data[position:end])
        rest = b"".join(pieces)
        if not bad and not rest.strip():
            continue
        try:
            record = None if bad else orjson.loads(rest)
        except orjson.JSONDecodeError:
            record = None
        yield chunk.first_line + index, begin, end - 1, record, values

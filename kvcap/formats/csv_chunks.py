"""Tables as comma (or semicolon, or tab) separated values with a header, as chunks of records.

Fields may hold line feeds inside quotes, so rows are read one after the other, in bounded memory. A record's
line is the one on which it begins.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

import orjson

from kvcap.errors import RecordError, UnknownFormatError
from kvcap.formats.rows import PLAIN_VALUES, FieldError, Values

_DELIMITERS: Final = ",;\t|"
_NAME: Final = re.compile(r"[A-Za-z_][\w .()\[\]/-]{0,80}")
_NUMBERS: Final = re.compile(r"[-+.\deE]*")
_LONE_COLUMNS: Final = ("request_json", "messages", "prompt", "hash_ids", "token_ids", "input_ids")
_FEWEST_NUMBERS: Final = 3
_READ_BYTES: Final = 1 << 20
_CHUNK_CHARACTERS: Final = 4 << 20
_MAX_FIELD_CHARACTERS: Final = 1 << 30


@dataclass(frozen=True)
class CsvChunk:
    """Rows of one export.

    Parameters
    ----------
    path
        The file, as the user named it.
    rows
        Line and record (or what is wrong with it) of each.
    size
        Characters in them.
    """

    path: str
    rows: list[tuple[int, dict[str, Any] | FieldError]]
    size: int
    values: Values = PLAIN_VALUES

    def first_records(self) -> Iterator[tuple[int, Any]]:
        """Yield line and record of the rows."""
        yield from self.rows

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yield line and record of the rows."""
        yield from self.rows


def delimiter_of(data: bytes, path: str) -> str | None:
    """Return what separates the fields of a table whose first line names its columns, or None for other data.

    Raises
    ------
    UnknownFormatError
        If the first line is of numbers alone, as in a table without names.
    """
    header = data.partition(b"\n")[0].strip().decode(errors="replace")
    if header.strip('"') in _LONE_COLUMNS:
        return ","
    for delimiter in _DELIMITERS:
        names = [name.strip().strip('"') for name in header.split(delimiter)]
        if len(names) > 1 and len(set(names)) == len(names) and all(map(_NAME.fullmatch, names)):
            return delimiter
        if len(names) >= _FEWEST_NUMBERS and header[:1] != "[" and all(map(_NUMBERS.fullmatch, names)):
            raise UnknownFormatError(
                path,
                "is a table of numbers without names of its columns, expected a first line that names them: "
                "hash_ids or token_ids with input_length, or request_json",
            )
    return None


def read_csv_chunks(path: str, stream: IO[bytes], data: bytes, delimiter: str) -> Iterator[CsvChunk]:
    """Yield the rows of an export in chunks of a few MiB.

    Parameters
    ----------
    path
        The file, as the user named it.
    stream
        What follows.
    data
        The beginning, already read.
    delimiter
        Between fields.

    Raises
    ------
    RecordError
        If it is not UTF-8, or quotes are not closed.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    reader = csv.reader(_lines(path, stream, data), delimiter=delimiter, strict=True)
    rows: list[tuple[int, dict[str, Any] | FieldError]] = []
    size, line = 0, 1
    header: list[str] | None = None
    try:
        for fields in reader:
            begin, line = line, reader.line_num + 1
            if not fields:
                continue
            if header is None:
                header = [name.strip() for name in fields]
                continue
            rows.append((begin, _record(header, fields)))
            size += sum(map(len, fields))
            if size >= _CHUNK_CHARACTERS:
                yield CsvChunk(path, rows, size)
                rows, size = [], 0
    except csv.Error as error:
        raise RecordError(path, line, "", f"is no row of an export ({error})") from error
    if rows:
        yield CsvChunk(path, rows, size)


def _record(header: list[str], fields: list[str]) -> dict[str, Any] | FieldError:
    if len(fields) != len(header):
        return FieldError("", f"has {len(fields)} fields, expected {len(header)} as in the header")
    return {name: _cell(text) for name, text in zip(header, fields, strict=True) if text}


def _cell(text: str) -> Any:
    """Return a field: lists and objects that stand as JSON, and anything else as it is."""
    if text[:1] in ("[", "{"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _lines(path: str, stream: IO[bytes], data: bytes) -> Iterator[str]:
    line, carry = 0, b""
    while data:
        *complete, carry = (carry + data).split(b"\n")
        for text in complete:
            line += 1
            yield _decoded(path, line, text) + "\n"
        data = stream.read(_READ_BYTES)
    if carry:
        yield _decoded(path, line + 1, carry)


def _decoded(path: str, line: int, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        where = f"byte 0x{text[error.start]:02x} at column {error.start + 1}"
        raise RecordError(path, line, "", f"is not UTF-8 ({where}), expected UTF-8 text") from None

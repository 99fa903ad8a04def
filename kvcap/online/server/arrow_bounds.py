"""How large an Arrow IPC stream becomes, told before anything of it is decompressed.

A message's metadata is a flatbuffer, of which Arrow's own library tells nothing but the schema. What is read
here are three tables (``Message``, ``DictionaryBatch`` and ``RecordBatch`` of Arrow's format 1.0); every
offset is checked, since they come from a client. A compressed buffer begins with its length without
compression.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_MESSAGE_TYPE, _MESSAGE_HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DICTIONARY_DATA = 1
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_NOT_COMPRESSED: Final = -1


class MalformedStreamError(Exception):
    """The metadata of a message is not what the format says."""


def decompressed_bytes(stream: bytes) -> int:
    """Return the bytes of all buffers of a stream once they are decompressed.

    Raises
    ------
    MalformedStreamError
        If a message's metadata leads out of it.
    pyarrow.ArrowException, OSError
        If it is no stream of messages.
    """
    total = 0
    messages = pa.ipc.MessageReader.open_stream(stream)
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return total
        try:
            total += _message_bytes(memoryview(message.metadata), message.body)
        except (struct.error, IndexError, ValueError) as error:
            raise MalformedStreamError(f"a message's metadata is damaged ({error})") from error


def _message_bytes(metadata: memoryview, body: pa.Buffer | None) -> int:
    message = _offset(metadata, 0)
    kind_at = _field(metadata, message, _MESSAGE_TYPE)
    kind = 0 if kind_at is None else metadata[kind_at]
    batch = _table(metadata, message, _MESSAGE_HEADER)
    if kind == _DICTIONARY_BATCH and batch is not None:
        batch = _table(metadata, batch, _DICTIONARY_DATA)
    elif kind != _RECORD_BATCH:
        return 0
    if batch is None or body is None:
        return 0
    if _field(metadata, batch, _BATCH_COMPRESSION) is None:
        return int(body.size)
    content = memoryview(body)
    return sum(_buffer_bytes(content, *buffer) for buffer in _buffers(metadata, batch))


def _buffer_bytes(content: memoryview, start: int, length: int) -> int:
    if start < 0 or length < 0 or start + length > len(content):
        raise ValueError("a buffer lies outside the message")
    if length == 0:
        return 0
    (size,) = struct.unpack_from("<q", content, start)
    if size < _NOT_COMPRESSED:
        raise ValueError("a buffer has a negative length")
    return length if size == _NOT_COMPRESSED else int(size)


def _buffers(metadata: memoryview, batch: int) -> list[tuple[int, int]]:
    field = _field(metadata, batch, _BATCH_BUFFERS)
    if field is None:
        return []
    vector = _offset(metadata, field)
    (count,) = struct.unpack_from("<I", metadata, vector)
    if vector + 4 + 16 * count > len(metadata):
        raise ValueError("its list of buffers does not fit")
    return list(struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count]))


def _table(metadata: memoryview, table: int, number: int) -> int | None:
    field = _field(metadata, table, number)
    return None if field is None else _offset(metadata, field)


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Return where a field of a table stands, or None where it is left out."""
    (back,) = struct.unpack_from("<i", metadata, table)
    layout = table - back
    if layout < 0:
        raise ValueError("a table has its layout outside")
    (layout_bytes,) = struct.unpack_from("<H", metadata, layout)
    entry = 4 + 2 * number
    if entry + 2 > layout_bytes:
        return None
    (place,) = struct.unpack_from("<H", metadata, layout + entry)
    return table + place if place else None


def _offset(metadata: memoryview, at: int) -> int:
    (offset,) = struct.unpack_from("<I", metadata, at)
    return at + int(offset)

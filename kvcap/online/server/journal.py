"""Requests on disk before they are answered: a journal beside the file of the log that they will stand in.

A journal is a row of frames: ``KVJ1``, the length (8 bytes, little endian), a digest of 16 bytes, and an
Arrow IPC stream of requests in the schema of a trace. What a crash cut off at its end was never answered for.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow as pa

from kvcap.writing import sync_path

_MAGIC: Final = b"KVJ1"
_HEAD: Final = struct.Struct("<4sQ16s")


class Journal:
    """Append tables to a file, each of them on disk when the call returns.

    Parameters
    ----------
    path
        A file that is not there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._size = 0
        sync_path(path.parent)

    def append(self, table: pa.Table) -> None:
        """Write one frame behind those that are there.

        Raises
        ------
        OSError
            If it is not on disk; the next call writes in its place.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = sink.getvalue().to_pybytes()
        frame = _HEAD.pack(_MAGIC, len(content), _digest(content)) + content
        written = 0
        while written < len(frame):
            written += os.pwrite(self._file, frame[written:], self._size + written)
        os.fdatasync(self._file)
        self._size += len(frame)

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)


def read_journal(path: Path) -> Iterator[pa.Table]:
    """Yield the tables of a journal up to what a crash cut off."""
    with path.open("rb") as file:
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            magic, length, digest = _HEAD.unpack(head)
            if magic != _MAGIC or length > path.stat().st_size:
                return
            content = file.read(length)
            if len(content) < length or _digest(content) != digest:
                return
            with pa.ipc.open_stream(content) as reader:
                yield reader.read_all()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()

"""Undo the compression of a stream, told by its first bytes."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from isal import isal_zlib

from kvcap.errors import TraceError

_COMPRESSIONS: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
)


_LARGE_WINDOW: Final = (
    "is zstd of a window over 128 MiB (--long, --ultra), expected a smaller one: give it as "
    "`zstd -dc --long=31 FILE | kvcap ... -`"
)
_SKIPPABLE: Final = b"\x2a\x4d\x18"
"""Bytes 1 to 3 of a frame without data, with which pzstd begins."""


def decompressed(stream: Prefixed, head: bytes) -> Any:
    """Return the plain bytes of a stream that begins with ``head``."""
    for magic, name in _COMPRESSIONS:
        if head.startswith(magic):
            if name == "xz":
                return lzma.LZMAFile(stream)  # type: ignore[arg-type]
            if name == "gzip":
                return _Gzip(stream)
            import pyarrow as pa

            return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), name)
    if head[1:4] == _SKIPPABLE and head[0] >> 4 == 5:
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
    return stream


@contextmanager
def mapped_errors(name: str) -> Iterator[None]:
    """Turn what decompressors raise into :class:`TraceError`; errors of the file system pass through."""
    import pyarrow as pa

    try:
        yield
    except EOFError as error:
        raise TraceError(name, "compressed data ends early, expected its end marker") from error
    except (isal_zlib.IsalError, lzma.LZMAError, pa.ArrowException) as error:  # type: ignore[misc]
        raise TraceError(name, f"compressed data is damaged ({error})") from error
    except OSError as error:
        if error.errno is None:
            # pyarrow reports damaged zstd, bz2 and lz4 data as an OSError without a number.
            if "too much memory" in str(error):
                raise TraceError(name, _LARGE_WINDOW) from error
            reason = "ends early" if "runcated" in str(error) else f"is damaged ({error})"
            raise TraceError(name, f"compressed data {reason}") from error
        raise


class Prefixed:
    """A readable stream with its first bytes put back."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self._head = head
        self._stream = stream
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, all that is left for a negative size."""
        if self._head:
            head, self._head = self._head, b""
            if size < 0:
                return head + self._stream.read()
            head, self._head = head[:size], head[size:]
            return head
        return self._stream.read(size)

    def readable(self) -> bool:
        """Say yes, as decompressors ask."""
        return True

    def seekable(self) -> bool:
        """Say no: a pipe cannot go back."""
        return False

    def writable(self) -> bool:
        """Say no."""
        return False

    def close(self) -> None:
        """Mark the end; whoever opened the stream below closes it."""
        self.closed = True


class _Gzip:
    """Gzip members one after the other, as ISA-L decodes them: without the GIL, twice as fast as zlib."""

    _FORMAT: Final = 16 + isal_zlib.MAX_WBITS

    def __init__(self, stream: Prefixed) -> None:
        self._stream = stream
        self._decoder = isal_zlib.decompressobj(self._FORMAT)
        self._pending = b""

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, none only at the end."""
        while True:
            at_end = False
            if not self._pending:
                self._pending = self._stream.read(1 << 18)
                at_end = not self._pending
            if self._decoder.eof:
                # Another member follows, zeros that pad the file, or nothing.
                self._pending = self._pending.lstrip(b"\0")
                if not self._pending:
                    if at_end:
                        return b""
                    continue
                self._decoder = isal_zlib.decompressobj(self._FORMAT)
            data = self._decoder.decompress(self._pending, size)
            self._pending = self._decoder.unconsumed_tail or self._decoder.unused_data
            if data:
                return data
            # All input may be taken while output waits; only then is there more to come of none.
            if at_end and not self._decoder.eof:
                raise EOFError

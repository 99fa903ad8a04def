"""A file that appears only once it is complete."""

from __future__ import annotations

import gzip
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Protocol

from kvcap.writing import written_beside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ByteSink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""
        ...


@contextmanager
def open_output(path: Path, *, force: bool) -> Iterator[ByteSink]:
    """Open a file for writing, compressed if its name ends in ``.gz`` or ``.zst``.

    Gzip files carry no time and no name, so that equal content gives equal bytes.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    """
    with written_beside(path, force=force) as beside, ExitStack() as stack:
        raw = stack.enter_context(beside.open("wb"))
        yield _compressed(raw, path.suffix, stack)


def _compressed(raw: IO[bytes], suffix: str, stack: ExitStack) -> ByteSink:
    if suffix == ".gz":
        return stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
    if suffix == ".zst":
        import pyarrow as pa

        sink: ByteSink = stack.enter_context(pa.CompressedOutputStream(raw, "zstd"))
        return sink
    return raw

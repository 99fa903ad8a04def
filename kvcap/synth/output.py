"""A file that appears only once it is complete."""

from __future__ import annotations

import gzip
import os
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Protocol

from kvcap.errors import OutputExistsError, UsageError

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

    It is written beside its place under another name, and renamed at the end; an error leaves what was there.
    Gzip files carry no time and no name, so that equal content gives equal bytes.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is not given, or its directory does not exist.
    """
    if path.exists() and not force:
        raise OutputExistsError(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no directory, expected one to write {path.name} in")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(partial.open("wb"))
            yield _compressed(raw, path.suffix, stack)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _compressed(raw: IO[bytes], suffix: str, stack: ExitStack) -> ByteSink:
    if suffix == ".gz":
        return stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
    if suffix == ".zst":
        import pyarrow as pa

        sink: ByteSink = stack.enter_context(pa.CompressedOutputStream(raw, "zstd"))
        return sink
    return raw

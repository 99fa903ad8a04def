"""From what the user named to streams of plain bytes.

Files, directories, globs, ``-`` for standard input, and object stores: ``s3://``, ``gs://`` and
whatever else pyarrow or fsspec opens. Compression is told from the first bytes, never from the name, and
undone as a stream.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final

from kvcap.errors import MissingExtraError, TraceError, UnknownFormatError, UsageError
from kvcap.formats.decompress import Prefixed, decompressed, mapped_errors

STDIN: Final = "-"
_MAGIC_BYTES: Final = 6
_PIECE_BYTES: Final = 1 << 20
_PICKLE: Final = (
    "is a Python pickle, which can run code when it is read; make lines of an SGLang dump with the engine's "
    "own Python: import json, pickle; d = pickle.load(open(FILE, 'rb')); d = d['requests'] if isinstance(d, "
    "dict) else d; [print(json.dumps({'input_ids': r[0].input_ids, 'timestamp': r[2]})) for r in d]"
)
_REFUSED: Final = (
    *((b"\x80" + bytes([protocol]), _PICKLE) for protocol in (2, 3, 4, 5)),
    (
        b"PK\x03\x04",
        "is a zip archive, expected JSON Lines (plain, .gz, .zst or .xz) or Parquet: unpack it first",
    ),
    (b"\xff\xfe", "is UTF-16 text, expected UTF-8"),
    (b"\xfe\xff", "is UTF-16 text, expected UTF-8"),
    (b"ARROW1", "is an Arrow IPC file, expected Parquet or JSON Lines"),
)
PARQUET_MAGIC: Final = b"PAR1"


@dataclass(frozen=True)
class Source:
    """One file.

    Parameters
    ----------
    name
        The file, as errors and provenance name it.
    filesystem
        A pyarrow filesystem, or None for a local path and standard input.
    path
        Where it is in ``filesystem``.
    """

    name: str
    filesystem: Any = None
    path: str = ""

    def open_raw(self) -> IO[bytes]:
        """Return the bytes as they are stored."""
        if self.filesystem is not None:
            stream: IO[bytes] = self.filesystem.open_input_stream(self.path)
            return stream
        if self.name == STDIN:
            # A descriptor of our own: a reader thread may be waiting on it when the interpreter ends.
            return open(os.dup(0), "rb", buffering=0)  # noqa: PTH123
        return Path(self.path).open("rb")


def expand(paths: Sequence[str]) -> list[Source]:
    """Return the files that ``paths`` name, in that order; those of a glob or a directory by name.

    Raises
    ------
    UsageError
        If there is no path, or standard input is named twice.
    TraceError
        If a glob or a directory holds no file.
    MissingExtraError
        If a URL needs fsspec and it is not installed.
    """
    if not paths:
        raise UsageError("no input given, expected a file, a directory, a glob, a URL or -")
    if sum(path == STDIN for path in paths) > 1:
        raise UsageError("standard input (-) is given twice, expected once")
    return [source for path in paths for source in _expand_one(str(path))]


def _expand_one(path: str) -> Iterator[Source]:
    if path == STDIN:
        yield Source(STDIN)
    elif "://" in path:
        yield from _remote(path)
    elif Path(path).is_dir():
        yield from _nonempty(path, (Source(name, None, name) for name in _files_below(path)))
    elif not Path(path).exists() and glob.has_magic(path):
        matches = sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file())  # noqa: PTH207
        yield from _nonempty(path, (Source(name, None, name) for name in matches))
    else:
        yield Source(path, None, path)


def _files_below(directory: str) -> Iterator[str]:
    for root, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not _is_hidden(name))
        yield from (str(Path(root, name)) for name in sorted(names) if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _nonempty(path: str, sources: Iterator[Source]) -> Iterator[Source]:
    empty = True
    for source in sources:
        empty = False
        yield source
    if empty:
        raise TraceError(path, "holds no file, expected at least one")


def remote_filesystem(url: str) -> tuple[Any, str]:
    """Return a pyarrow filesystem and the path in it.

    Raises
    ------
    MissingExtraError
        If only fsspec could know the scheme, and it is not installed.
    TraceError
        If nobody knows the scheme.
    """
    bare, star, pattern = url.partition("*")
    filesystem, path = known_to_pyarrow(bare) or _known_to_fsspec(bare)
    return filesystem, path + star + pattern


def known_to_pyarrow(url: str) -> tuple[Any, str] | None:
    """Return a filesystem of pyarrow's own and the path in it, or None for other schemes."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return filesystem, path


def _known_to_fsspec(url: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading {url}", "object-stores") from error
    try:
        handler, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise TraceError(url, f"cannot be opened ({error})") from error
    return fs.PyFileSystem(fs.FSSpecHandler(handler)), path


def _remote(url: str) -> Iterator[Source]:
    from fnmatch import fnmatch

    from pyarrow import fs

    filesystem, path = remote_filesystem(url)
    scheme = url.partition("://")[0]
    base = path.partition("*")[0].rpartition("/")[0] if "*" in path else path
    info = filesystem.get_file_info(base)
    if info.type != fs.FileType.Directory:
        yield Source(url, filesystem, path)
        return
    below = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    names = sorted(item.path for item in below if item.type == fs.FileType.File)
    if "*" in path:
        names = [name for name in names if fnmatch(name, path)]
    else:
        names = [n for n in names if not any(_is_hidden(part) for part in n[len(base) :].split("/") if part)]
    yield from _nonempty(url, (Source(f"{scheme}://{name.lstrip('/')}", filesystem, name) for name in names))


@contextmanager
def open_stream(source: Source) -> Iterator[IO[bytes]]:
    """Open a source and undo its compression.

    Raises
    ------
    TraceError
        If the compressed data is damaged or ends early.
    UnknownFormatError
        If it is something that is never read (a pickle, a zip archive, UTF-16).
    """
    with mapped_errors(source.name), source.open_raw() as raw:
        head = read_exactly(raw, _MAGIC_BYTES)
        for magic, reason in _REFUSED:
            if head.startswith(magic):
                raise UnknownFormatError(source.name, reason)
        stream = Prefixed(head, raw)
        yield decompressed(stream, head)


def repeated_files(sources: Sequence[Source]) -> list[tuple[Source, Source]]:
    """Return local files that hold the same bytes as one before them, and that one.

    Only files of the same size are read for it.
    """
    first_of: dict[object, Source] = {}
    by_size: dict[int, list[Source]] = {}
    for source in sources:
        if source.filesystem is None and source.name != STDIN and Path(source.path).is_file():
            by_size.setdefault(Path(source.path).stat().st_size, []).append(source)
    repeated = []
    for size, alike in by_size.items():
        for source in alike if size and len(alike) > 1 else ():
            first = first_of.setdefault((size, _digest(source.path)), source)
            if first is not source:
                repeated.append((source, first))
    return repeated


def _digest(path: str) -> bytes:
    digest = blake2b(digest_size=16)
    with Path(path).open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.digest()


def is_parquet(source: Source) -> bool:
    """Return whether a source is a Parquet file; standard input never is, since it cannot be searched."""
    if source.name == STDIN:
        return False
    with source.open_raw() as raw:
        return read_exactly(raw, len(PARQUET_MAGIC)) == PARQUET_MAGIC


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Return ``size`` bytes, or what is left of the stream: a pipe gives less than it is asked for."""
    parts: list[bytes] = []
    while size > 0:
        part = stream.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

"""Files and directories that appear when they are complete: written beside their place, then renamed.

What is renamed is on disk before. A directory takes another's place in one step where the system can
exchange two names (Linux); elsewhere the old one stands aside for a moment, from where :func:`recovered`
takes it back.
"""

from __future__ import annotations

import csv
import ctypes
import os
import shutil
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final, TextIO

from kvcap.errors import OutputExistsError, UsageError

_CSV_END: Final = "\r\n"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_ENDINGS: Final = {
    ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".html", ".parquet", ".duckdb", ".gz", ".zst", ".xz"
}  # fmt: skip
"""Endings that say what is in a file."""


@contextmanager
def written_beside(
    path: str | PathLike[str],
    *,
    force: bool = False,
    directory: bool = False,
    owned: Container[str] | None = None,
) -> Iterator[Path]:
    """Yield a path beside ``path``; what is made there takes its place when the block ends without an error.

    The block makes a file, or in a ``directory`` that is there already. Both come about as the process
    makes any other, so that its umask decides who may read them. What is replaced stays whole until the
    new one is. A link is followed. A device or a pipe is yielded itself: to rename a file over it would
    remove it. Of a directory that is replaced, what is not ``owned`` goes over to the new one; None owns
    all.

    Raises
    ------
    UsageError
        As :func:`check_new`.
    """
    target = recovered(path)
    check_new(target, force=force, directory=directory)
    if target.exists() and not target.is_file() and not directory:
        yield target
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    _remove(beside)
    try:
        if directory:
            beside.mkdir()
        yield beside
        _sync(beside)
        old = _put_in_place(beside, target)
        if old is not None:
            _keep_others(old, target, owned)
            _remove(old)
        sync_path(target.parent)
    finally:
        _remove(beside)


def recovered(path: str | PathLike[str]) -> Path:
    """Return where a path leads, and put back what stands aside there since a process was killed."""
    target = Path(os.path.realpath(path))
    if not target.exists() and target.parent.is_dir():
        aside = list(target.parent.glob(f".{_escaped(target.name)}.*.old"))
        for old in sorted(aside, key=lambda path: path.stat().st_mtime)[-1:]:
            with suppress(FileNotFoundError):
                old.rename(target)
    return target


def check_apart(output: str | PathLike[str], inputs: Iterable[str | PathLike[str]]) -> None:
    """Refuse to write over what is read.

    Raises
    ------
    UsageError
        If an input is ``output``, or stands in it.
    """
    target = Path(os.path.realpath(output))
    for name in inputs:
        source = Path(os.path.realpath(name))
        if source == target or target in source.parents:
            raise UsageError(f"{output} would replace the input {name}: give another place to write")


def check_new(path: str | PathLike[str], *, force: bool, directory: bool = False) -> None:
    """Refuse to overwrite what is there, and to write where no directory is.

    Raises
    ------
    UsageError
        If ``path`` exists and ``force`` is false, is a directory where a file is to be written or the
        other way round, or would stand in a directory that is missing.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is no directory, expected one to write {target.name} in")
    if target.is_dir() != directory and (target.is_dir() or target.is_file()):
        what = ("a file", "a directory to write") if directory else ("a directory", "a file to write")
        raise UsageError(f"{path} is {what[0]}, expected {what[1]}")
    if not force and (target.is_file() or target.is_dir()):
        raise OutputExistsError(path)


def _put_in_place(beside: Path, target: Path) -> Path | None:
    """Rename what was made, and return where a directory that it replaces is now."""
    if not target.is_dir():
        beside.replace(target)
        return None
    if _exchanged(beside, target):
        return beside
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    beside.replace(target)
    return old


def _keep_others(old: Path, new: Path, owned: Container[str] | None) -> None:
    if owned is None:
        return
    for entry in list(old.iterdir()):
        if entry.name not in owned and not (new / entry.name).exists():
            entry.rename(new / entry.name)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step, or return False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _sync(path: Path) -> None:
    """Put a file, or a directory with all that is in it, on disk."""
    for root, _, names in os.walk(path):
        for name in names:
            sync_path(Path(root, name))
    sync_path(path)


def sync_path(path: Path) -> None:
    """Put a file's bytes, or the names in a directory, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _escaped(name: str) -> str:
    """Return a name for a pattern that matches itself alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def check_ending(path: str | PathLike[str], what: str, *endings: str) -> None:
    """Refuse standard output, and a name that says another format than is written.

    Parameters
    ----------
    path
        The file to write.
    what
        The format, in words.
    endings
        How files of that format are called, the usual one first.

    Raises
    ------
    UsageError
        If it is ``-``, or ends as files of another format do.
    """
    if os.fspath(path) == "-":
        raise UsageError(f"{what} is written to a file, expected a path such as x{endings[0]}, not -")
    ending = Path(path).suffix.lower()
    if ending in _ENDINGS and ending not in endings:
        name = Path(path).name.partition(".")[0]
        raise UsageError(f"{path}: {what} is written, expected a name such as {name}{endings[0]}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_csv(
    names: Iterable[str], rows: Iterable[Iterable[Any]], stream: TextIO, *, raw: bool = False
) -> None:
    """Write rows as CSV; unless ``raw``, with a ``'`` before a text that a spreadsheet would run."""

    def cell(value: Any) -> Any:
        runs = isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if runs and not raw else value

    writer = csv.writer(_LineEnds(stream), lineterminator=_CSV_END)
    writer.writerow(map(cell, names))
    writer.writerows(map(cell, row) for row in rows)


class _LineEnds:
    """Ends lines with a line feed alone; the csv module leaves a carriage return bare if lines end so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line.removesuffix(_CSV_END) + "\n")

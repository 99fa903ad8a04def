"""Files and directories that appear when they are complete: written beside their place, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from kvcap.errors import OutputExistsError, UsageError


@contextmanager
def written_beside(
    path: str | PathLike[str], *, force: bool = False, directory: bool = False
) -> Iterator[Path]:
    """Yield a path beside ``path``; what is made there takes its place when the block ends without an error.

    The block makes a file, or in a ``directory`` that is there already. Both come about as the process
    makes any other, so that its umask decides who may read them. What is replaced stays whole until the
    new one is. A device or a pipe is yielded itself: to rename a file over it would remove it.

    Raises
    ------
    UsageError
        As :func:`check_new`.
    """
    check_new(path, force=force, directory=directory)
    target = Path(path)
    if target.exists() and not target.is_file() and not directory:
        yield target
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    old = beside.with_suffix(".old")
    _remove(beside)
    try:
        if directory:
            beside.mkdir()
        yield beside
        if target.is_dir():
            target.rename(old)
        beside.replace(target)
        _remove(old)
    finally:
        _remove(beside)


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


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

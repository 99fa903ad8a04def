"""The one way in which files and directories appear."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvcap.errors import OutputExistsError, UsageError
from kvcap.writing import written_beside


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def make(path: Path, content: str, *, directory: bool = False, force: bool = False) -> None:
    with written_beside(path, force=force, directory=directory) as beside:
        (beside / "file" if directory else beside).write_text(content)


def read(path: Path) -> str:
    return (path / "file" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("directory", [False, True])
def test_what_is_there_stays_until_the_new_is_whole(tmp_path: Path, directory: bool) -> None:
    target = tmp_path / "target"
    make(target, "old", directory=directory)
    with pytest.raises(OutputExistsError):
        make(target, "new", directory=directory)
    with pytest.raises(UnicodeEncodeError):
        make(target, "half \ud800", directory=directory, force=True)
    assert read(target) == "old"
    with written_beside(target, force=True, directory=directory) as beside:
        (beside / "file" if directory else beside).write_text("new")
        assert read(target) == "old"
    assert read(target) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("directory", [False, True])
def test_the_umask_decides_who_may_read(tmp_path: Path, directory: bool) -> None:
    for mask, kept in ((0o022, 0o755), (0o077, 0o700)):
        target = tmp_path / oct(mask)
        with umask(mask):
            make(target, "x", directory=directory)
        assert stat.S_IMODE(target.stat().st_mode) == kept & (0o777 if directory else 0o666)


def test_a_file_takes_no_directory_s_place_and_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a directory, expected a file"):
        make(tmp_path, "x", force=True)
    with pytest.raises(UsageError, match="is a file, expected a directory"):
        make(tmp_path / "file", "x", directory=True, force=True)
    with pytest.raises(UsageError, match="missing is no directory"):
        make(tmp_path / "missing" / "file", "x")


def test_what_a_run_that_died_has_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    left = tmp_path / f".target.{os.getpid()}.partial"
    left.mkdir()
    (left / "half").write_text("")
    make(tmp_path / "target", "x", directory=True)
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["file"]

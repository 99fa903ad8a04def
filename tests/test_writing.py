"""The one way in which files and directories appear."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvcap import writing
from kvcap.errors import OutputExistsError, UsageError
from kvcap.writing import check_apart, recovered, written_beside


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


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_directory_is_replaced_whole_and_what_others_put_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(writing, "_exchanged", lambda one, other: False)
    target = tmp_path / "target"
    make(target, "old", directory=True)
    (target / "notes.txt").write_text("mine")
    (target / "gone.parquet").write_text("kvcap's")
    with written_beside(target, force=True, directory=True, owned={"file", "gone.parquet"}) as beside:
        (beside / "file").write_text("new")
    assert sorted(path.name for path in target.iterdir()) == ["file", "notes.txt"]
    assert read(target) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_killed_at_any_step_of_replacing_one_whole_version_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step that renames or removes is the last one, with and without an exchange of names."""
    for exchanges in (True, False):
        for last in range(1, 6):
            root = tmp_path / f"{exchanges}{last}"
            root.mkdir()
            target = root / "ta[r]get"
            make(target, "old", directory=True)
            with warnings.catch_warnings():
                # Threads of libraries that other tests have begun are of no concern to the child.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                _die_at_step(last, exchanges, target)
            os.waitpid(pid, 0)
            assert read(recovered(target)) in ("old", "new")
            make(target, "newer", directory=True, force=True)
            assert read(target) == "newer"


def _die_at_step(last: int, exchanges: bool, target: Path) -> None:
    """Replace a directory in a process of its own that is gone at a step; does not return."""
    steps = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            steps[0] += 1
            if steps[0] >= last:
                os._exit(9)
            return function(*arguments, **options)

        return step

    writing._exchanged = counted(writing._exchanged) if exchanges else lambda one, other: False
    Path.rename = counted(Path.rename)  # type: ignore[method-assign]
    Path.replace = counted(Path.replace)  # type: ignore[method-assign]
    writing.shutil.rmtree = counted(writing.shutil.rmtree)
    make(target, "new", directory=True, force=True)
    os._exit(0)


def test_a_link_is_followed(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real"
    real.parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    make(link, "new", force=True)
    assert link.is_symlink()
    assert read(real) == "new"
    assert [path.name for path in real.parent.iterdir()] == ["real"]


@pytest.mark.parametrize("inside", [True, False])
def test_an_output_never_replaces_an_input(tmp_path: Path, inside: bool) -> None:
    source = tmp_path / "results" / "trace.parquet"
    source.parent.mkdir()
    source.write_text("x")
    link = tmp_path / "link"
    link.symlink_to(source.parent if inside else source)
    with pytest.raises(UsageError, match="would replace the input"):
        check_apart(link, [str(source)])
    check_apart(tmp_path / "other", [str(source), "-", "s3://bucket/results"])

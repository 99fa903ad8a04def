"""What is said on a terminal while things take their time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvcap.cli.progress import announce_compilation
from kvcap.kernels import reuse_runs
from kvcap.kernels._jit import is_compiled


@pytest.mark.parametrize(
    ("compiled", "quiet", "said"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_the_first_run_on_a_machine_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiled: bool,
    quiet: bool,
    said: bool,
) -> None:
    monkeypatch.setattr(reuse_runs, "scanner_is_compiled", lambda: compiled)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    announce_compilation(quiet=quiet)
    assert ("compiling kernels" in capsys.readouterr().err) == said


def test_a_kernel_is_compiled_once_its_file_is_in_the_cache(tmp_path: Path) -> None:
    class Cache:
        cache_path = str(tmp_path)

    def scan() -> None: ...

    kernel: Callable[[], None] = scan
    assert is_compiled(kernel), "nothing to wait for where nothing is compiled"
    scan._cache = Cache()  # type: ignore[attr-defined]
    assert not is_compiled(kernel)
    (tmp_path / "module.scan-12.py311.nbi").touch()
    assert is_compiled(kernel)

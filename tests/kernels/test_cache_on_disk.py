"""Compiled kernels on disk: damaged, not writable or full, they cost time and never an answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import numpy as np
from kvcap.kernels.keys import chain_keys
from kvcap.kernels._jit import is_kept
keys = chain_keys(np.arange(3, dtype=np.uint64), np.array([0, 3], np.int64))
print(len(set(keys.tolist())), is_kept(__import__("kvcap.kernels.keys", fromlist=["_"])._chain_keys))
"""


def run(cache: Path | None, **environment: str) -> str:
    given = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    if cache is not None:
        given["NUMBA_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={**given, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [emptied, cut, overwritten])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: Callable[[Path], None], ending: str) -> None:
    expected = run(tmp_path)
    files = sorted(tmp_path.rglob(f"*.{ending}"))
    assert files
    for path in files:
        damage(path)
    assert run(tmp_path) == expected
    assert run(tmp_path) == expected


def test_without_a_directory_to_write_kernels_compile_in_memory() -> None:
    script = SCRIPT.replace("import sys\n", "import sys\nimport numba.core.caching as caching\n", 1)
    # As where nothing can be written: no locator takes the function.
    script = script.replace(
        "import numpy", "caching.FunctionCache._impl_class._locator_classes = []\nimport numpy", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "False"]

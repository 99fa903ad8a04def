"""Every script of pipelines/ says what it takes, whatever has moved in the package below it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").glob("*.py")), ids=lambda path: path.name)
def test_a_script_runs_and_shows_its_help(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")

"""Where answers go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kvcap.cli.output import text_output


def test_a_device_is_written_to_and_not_replaced() -> None:
    for force in (False, True):
        with text_output("/dev/null", force=force) as stream:
            stream.write("gone")
    assert Path("/dev/null").is_char_device()


def test_names_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"hash_ids": [1], "input_length": 1, "tenant": "é"}\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kvcap", "replay", log, "--block-size", "1", "--pool", "tenant"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\xe9" in done.stdout

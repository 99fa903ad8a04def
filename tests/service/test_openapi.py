"""schemathesis sends whatever the OpenAPI document allows, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from service_process import serving

pytestmark = pytest.mark.service


def test_every_answer_is_one_that_the_document_names(tmp_path: Path, word_tokenizer: Path) -> None:
    if find_spec("schemathesis") is None:
        pytest.skip("needs schemathesis")
    flags = ("--kv-bytes-per-token", "1000", "--block-size", "2", "--tokenizer", str(word_tokenizer))
    with serving(*flags, "--record", str(tmp_path / "log")) as service:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json"),
                *("--max-examples", "40", "--phases", "examples,coverage,fuzzing", "--seed", "1"),
                *("--exclude-path", "/finalize", "--request-timeout", "20"),
                # To JSON Schema 1.0 is a whole number; ids are exact and refuse to be floats.
                *("--exclude-checks", "positive_data_acceptance"),
            ],
            capture_output=True,
            text=True,
            timeout=500,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert service.ask("/health")[0] == 200
        assert service.ask("/finalize", b"")[0] == 200
        assert service.terminate() == 0

"""The chart at the end of a replay on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from replayed import replayed

from kvcap.analysis.figures import load_figures
from kvcap.cli.text_chart import COLUMNS, ROWS, curve_chart

REQUESTS = [[i % 3] for i in range(30)] + [[i % 40] for i in range(100)]


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("bytes_known", [True, False])
def test_columns_rise_to_the_ceiling_and_never_fall(unicode: bool, bytes_known: bool) -> None:
    known = {} if bytes_known else {"bytes_per_token": None}
    with replayed(REQUESTS, **known) as results:
        lines = curve_chart(load_figures(results), unicode=unicode)
    assert len(lines) == ROWS + 2
    rows = [line.ljust(8 + COLUMNS)[8:] for line in lines[1:-1]]
    heights = [sum(cell != " " for cell in column) for column in zip(*rows, strict=True)]
    assert heights == sorted(heights)
    assert heights[-1] == ROWS
    assert rows[0][-1] == ("█" if unicode else "#")
    ceiling = 100 * (130 - 40) / 130
    assert lines[1].split()[0] == f"{ceiling:.1f}"
    assert lines[-1].split()[-1] == ("GiB" if bytes_known else "blocks")
    assert all(line.isascii() for line in lines) or unicode


def test_a_replay_on_a_terminal_ends_with_it(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "sample_traces" / "rag.hash_ids.jsonl.gz"
    command = [sys.executable, "-m", "kvcap", "replay", str(log), "--max-requests", "200", "--quiet"]
    master, slave = pty.openpty()
    subprocess.run(
        command, stdout=slave, check=True, cwd=log.parents[1], env={**os.environ, "PYTHONUTF8": "1"}
    )
    os.close(slave)
    output = os.read(master, 1 << 16).decode()
    assert "Block hit rate over capacity" in output
    assert "█" in output
    piped = subprocess.run(command, capture_output=True, check=True, cwd=log.parents[1], text=True)
    assert "█" not in piped.stdout

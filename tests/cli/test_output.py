"""Where answers go."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcap.cli.output import text_output


def test_a_device_is_written_to_and_not_replaced() -> None:
    for force in (False, True):
        with text_output("/dev/null", force=force) as stream:
            stream.write("gone")
    assert Path("/dev/null").is_char_device()


def half_written(target: Path) -> None:
    with text_output(str(target), force=False) as stream:
        stream.write("half")
        raise ZeroDivisionError


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "answer.txt"
    with pytest.raises(ZeroDivisionError):
        half_written(target)
    assert list(tmp_path.iterdir()) == []
    with text_output(str(target), force=False) as stream:
        stream.write("whole")
        assert not target.exists()
    assert target.read_text() == "whole"

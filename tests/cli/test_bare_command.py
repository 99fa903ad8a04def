"""``kvcap`` alone shows what to do."""

from __future__ import annotations

import re

import pytest

from kvcap.cli import main
from kvcap.cli.main import COMMANDS, build_parser


def test_without_a_command_it_shows_all_of_them_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"    {name}" in shown for name in COMMANDS)
    examples = re.findall(r"^  kvcap (.*)$", shown, re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        build_parser().parse_args(example.split())

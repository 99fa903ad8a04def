"""README.md against the program: transcripts, commands, options, the two commands that do everything."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from readme_blocks import README, commands, options, regenerated

import kvcap

TEXT = README.read_text(encoding="utf-8")


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_transcripts_and_option_tables_are_what_the_program_prints(overwrite_docs: bool) -> None:
    made = regenerated(TEXT)
    if overwrite_docs:
        README.write_text(made, encoding="utf-8")
    else:
        assert made == TEXT


def test_every_command_and_option_is_in_the_readme() -> None:
    for name, command in commands().items():
        assert f"| `kvcap {name}` |" in section("Commands")
        for action in options(command):
            for option in action.option_strings:
                assert f"`{option}" in section("Options"), f"{name} {option}"


@pytest.mark.parametrize("name", list(commands()))
def test_every_option_has_a_help_text(name: str) -> None:
    for action in commands()[name]._actions:
        assert action.help, action.option_strings or action.dest


def test_the_library_example_runs_as_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.search(r"```python\n(.*?)```", section("Library"), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(README.parent)
    exec(compile(code[1], "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out.splitlines()[0]) < 1


def test_the_public_surface_is_small_sorted_and_importable() -> None:
    assert list(kvcap.__all__) == sorted(kvcap.__all__)
    for name in kvcap.__all__:
        assert getattr(kvcap, name) is not None


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'polars', 'pyarrow', 'duckdb', 'orjson', 'rich', 'hypothesis'}"
    code = (
        "import sys; from kvcap.cli.main import build_parser; build_parser().format_help(); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

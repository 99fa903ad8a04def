"""README.md against the program: transcripts, commands, options, the two commands that do everything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from readme_blocks import PAGES, README, ROOT, commands, regenerated

import kvcap

TEXT = README.read_text(encoding="utf-8")


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_blocks_of_a_page_are_what_the_program_prints(page: Path, overwrite_docs: bool) -> None:
    text = page.read_text(encoding="utf-8")
    made = regenerated(text)
    if overwrite_docs:
        page.write_text(made, encoding="utf-8")
    else:
        assert made == text


def test_the_readme_is_short_and_what_it_points_at_is_there() -> None:
    assert len(TEXT.splitlines()) <= 250
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_command_is_in_the_readme() -> None:
    for name in commands():
        assert f"`kvcap {name}" in section("I want ...")


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

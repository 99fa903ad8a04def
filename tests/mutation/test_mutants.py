"""Whether tests notice a change of what they cover; prints what survives."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

COUNT = 100
LEAST_SHARE = 0.9


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    path = Path(__file__).with_name("mutants.py")
    spec = importlib.util.spec_from_file_location("mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.mutation
def test_tests_notice_nine_in_ten_changes(mutants: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = mutants.tried(mutants.sample(COUNT, "*", 0), 2)
    with capsys.disabled():
        print("", mutants.report(found), sep="\n")
    assert len(found["survives"]) <= (1 - LEAST_SHARE) * COUNT


def test_every_covered_file_has_its_tests(mutants: ModuleType) -> None:
    for pattern, tests in mutants.COVERED_BY.items():
        assert list(mutants.ROOT.glob(pattern)), pattern
        assert all((mutants.ROOT / test).exists() for test in tests)


def test_known_equivalents_still_stand_in_the_code(mutants: ModuleType) -> None:
    known = mutants.EQUIVALENT.read_text(encoding="utf-8").splitlines()
    paths = {line.partition(":")[0] for line in known}
    names = {mutants.name_of(mutant) for path in paths for mutant in mutants.mutants_of(path)}
    assert set(known) <= names

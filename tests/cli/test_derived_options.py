"""Arguments are derived from the fields of options: what is said is what the object holds."""

import argparse
import json
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any

import pytest

from kvcap.cli.main import main
from kvcap.cli.options.derived import add_fields, given, options_from
from kvcap.engines import ENGINES, POLICIES
from kvcap.errors import UsageError
from kvcap.option_fields import changed, from_json_values, names, on_off, option, percent, whole_number
from kvcap.options import ReplayOptions


@dataclass(frozen=True)
class Inner:
    depth: int = option(3, "how deep (default: {default})", "--how-deep", parse=whole_number(1))
    unsaid: int = 7


@dataclass(frozen=True)
class Outer:
    share: Fraction = option(Fraction(1, 2), "of 100%", "--share-percent", parse=percent(zero_allowed=True))
    inner: Inner = field(default_factory=Inner)
    words: tuple[str, ...] = option((), "some", parse=names)
    on: bool = option(False, "on or off", choices=("on", "off"), parse=on_off, form="value")
    flag: bool = option(False, "a switch")
    either: bool = option(True, "with its negation", form="negatable")


def parsed(*argv: str, **settings: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_fields(parser, Outer, **settings)
    return parser.parse_args(argv)


def test_what_is_not_said_keeps_the_default_of_its_field() -> None:
    assert given(parsed(), Outer) == {}
    assert options_from(parsed(), Outer()) == Outer()
    assert options_from(parsed(), Outer(inner=Inner(depth=9))).inner.depth == 9


def test_each_option_finds_its_field_in_the_composition() -> None:
    args = parsed("--how-deep", "5", "--share-percent", "20%", "--words", "b, a,b", "--on", "on", "--flag")
    assert options_from(args, Outer()) == Outer(Fraction(1, 5), Inner(5), ("b", "a"), on=True, flag=True)
    assert options_from(parsed("--no-either"), Outer()).either is False


def test_fields_without_a_help_text_cannot_be_said() -> None:
    with pytest.raises(SystemExit):
        parsed("--unsaid", "1")
    with pytest.raises(SystemExit):
        parsed("--flag", without=["flag"])
    assert given(parsed("--flag", only=["flag"]), Outer) == {"flag": True}


def test_a_wrong_value_names_the_option_and_what_it_expects() -> None:
    with pytest.raises(UsageError, match=r"--how-deep is '0', expected a whole number from 1"):
        parsed("--how-deep", "0")


def test_the_help_shows_the_default_that_the_field_has() -> None:
    parser = argparse.ArgumentParser()
    add_fields(parser, Outer)
    assert "how deep (default: 3)" in parser.format_help()
    assert "of 100%" in parser.format_help()


def test_options_change_by_name_wherever_they_stand() -> None:
    assert changed(Outer(), {"depth": 1, "unsaid": 2}).inner == Inner(1, 2)
    with pytest.raises(UsageError, match="nosuch is no option of Outer"):
        changed(Outer(), {"nosuch": 1})


def test_a_name_stands_for_one_option_of_a_replay() -> None:
    options = ReplayOptions()
    parts = [options, options.blocks, options.rules]
    every = [part.name for one in parts for part in fields(one)]
    assert sorted(every) == sorted(set(every))


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_options_of_a_replay_come_back_from_json(engine: str | None) -> None:
    values = {"capacities": "1GiB,2GiB", "warm_up": Fraction(1, 3), "kv_bytes_per_token": Fraction(7, 2)}
    options = ReplayOptions.of(engine, **values)
    stored = json.loads(json.dumps(asdict(options), default=str))
    assert from_json_values(ReplayOptions, stored) == options
    del stored["rules"]["oversize"]
    assert from_json_values(ReplayOptions, stored) == options


def test_the_help_and_the_messages_know_every_policy_and_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(name in shown for name in (*POLICIES, *ENGINES))
    with pytest.raises(UsageError, match=", ".join(POLICIES)):
        ReplayOptions.of(policies=("nosuch",))

"""Arguments of the command line from the fields of options, and options from arguments.

An argument that is not given stays None in the namespace: defaults stand in the options alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, Field
from typing import Any, TypeVar

from kvcap.option_fields import OptionText, changed, flags_of, name_of, option_text, spoken_fields

_O = TypeVar("_O")


class _Parse(argparse.Action):
    """Store what a parser makes of a value; its message names the option as the user wrote it."""

    def __init__(self, text: OptionText, **settings: Any) -> None:
        super().__init__(**settings)
        self._text = text

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        said = values if isinstance(values, str) else " ".join(values or ())
        value = self._text.parse(said, option_string or self.dest)
        if self._text.form == "repeated":
            value = (*(getattr(namespace, self.dest) or ()), value)
        setattr(namespace, self.dest, value)


def add_fields(
    parser: argparse._ActionsContainer,
    options: type[Any],
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    as_text: bool = False,
) -> None:
    """Add an argument for each field of options that can be said, those of composed options included.

    Parameters
    ----------
    parser
        Or a group of one.
    options
        A class of options.
    only, without
        Names of fields that are added alone, or left out.
    as_text
        Leave values as they were written, ``true`` for switches: the command makes sense of them later.
    """
    for part in spoken_fields(options):
        if part.name not in without and (not only or part.name in only):
            _add(parser, part, as_text=as_text)


def _add(parser: argparse._ActionsContainer, part: Field[Any], *, as_text: bool) -> None:
    text = option_text(part)
    assert text is not None
    settings: dict[str, Any] = {
        "dest": name_of(part),
        "help": text.help.replace("{default}", text.show(part.default)).replace("%", "%%"),
    }
    if text.form == "switch":
        settings |= {"action": "store_const", "const": "true" if as_text else True}
    elif text.form == "negatable":
        settings |= {"action": argparse.BooleanOptionalAction}
    else:
        settings |= {"metavar": text.metavar, "choices": text.choices}
        settings |= {} if as_text else {"action": _Parse, "text": text, "required": part.default is MISSING}
        settings |= {"nargs": "+"} if text.form == "words" else {}
    parser.add_argument(*flags_of(part), **settings)


def given(args: argparse.Namespace, options: type[Any]) -> dict[str, Any]:
    """Return the fields of options that were said, by their names."""
    found = {part.name: getattr(args, name_of(part), None) for part in spoken_fields(options)}
    return {name: value for name, value in found.items() if value is not None}


def options_from(args: argparse.Namespace, options: _O) -> _O:
    """Return options with what was said in place of their own.

    Raises
    ------
    UsageError
        If options contradict each other.
    """
    return changed(options, given(args, type(options)))

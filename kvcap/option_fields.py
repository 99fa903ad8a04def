"""Options as fields of frozen dataclasses, each said once: its default, its flag, how text becomes its value.

A command line, an environment and a configuration file can be derived from such fields; options are composed
of others, as in ``ReplayOptions(blocks=BlockOptions(...))``, so that nobody copies what another has. Modules
of options import nothing heavy: ``--help`` reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal, TypeVar

from kvcap.errors import UsageError
from kvcap.units import parse_number, parse_percent, parse_size_bytes

Parser = Callable[[str, str], Any]
"""Takes what was given and the option's name for messages; raises :class:`UsageError`."""
Form = Literal["value", "switch", "negatable", "repeated", "words"]

HIDDEN: Final = "==SUPPRESS=="
"""Help of an option that is taken and not shown, as argparse has it."""
_KEY: Final = "kvcap.option"
_O = TypeVar("_O")


@dataclass(frozen=True)
class OptionText:
    """How a field is said.

    Parameters
    ----------
    help
        What it means; ``{default}`` stands for the default.
    flags
        Its names on the command line, the proper one first; empty for the field's own name.
    metavar, choices
        What its value looks like, or all of its values.
    parse
        Makes the value from text.
    show
        Makes text from the default.
    form
        ``value``; a ``switch`` that is on when given, ``negatable`` with ``--no-``; ``repeated`` options
        that gather, or one option of several ``words``.
    """

    help: str
    flags: tuple[str, ...]
    metavar: str | tuple[str, ...] | None
    choices: tuple[str, ...] | None
    parse: Parser
    show: Callable[[Any], str]
    form: Form


def option(
    default: Any,
    help: str,  # noqa: A002
    *flags: str,
    metavar: str | tuple[str, ...] | None = None,
    choices: Sequence[str] | None = None,
    parse: Parser | None = None,
    show: Callable[[Any], str] = str,
    form: Form | None = None,
) -> Any:
    """Return a dataclass field that can be said; see :class:`OptionText`."""
    text = OptionText(
        help=help,
        flags=flags,
        metavar=metavar,
        choices=None if choices is None else tuple(choices),
        parse=parse or _as_it_is,
        show=show,
        form=form or ("switch" if default is False else "value"),
    )
    return field(default=default, metadata={_KEY: text})


def option_text(part: Field[Any]) -> OptionText | None:
    """Return how a field is said; None where nobody may say it."""
    text: OptionText | None = part.metadata.get(_KEY)
    return text


def flags_of(part: Field[Any]) -> tuple[str, ...]:
    """Return the names of an option on the command line, the proper one first."""
    text = option_text(part)
    return (text and text.flags) or ("--" + part.name.replace("_", "-"),)


def name_of(part: Field[Any]) -> str:
    """Return the name of an option in a configuration and of its argument: its flag without dashes."""
    return flags_of(part)[0].lstrip("-").replace("-", "_")


def value_of(part: Field[Any], text: str, name: str) -> Any:
    """Return what a field's text means, where no argument parser has looked at it.

    Raises
    ------
    UsageError
        If it is not what the option expects.
    """
    said = option_text(part)
    assert said is not None
    if said.choices is not None and text not in said.choices:
        raise UsageError(f"{name} is {text!r}, expected {' or '.join(said.choices)}")
    return said.parse(text, name)


def spoken_fields(options: type[Any]) -> Iterator[Field[Any]]:
    """Yield the fields that can be said, those of composed options in their places."""
    for part in fields(options):
        composed = _composed(part)
        if composed is not None:
            yield from spoken_fields(composed)
        elif option_text(part) is not None:
            yield part


def changed(options: _O, values: Mapping[str, Any]) -> _O:
    """Return options with other values, each wherever it stands in the composition.

    Raises
    ------
    UsageError
        If there is no such option, or the options contradict each other.
    """
    rest = dict(values)
    result = _changed(options, rest)
    if rest:
        raise UsageError(f"{next(iter(rest))} is no option of {type(options).__name__}")
    return result


def _changed(options: _O, rest: dict[str, Any]) -> _O:
    own = {}
    for part in fields(options):  # type: ignore[arg-type]
        if part.name in rest:
            own[part.name] = rest.pop(part.name)
        elif _composed(part) is not None:
            own[part.name] = _changed(getattr(options, part.name), rest)
    return replace(options, **own)  # type: ignore[type-var]


def from_json_values(options: type[_O], values: Mapping[str, Any]) -> _O:
    """Return options from the JSON of their ``asdict``, fractions as text; what is missing has its default.

    Raises
    ------
    TypeError
        If it holds what is no option.
    ValueError
        If a fraction is none.
    """
    own = dict(values)
    for part in fields(options):  # type: ignore[arg-type]
        value = own.get(part.name)
        composed = _composed(part)
        if composed is not None and value is not None:
            own[part.name] = from_json_values(composed, value)
        elif isinstance(value, list):
            own[part.name] = tuple(value)
        elif isinstance(value, str) and "Fraction" in str(part.type):
            own[part.name] = Fraction(value)
    return options(**own)


def _composed(part: Field[Any]) -> type[Any] | None:
    """Return the options that a field holds, by their defaults; None where it holds a value."""
    factory: Any = part.default_factory
    return factory if isinstance(factory, type) and is_dataclass(factory) else None


def _as_it_is(text: str, name: str) -> str:
    return text


def whole_number(least: int) -> Parser:
    """Return a parser of whole numbers, at least ``least``."""

    def parse(text: str, name: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise UsageError(f"{name} is {text!r}, expected a whole number from {least}")
        return value

    return parse


def percent(*, zero_allowed: bool) -> Parser:
    """Return a parser of percentages, which makes shares of 1 of them."""

    def parse(text: str, name: str) -> Fraction:
        return parse_percent(text, name, zero_allowed=zero_allowed)

    return parse


def names(text: str, name: str) -> tuple[str, ...]:
    """Return the parts of a comma list, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise UsageError(f"{name} is empty, expected names with commas between them")
    return found


def seconds(text: str, name: str) -> float:
    """Return a time in seconds, above 0."""
    return float(parse_number(text, name))


def size_bytes(text: str, name: str) -> int:
    """Return the bytes of a size; a number alone is bytes."""
    return parse_size_bytes(f"{text}B" if text.isdecimal() else text, name)


def share(text: str, name: str) -> Fraction:
    """Return a share above 0 and at most 1."""
    found = parse_number(text, name)
    if found > 1:
        raise UsageError(f"{name} is {text!r}, expected a share above 0 and at most 1, such as 0.6")
    return found


def true_false(text: str, name: str) -> bool:
    """Return what a switch says where it needs a value."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise UsageError(f"{name} is {text!r}, expected true or false")
    return known[text.lower()]


def on_off(text: str, name: str) -> bool:
    """Return whether something is on."""
    if text not in ("on", "off"):
        raise UsageError(f"{name} is {text!r}, expected on or off")
    return text == "on"

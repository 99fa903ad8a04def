"""Chat templates, rendered in the sandbox and with the helpers that models' templates are written for.

The environment is the one of transformers 5: immutable sandbox, ``trim_blocks`` and ``lstrip_blocks``, loop
controls, ``{% generation %}``, and ``tojson`` without HTML escapes. Templates are untrusted text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from kvcap.tokenize.prompts import Json

_OPEN_END = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks where an open message ends, as in transformers; whether its last blank survives tells trimming."""
MAX_CHARACTERS: Final = 1 << 26
"""Text that a conversation may render to, and that one expression of a template may make."""
_MAX_POWER: Final = 1 << 10


class ChatTemplate:
    """A compiled template.

    Parameters
    ----------
    source
        The Jinja text.
    special_tokens
        What ``bos_token`` and the like are.
    started_at
        What ``strftime_now`` shows for requests without a time, in UTC.

    Raises
    ------
    jinja2.TemplateError
        If the text is no template.
    """

    def __init__(self, source: str, special_tokens: dict[str, str], started_at: datetime) -> None:
        self._source = source
        self._special_tokens = special_tokens
        self._started_at = started_at
        self._template = _environment().from_string(source)
        self.takes_parts = self._probe_parts()
        """Whether contents may be lists of parts, as opposed to text only."""

    def render(
        self,
        messages: list[Json],
        tools: list[Json] | None,
        kwargs: Json,
        *,
        add_generation_prompt: bool,
        timestamp: datetime | None,
    ) -> str:
        """Return the text of a conversation.

        Raises
        ------
        Exception
            Whatever the template runs into: it is a program that sees the request.
        """
        now = timestamp or self._started_at
        variables: Json = {"documents": None, **self._special_tokens, "strftime_now": now.strftime, **kwargs}
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(
            **{
                **variables,
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            }
        ):
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise jinja2.TemplateError(f"it makes more than {MAX_CHARACTERS:,} characters")
            pieces.append(piece)
        return "".join(pieces)

    def render_open(
        self, messages: list[Json], tools: list[Json] | None, kwargs: Json, *, timestamp: datetime | None
    ) -> str:
        """Return the text of a conversation up to the end of its last message, which stays open.

        Raises
        ------
        ValueError
            If the last message has no text or the template drops it.
        Exception
            Whatever the template runs into.
        """
        marked, final_text = _mark_open_end(messages)
        text = self.render(marked, tools, kwargs, add_generation_prompt=False, timestamp=timestamp)
        end = text.rfind(_OPEN_END.strip())
        if end < 0 or final_text.strip() not in text:
            raise ValueError("the chat template drops the final message, which is to be continued")
        return text[:end] if text.startswith(_OPEN_END, end) else text[:end].rstrip()

    def _probe_parts(self) -> bool:
        """Try whether a part list renders as its text does."""
        try:
            as_text, as_parts = (
                self.render(
                    [{"role": "user", "content": content}],
                    None,
                    {},
                    add_generation_prompt=True,
                    timestamp=None,
                )
                for content in ("probe", [{"type": "text", "text": "probe"}])
            )
        except Exception:
            # The template refuses a lone user turn or a part list: text is what every template takes.
            return False
        return as_text == as_parts


def _mark_open_end(messages: list[Json]) -> tuple[list[Json], str]:
    """Return the messages with the mark behind the final text, and that text."""
    final = messages[-1]
    content = final.get("content")
    if isinstance(content, str):
        return [*messages[:-1], {**final, "content": content + _OPEN_END}], content
    if isinstance(content, list):
        for position in reversed(range(len(content))):
            part = content[position]
            if isinstance(part, dict) and "text" in part:
                marked = {**part, "text": part["text"] + _OPEN_END}
                parts = [*content[:position], marked, *content[position + 1 :]]
                return [*messages[:-1], {**final, "content": parts}], part["text"]
    raise ValueError("the final message has no text to continue")


class _Generation(Extension):
    """``{% generation %}`` marks what the model wrote; the text inside renders as it stands."""

    tags = {"generation"}  # noqa: RUF012 - the shape that Jinja asks for

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _PlainNamespace(Namespace):
    """A namespace without attributes that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # As in Jinja's own: `self` may be the name of an attribute.
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


class _PlainDict:
    """``dict(...)`` without the type's own attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, in which one expression makes no more than a conversation may be."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            small = all(isinstance(value, float) or abs(value) <= _MAX_POWER for value in (left, right))
        else:
            sizes = [len(value) if hasattr(value, "__len__") else 0 for value in (left, right)]
            counts = [value if isinstance(value, int) else 0 for value in (right, left)]
            small = all(size * count <= MAX_CHARACTERS for size, count in zip(sizes, counts, strict=True))
        if not small:
            raise jinja2.TemplateError(f"{operator} makes more than a conversation may be")
        return super().call_binop(context, operator, left, right)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise_exception, dict=_PlainDict(), namespace=_PlainNamespace)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)

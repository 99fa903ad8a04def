"""Stored conversations: each assistant turn was a request, whose prompt is all that came before it.

::

    {"id": "c", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "Hello"}]}
    {"conversation_hash": "c", "model": "m", "conversation": [{"role": "user", "content": "hi"}, ...]}
    {"instance_id": "i", "trajectory": [{"role": "system", "system_prompt": "..."}, {"role": "ai", ...}]}
    {"trajectory_format": "mini-swe-agent-1", "messages": [...]}
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]

``--conversations whole`` takes a record as one request instead. Bodies of requests that end with an assistant
turn may be either, and the user is asked. Where an assistant turn says its time and the tokens of its call,
they are the request's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kvcap.formats.bodies.shapes import as_body, plain_body, plain_message
from kvcap.formats.bodies.turns import Json, json_text
from kvcap.formats.bodies.usage import Usage, usage_of
from kvcap.formats.dialect import Dialect
from kvcap.formats.paths import find, first, unpacked
from kvcap.formats.rows import FieldError, Row, Skip, Values, an_object, inside, show
from kvcap.formats.text_rows import text_row

TURNS: Final = (
    "records are conversations, of which each assistant turn is a request of all before it (--conversations "
    "whole takes each as one request)"
)
ENDS: Final = "records end with an assistant turn"
_NO_TURN: Final = "conversations without an assistant turn"
_USAGE: Final = ("extra.response.usage", "response.usage", "usage", "metrics.tokens", "metrics")
_TIMES: Final = ("timestamp", "extra.timestamp", "extra.response.created", "ts")


@dataclass(frozen=True)
class _Kind:
    """Where a kind of conversation holds what; see :class:`kvcap.formats.presets.Preset`."""

    name: str
    summary: str
    marks: tuple[str, ...]
    messages: str
    session: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("tools",)
    system: tuple[str, ...] = ()


_KINDS: Final = (
    _Kind(
        "sharegpt",
        "ShareGPT conversations: conversations of from and value",
        ("conversations.0.from|conversations.0.role",),
        "conversations",
        session=("id", "conversation_id"),
        model=("model",),
        system=("system", "system_prompt"),
    ),
    _Kind(
        "chat-conversations",
        "WildChat and LMSYS conversations: conversation of role and content",
        ("conversation.0.role",),
        "conversation",
        session=("conversation_hash", "conversation_id"),
        model=("model",),
    ),
    _Kind(
        "swe-agent",
        "SWE-agent trajectories: history of role and content",
        ("history.0.role", "trajectory"),
        "history",
        session=("replay_config.problem_statement.id", "instance_id"),
        model=("replay_config.agent.model.name",),
    ),
    _Kind(
        "swe-trajectories",
        "data sets of agents' trajectories: trajectory of role and text or content",
        ("trajectory.0.role",),
        "trajectory",
        session=("trajectory_id", "instance_id"),
        model=("model_name", "model"),
    ),
    _Kind(
        "mini-swe-agent",
        "mini-swe-agent trajectories: messages with what each call used",
        ("trajectory_format", "messages"),
        "messages",
        session=("instance_id",),
        model=("info.config.model.model_name",),
        tools=("tools", "info.config.model.tools"),
    ),
)


def read_turns(
    messages: list[Any],
    *,
    tools: Any = None,
    session: str | None = None,
    model: str | None = None,
    usages: list[Usage] | None = None,
) -> Iterator[Row | Skip]:
    """Yield a request for each assistant turn of a conversation.

    Parameters
    ----------
    messages
        The conversation, in the shape of any API.
    tools, session, model
        What all of its requests have.
    usages
        What each message says of its call; None looks into the messages.
    """
    plain = _plain(messages)
    turns = [index for index, message in enumerate(plain) if message["role"] == "assistant" and index > 0]
    if not turns:
        yield Skip(_NO_TURN)
        return
    remarks = (TURNS, *((ENDS,) if turns[-1] == len(plain) - 1 else ()))
    for index in turns:
        said = messages[index] if isinstance(messages[index], dict) else {}
        usage = _usage(said) if usages is None else usages[index]
        row = _row(plain[:index], tools, usage)
        row.timestamp = first((said,), _TIMES)
        row.session = session
        row.model = model or row.model
        row.remarks = (*row.remarks, *remarks)
        row.record = said
        remarks = ()
        yield row


def _row(messages: list[Json], tools: Any, usage: Usage | None = None) -> Row:
    return text_row(plain_body({"messages": messages}, {"tools": tools}), usage)


def _plain(messages: Any) -> list[Json]:
    if type(messages) is not list or not messages:
        raise FieldError("", f"is {show(messages)}, expected a list of messages")
    plain = []
    for index, message in enumerate(messages):
        with inside(f"messages[{index}]"):
            shaped = plain_message(message)
            if type(shaped["role"]) is not str:
                raise FieldError("role", f"is {show(shaped['role'])}, expected a string")
        plain.append(shaped)
    return plain


def _usage(message: Json) -> Usage:
    usage = Usage()
    for path in _USAGE:
        usage |= usage_of(find(message, path))
    return usage


def _parts(kind: _Kind, record: Any) -> tuple[list[Any], Any, str | None, str | None]:
    record = an_object(record, kind.messages)
    messages = unpacked(find(record, kind.messages))
    if type(messages) is not list or not messages:
        raise FieldError(kind.messages, f"is {show(messages)}, expected a list of messages")
    system = first((record,), kind.system)
    if type(system) is str and system:
        messages = [{"role": "system", "content": system}, *messages]
    session, model = first((record,), kind.session), first((record,), kind.model)
    return (
        messages,
        unpacked(first((record,), kind.tools)),
        None if session is None else json_text(session),
        model if type(model) is str else None,
    )


def _read_kind(kind: _Kind, record: Any, values: Values) -> Iterator[Row | Skip]:
    messages, tools, session, model = _parts(kind, record)
    yield from read_turns(messages, tools=tools, session=session, model=model)


def _read_whole(kind: _Kind, record: Any, values: Values) -> Iterator[Row | Skip]:
    messages, tools, session, model = _parts(kind, record)
    plain = _plain(messages)
    row = _row(plain, tools)
    row.session, row.model = session, model
    row.remarks = (*row.remarks, *((ENDS,) if plain[-1]["role"] == "assistant" else ()))
    yield row


def _matches(kind: _Kind, record: Any) -> bool:
    return isinstance(record, dict) and all(
        any(find(record, path) is not None for path in mark.split("|")) for mark in kind.marks
    )


def _is_message_list(record: Any) -> bool:
    return (
        isinstance(record, list)
        and len(record) > 0
        and all(
            isinstance(message, dict) and "role" in message and "content" in message for message in record
        )
    )


def _read_list(record: Any, values: Values) -> Iterator[Row | Skip]:
    yield from read_turns(record)


def _read_list_whole(record: Any, values: Values) -> Iterator[Row | Skip]:
    yield _row(_plain(record), None)


def read_body_turns(record: Any, values: Values) -> Iterator[Row | Skip]:
    """Yield a request for each assistant turn of a body that is a stored conversation."""
    body = as_body(an_object(record, "messages"), "")
    messages = unpacked(body.get("messages"))
    if type(messages) is not list or not messages:
        raise FieldError("messages", f"is {show(messages)}, expected a list with at least one message")
    session = first((record,), ("session_id", "traj_id", "trajectory_id", "id", "instance_id"))
    model = body.get("model")
    yield from read_turns(
        messages,
        tools=unpacked(body.get("tools")),
        session=session if type(session) is str else None,
        model=model if type(model) is str else None,
    )


CONVERSATIONS: Final[tuple[Dialect, ...]] = (
    *(
        Dialect(
            name=kind.name,
            summary=f"{kind.summary} (needs a tokenizer)",
            kind="request_json",
            matches=partial(_matches, kind),
            read=partial(_read_kind, kind),
            read_turns=partial(_read_kind, kind),
            read_whole=partial(_read_whole, kind),
            timestamp_unit="s",
        )
        for kind in _KINDS
    ),
    Dialect(
        name="message-list",
        summary="a conversation as a list of messages: Cline, mini-swe-agent (needs a tokenizer)",
        kind="request_json",
        matches=_is_message_list,
        read=_read_list,
        read_turns=_read_list,
        read_whole=_read_list_whole,
    ),
)

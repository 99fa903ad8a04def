"""Inputs of AIPerf: single prompts, pools of them, turns of conversations, and Baseten's traces.

::

    {"text": "Where is Beijing?"}
    {"type": "random_pool", "texts": ["Where is", "Beijing?"]}
    {"session_id": "s", "turns": [{"text": "hi", "output_length": 20}, {"text": "more", "delay": 1000}]}
    {"session_id": "root", "turns": [{"messages": [...], "forks": ["child"]}]}
    {"timestamp_start_unix_ms": 1767261600000, "total_hashes": [1, 2], "block_size": 128, "input_tokens": 200}

Turns add to their session; the answers between them are made when the benchmark runs, so they are not in the
file. A session that another one forks begins with what that one had until then. Texts are user messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.formats.base import ReadReport
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.openai import WITHOUT_ANSWERS
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inside,
    is_list,
    optional_count,
    optional_number,
    optional_size,
    optional_text,
    required,
    show,
)
from kvcap.formats.text_rows import body_text, text_row
from kvcap.formats.timestamps import number_of

_SINGLE: Final = ("single_turn", "random_pool")


def _messages(entry: dict[str, Any]) -> list[Any]:
    """Return the messages that an entry adds: its own, or its text or texts as one of the user."""
    messages = entry.get("messages")
    if messages is not None:
        return inner_list(entry, "messages")
    texts = entry.get("texts", entry.get("text"))
    texts = [texts] if type(texts) is str else texts
    if type(texts) is not list or not texts or not all(type(text) is str for text in texts):
        raise FieldError("text", f"is {show(texts)}, expected text or a list of texts")
    for medium in ("image", "images", "audio", "audios", "video", "videos"):
        if entry.get(medium):
            raise FieldError(medium, "is there, expected text alone")
    parts = [{"type": "text", "text": text} for text in texts]
    return [{"role": "user", "content": texts[0] if len(texts) == 1 else parts}]


def _read_single(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "text or texts")
    yield text_row(
        {"messages": _messages(record)},
        timestamp=record.get("timestamp"),
        session=optional_text(record, "session_id"),
        model=optional_text(record, "model"),
        output_length=optional_count(record, "output_length"),
    )


def _read_turns(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "turns")
    session = optional_text(record, "session_id")
    for index, item in enumerate(inner_list(record, "turns")):
        with inside(f"turns[{index}]"):
            turn = an_object(item, "text or messages")
            messages = _messages(turn)
            row = text_row(
                {key: turn[key] for key in ("tools",) if turn.get(key)} | {"messages": messages},
                timestamp=turn.get("timestamp"),
                session=session,
                model=optional_text(turn, "model"),
                output_length=optional_count(turn, "output_length"),
                record=turn,
            )
            forks = turn.get("forks") or []
            if type(forks) is not list or not all(type(fork) is str for fork in forks):
                raise FieldError("forks", f"is {show(forks)}, expected a list of session ids")
            row.extra = (index, optional_number(turn, "delay"), forks)
        yield row


class _Turns:
    """Put what a session had before its turns, and begin forked sessions with it."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._now: tuple[dict[str, Any], Any] = ({}, None)
        self._forked: dict[str, tuple[dict[str, Any], Any]] = {}

    def __call__(self, row: Row) -> Row:
        index, delay, forks = row.extra
        if index == 0:
            self._now = self._forked.pop(row.session or "", ({}, None))
        earlier, time = self._now
        body = orjson.loads(row.text or "{}")
        if earlier:
            body = {**earlier, **body, "messages": [*earlier["messages"], *body["messages"]]}
            row.text = body_text(body)
            row.remarks = (*row.remarks, WITHOUT_ANSWERS)
        if row.timestamp is None and time is not None and delay is not None:
            row.timestamp = time + delay
        number = number_of(row.timestamp)
        self._now = (body, None if number is None else float(number))
        self._forked.update((fork, self._now) for fork in forks)
        return row


def _read_baseten(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "total_hashes")
    yield Row(
        ids=values.ids(required(record, "total_hashes", "a list of hashes"), "total_hashes"),
        timestamp=record.get("timestamp_start_unix_ms"),
        session=optional_text(record, "provided_session_id"),
        model=optional_text(record, "model_name"),
        input_length=optional_count(record, "input_tokens"),
        output_length=optional_count(record, "output_tokens"),
        block_size=optional_size(record, "block_size"),
        observed_cached_tokens=optional_count(record, "cached_tokens_reference"),
    )


def _is_single(record: Any) -> bool:
    if not isinstance(record, dict) or "role" in record or not ("text" in record or "texts" in record):
        return False
    alone = {"text", "texts", "timestamp", "session_id", "output_length", "delay", "model", "type", "name"}
    return record.get("type") in _SINGLE or ("type" not in record and alone.issuperset(record))


def _is_turns(record: Any) -> bool:
    turns = record.get("turns") if isinstance(record, dict) else None
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], dict):
        return False
    return any(key in turns[0] for key in ("text", "texts", "messages"))


AIPERF_SINGLE: Final = Dialect(
    name="aiperf-single-turn",
    summary="AIPerf prompts: text or texts, one a line (needs a tokenizer)",
    kind="request_json",
    matches=_is_single,
    read=_read_single,
)

AIPERF_TURNS: Final = Dialect(
    name="aiperf-turns",
    summary="AIPerf conversations of turns, forks included (needs a tokenizer)",
    kind="request_json",
    matches=_is_turns,
    read=_read_turns,
    sequencer=_Turns,
)

BASETEN: Final = Dialect(
    name="baseten",
    summary="Baseten traces: total_hashes with block_size",
    kind="hash_ids",
    matches=lambda record: has(record, "total_hashes", "block_size") and is_list(record["total_hashes"]),
    read=_read_baseten,
)

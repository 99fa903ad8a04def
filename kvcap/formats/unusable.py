"""Logs that people have and that cannot drive a replay, recognized so that they hear why.

A replay needs, for each request, what its prompt was: tokens, ids of blocks, or text. KV-event streams say
what a cache did under its own eviction, not what was asked for; Batch output files hold the answers; traces
of lengths say how much was asked for and not what of it was the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.dialect import Dialect, has
from kvcap.formats.rows import FieldError, Row, Skip, Values

_LENGTH_KEYS: Final = (
    "input_length",
    "input_tokens_total",
    "prompt_tokens",
    "num_prefill_tokens",
    "ContextTokens",
    "Request tokens",
    "tokens_prompt",
    "input_lens",
)


def _refuse(record: Any, values: Values) -> Iterator[Row | Skip]:
    raise FieldError("", "is of a format that cannot drive a replay")


def _is_kv_event(record: Any) -> bool:
    events = record.get("events") if isinstance(record, dict) else None
    if isinstance(record, list) and len(record) >= 2 and isinstance(record[0], float):
        events = record[1]
    return isinstance(events, list) and any(_is_event(event) for event in events)


def _is_event(event: Any) -> bool:
    kind = (
        event.get("type")
        if isinstance(event, dict)
        else event[0]
        if isinstance(event, list) and event
        else None
    )
    return kind in ("BlockStored", "BlockRemoved", "AllBlocksCleared")


KV_EVENTS: Final = Dialect(
    name="kv-events",
    summary="KV-event streams (vLLM, SGLang)",
    kind="hash_ids",
    matches=_is_kv_event,
    read=_refuse,
    refusal="KV events say what a cache stored and dropped under its own eviction, not which prompts were "
    "looked up, so they cannot drive a replay; log the requests instead",
)

BATCH_OUTPUT: Final = Dialect(
    name="openai-batch-output",
    summary="output files of the OpenAI Batch API",
    kind="request_json",
    matches=lambda record: has(record, "custom_id", "response"),
    read=_refuse,
    refusal="a Batch output file holds the answers without the prompts, so it cannot drive a replay; give "
    "the batch's input file",
)

OPENASSISTANT: Final = Dialect(
    name="openassistant",
    summary="OpenAssistant's trees of messages, and messages of them",
    kind="request_json",
    matches=lambda record: has(record, "message_tree_id"),
    read=_refuse,
    refusal="a tree holds many conversations, one to each leaf, so it cannot drive a replay as it stands; "
    "write each path as a line of messages and read them with --conversations turns",
)

STORED_COMPLETIONS: Final = Dialect(
    name="openai-stored-completions",
    summary="lists of stored chat completions of the OpenAI API",
    kind="request_json",
    matches=lambda record: has(record, "object", "choices") and record["object"] == "chat.completion",
    read=_refuse,
    refusal="stored completions are answers without their prompts, so they cannot drive a replay; fetch the "
    "messages of each (chat/completions/ID/messages) and log them as messages",
)

LENGTHS: Final = Dialect(
    name="lengths",
    summary="traces of lengths alone (Mooncake rows without hash_ids, TraceLab rounds, Azure, BurstGPT)",
    kind="hash_ids",
    matches=lambda record: isinstance(record, dict) and any(key in record for key in _LENGTH_KEYS),
    read=_refuse,
    refusal="records with lengths alone do not say which prompts share a prefix, so they cannot drive a "
    "replay; log hash_ids, token ids or the text",
)

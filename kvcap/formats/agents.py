"""Which lines of agents' transcripts are calls of a model, and what they used.

::

    {"type": "assistant", "sessionId": "s", "uuid": "u", "parentUuid": "p", "timestamp": "2026-01-01T10Z",
     "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3, "cache_read_input_tokens": 9}}}
    {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {...}}}}
    {"type": "message", "message": {"role": "assistant", "model": "m", "usage": {"input": 3, ...}}}

Claude Code writes a line per block of an answer, with the same usage but for the tokens generated until then.
Codex repeats a count until the next call. See :mod:`kvcap.formats.transcripts` for what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.bodies.usage import Usage, usage_of
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.paths import find
from kvcap.formats.rows import Row, Skip, Values, an_object
from kvcap.formats.transcripts import FURTHER, Event, Streams, row_of

_NO_USAGE: Final = "calls without usage, which the agent's present versions write: export them anew"
_CLAUDE_TYPES: Final = ("user", "assistant", "system", "summary")
_CODEX_TYPES: Final = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_SYNTHETIC: Final = "<synthetic>"


def _read_claude(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "sessionId")
    line, agent = _text(record.get("uuid")), _text(record.get("agentId"))
    session = _text(record.get("sessionId")) or ""
    event = Event(
        session=f"{session}/{agent}" if agent else session or None,
        line=line,
        parent=_text(record.get("parentUuid")),
        has_parent="parentUuid" in record and line is not None,
        cuts=record.get("subtype") == "compact_boundary",
    )
    message = record.get("message")
    if record.get("type") == "assistant" and isinstance(message, dict):
        usage = usage_of(message.get("usage"))
        if message.get("model") != _SYNTHETIC and usage.prompt:
            event.usage, event.model = usage, _text(message.get("model"))
            event.time, event.call = record.get("timestamp"), _text(message.get("id"))
        elif message.get("model") != _SYNTHETIC and "usage" not in message:
            yield Skip(_NO_USAGE)
            return
    yield row_of(event, record)


def _read_codex(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "type and payload")
    kind, payload = record.get("type"), record.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    if kind == "session_meta":
        yield row_of(Event(session=_text(payload.get("id")), starts=True))
    elif kind == "turn_context":
        yield row_of(Event(model=_text(payload.get("model"))))
    elif kind == "compacted" or payload.get("type") == "context_compacted":
        yield row_of(Event(cuts=True))
    elif payload.get("type") == "token_count" and isinstance(payload.get("info"), dict):
        info = payload["info"]
        usage = usage_of(info.get("last_token_usage"))
        if not usage.prompt:
            yield Skip(FURTHER)
            return
        total = info.get("total_token_usage")
        call = None if total is None else str(sorted(total.items()) if isinstance(total, dict) else total)
        yield row_of(Event(usage=usage, time=record.get("timestamp"), call=call), record)
    else:
        yield Skip(FURTHER)


def _read_pi(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "type")
    kind, message = record.get("type"), record.get("message")
    line = _text(record.get("id"))
    if kind == "session":
        yield row_of(Event(session=line, starts=True))
        return
    event = Event(
        line=line,
        parent=_text(record.get("parentId")),
        has_parent="parentId" in record and line is not None,
        cuts=kind == "compaction",
    )
    if kind == "message" and isinstance(message, dict) and message.get("role") == "assistant":
        usage = usage_of(message.get("usage"))
        if usage.prompt:
            event.usage, event.model = usage, _text(message.get("model"))
            event.time = record.get("timestamp", message.get("timestamp"))
        elif "usage" not in message:
            yield Skip(_NO_USAGE)
            return
    yield row_of(event, record)


def _read_gemini(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "messages")
    messages = record.get("messages")
    if "sessionId" in record and record.get("type") != "gemini":
        yield row_of(Event(session=_text(record.get("sessionId")), starts=True))
    elif not isinstance(messages, list):
        messages = [record]
    for item in messages if isinstance(messages, list) else ():
        message = an_object(item, "type and tokens")
        usage = usage_of(message.get("tokens"))
        if message.get("type") != "gemini" or not usage.prompt:
            yield Skip(FURTHER)
            continue
        # Gemini's input contains what was cached.
        event = Event(
            session=_text(message.get("sessionId")),
            model=_text(message.get("model")),
            usage=usage,
            time=message.get("timestamp"),
        )
        yield row_of(event, message)


def _read_opencode(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "tokens")
    messages = record.get("messages")
    for item in messages if isinstance(messages, list) else [record]:
        message = find(item, "info") or item
        tokens = message.get("tokens") if isinstance(message, dict) else None
        if not isinstance(tokens, dict):
            yield Skip(FURTHER)
            continue
        counts = {
            "input": tokens.get("input"),
            "output": tokens.get("output"),
            "cacheRead": find(tokens, "cache.read"),
            "cacheWrite": find(tokens, "cache.write"),
        }
        usage = usage_of(counts)
        if not usage.prompt:
            yield Skip(FURTHER)
            continue
        event = Event(
            session=_text(message.get("sessionID")),
            model=_text(message.get("modelID")),
            usage=usage,
            time=find(message, "time.created"),
        )
        yield row_of(event, message)


def _read_openhands(record: Any, values: Values) -> Iterator[Row | Skip]:
    events = record if isinstance(record, list) else record.get("history")
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    session = _text(find(record, "instance_id")) if isinstance(record, dict) else None
    yield row_of(Event(session=session, starts=True))
    times = {
        str(found): event.get("timestamp")
        for event in reversed(events)
        if (found := find(event, "tool_call_metadata.model_response.id")) is not None
    }
    usages = find(record, "metrics.token_usages")
    calls: list[tuple[Any, Any, Any]]
    if isinstance(usages, list):
        calls = [
            (item, item.get("response_id"), item.get("model")) for item in usages if isinstance(item, dict)
        ]
    else:
        responses = [find(event, "tool_call_metadata.model_response") for event in events]
        answers = [response for response in responses if isinstance(response, dict)]
        calls = [(answer.get("usage"), answer.get("id"), answer.get("model")) for answer in answers]
    seen: set[str] = set()
    for counts, identity, model in calls:
        usage: Usage = usage_of(counts)
        name = _text(identity)
        if not usage.prompt or (name is not None and name in seen):
            yield Skip(FURTHER)
            continue
        if name is not None:
            seen.add(name)
        yield row_of(Event(model=_text(model), usage=usage, time=times.get(name or "")))


def _text(value: Any) -> str | None:
    return value if type(value) is str and value else None


def _is_claude(record: Any) -> bool:
    if not isinstance(record, dict) or record.get("type") not in _CLAUDE_TYPES:
        return False
    return has(record, "sessionId") or has(record, "leafUuid")


def _is_codex(record: Any) -> bool:
    return has(record, "type", "payload") and record["type"] in _CODEX_TYPES


def _is_pi(record: Any) -> bool:
    return has(record, "type", "timestamp") and (
        (record["type"] == "session" and has(record, "id", "cwd"))
        or (record["type"] == "message" and has(record.get("message"), "role"))
    )


def _is_gemini(record: Any) -> bool:
    if has(record, "sessionId", "projectHash"):
        return True
    return has(record, "type", "tokens") and record["type"] == "gemini"


def _is_opencode(record: Any) -> bool:
    message = find(record, "messages.0.info") if isinstance(record, dict) else None
    return any(has(item, "sessionID", "role") for item in (record, message))


def _is_openhands(record: Any) -> bool:
    if isinstance(record, list):
        return len(record) > 0 and all(
            has(event, "source") and ("action" in event or "observation" in event) for event in record[:20]
        )
    return has(record, "history", "metrics") and isinstance(find(record, "metrics.token_usages"), list)


def _agent(name: str, summary: str, matches: Any, read: Any) -> Dialect:
    return Dialect(
        name=name,
        summary=f"{summary}, by the usage of their calls",
        kind="token_ids",
        matches=matches,
        read=read,
        sequencer=Streams,
    )


AGENTS: Final[tuple[Dialect, ...]] = (
    _agent("claude-code", "Claude Code transcripts (projects/*.jsonl)", _is_claude, _read_claude),
    _agent("codex", "Codex rollouts (rollout-*.jsonl)", _is_codex, _read_codex),
    _agent("gemini-cli", "Gemini CLI sessions (chats/session-*.json)", _is_gemini, _read_gemini),
    _agent("opencode", "OpenCode messages and exports", _is_opencode, _read_opencode),
    _agent("openhands", "OpenHands trajectories and evaluation outputs", _is_openhands, _read_openhands),
    _agent("pi", "pi sessions", _is_pi, _read_pi),
)

"""The same session of an agent as each of them writes it down: two calls, and what each used."""

from __future__ import annotations

from typing import Any

CALLS = ((1000, 600, 50), (1200, 1040, 30))
"""Tokens of the prompt, those read from a cache, those generated."""
TIMES = ("2026-01-01T10:00:00Z", "2026-01-01T10:01:00Z")


def anthropic_usage(prompt: int, cached: int, output: int) -> dict[str, int]:
    return {
        "input_tokens": 3,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": prompt - cached - 3,
        "output_tokens": output,
    }


def claude(uuid: str, parent: str | None, call: tuple[int, int, int] | None, **more: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "type": "user" if call is None else "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s",
        "timestamp": TIMES[0], "message": {"role": "user", "content": "x"},
    }  # fmt: skip
    if call is not None:
        record["message"] = {"id": f"msg_{uuid[0]}", "model": "m", "usage": anthropic_usage(*call)}
    return {**record, **more}


def codex(number: int) -> dict[str, Any]:
    prompt, cached, output = CALLS[number]
    usage = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output}
    total = {"input_tokens": sum(call[0] for call in CALLS[: number + 1])}
    info = {"last_token_usage": usage, "total_token_usage": total}
    return {"timestamp": TIMES[number], "type": "event_msg", "payload": {"type": "token_count", "info": info}}


def pi(number: int) -> dict[str, Any]:
    prompt, cached, output = CALLS[number]
    usage = {"input": 3, "output": output, "cacheRead": cached, "cacheWrite": prompt - cached - 3}
    message = {"role": "assistant", "model": "m", "usage": usage}
    return {"type": "message", "timestamp": TIMES[number], "message": message}


def gemini(number: int) -> dict[str, Any]:
    prompt, cached, output = CALLS[number]
    tokens = {"input": prompt, "cached": cached, "output": output, "thoughts": 9}
    return {"type": "gemini", "timestamp": TIMES[number], "model": "m", "tokens": tokens}


def opencode(number: int) -> dict[str, Any]:
    prompt, cached, output = CALLS[number]
    tokens = {"input": 3, "output": output, "cache": {"read": cached, "write": prompt - cached - 3}}
    created = 1_767_261_600_000 + 60_000 * number
    return {"id": f"msg{number}", "sessionID": "s", "role": "assistant", "modelID": "m", "tokens": tokens,
            "time": {"created": created}}  # fmt: skip


def openhands(number: int) -> dict[str, Any]:
    prompt, cached, output = CALLS[number]
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    response = {"id": f"r{number}", "model": "m", "usage": usage}
    return {"source": "agent", "action": "run", "timestamp": TIMES[number],
            "tool_call_metadata": {"model_response": response}}  # fmt: skip


def openhands_output() -> dict[str, Any]:
    usages = [
        {"model": "m", "prompt_tokens": prompt, "completion_tokens": output, "cache_read_tokens": cached,
         "response_id": f"r{number}"}
        for number, (prompt, cached, output) in enumerate(CALLS)
    ]  # fmt: skip
    return {"instance_id": "s", "history": [openhands(0), openhands(1)], "metrics": {"token_usages": usages}}


TRANSCRIPTS: dict[str, list[Any]] = {
    "claude-code": [
        {"type": "summary", "summary": "x", "leafUuid": "u"},
        claude("a0", None, None), claude("b0", "a0", (1000, 600, 1)), claude("b1", "b0", CALLS[0]),
        claude("c0", "b1", None), claude("d0", "c0", CALLS[1], timestamp=TIMES[1]),
    ],
    "codex": [
        {"timestamp": TIMES[0], "type": "session_meta", "payload": {"id": "s"}},
        {"timestamp": TIMES[0], "type": "turn_context", "payload": {"model": "m"}},
        codex(0), codex(0), {"timestamp": TIMES[0], "type": "response_item", "payload": {"type": "message"}},
        codex(0), codex(1),
    ],
    "pi": [{"type": "session", "id": "s", "cwd": "/x", "timestamp": TIMES[0]}, pi(0), pi(1)],
    "gemini-cli": [
        {"sessionId": "s", "projectHash": "h", "messages": [{"type": "user"}, gemini(0), gemini(1)]},
    ],
    "opencode": [opencode(0), {"id": "u", "sessionID": "s", "role": "user"}, opencode(1)],
    "openhands": [openhands_output()],
}  # fmt: skip

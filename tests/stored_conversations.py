"""The same stored conversation in every kind that holds one."""

from __future__ import annotations

from typing import Any

TALK = [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
PLAIN = [{"role": role, "content": text} for role, text in TALK]
SAID = {"system": "system", "user": "human", "assistant": "gpt"}
AI = {"system": "system", "user": "user", "assistant": "ai"}
RECORDS: dict[str, Any] = {
    "sharegpt": {"id": "s", "model": "m", "system": "S", "conversations": [
        {"from": SAID[role], "value": text} for role, text in TALK[1:]]},
    "chat-conversations": {"conversation_hash": "s", "model": "m", "conversation": PLAIN},
    "swe-agent": {"trajectory": [], "history": PLAIN, "info": {}, "replay_config": {
        "problem_statement": {"id": "s"}, "agent": {"model": {"name": "m"}}}},
    "swe-trajectories": {"instance_id": "s", "model_name": "m", "trajectory": [
        {"role": AI[role], "text": None if role == "system" else text,
         "system_prompt": text if role == "system" else None} for role, text in TALK]},
    "mini-swe-agent": {"trajectory_format": "mini-swe-agent-1", "instance_id": "s", "messages": PLAIN,
                       "info": {"config": {"model": {"model_name": "m"}}}},
    "atif": {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"model_name": "m"}, "steps": [
        {"source": "agent" if role == "assistant" else role, "message": text} for role, text in TALK]},
    "openai-requests": {"messages": PLAIN, "id": "s", "model": "m"},
}  # fmt: skip

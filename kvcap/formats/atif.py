"""Trajectories of Harbor and terminal-bench (ATIF): steps, of which those of the agent are calls of a model.

::

    {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"model_name": "m", "tool_definitions": []},
     "steps": [{"source": "user", "message": "hi"}, {"source": "agent", "message": "Hello", "metrics": {
         "prompt_tokens": 450, "cached_tokens": 384, "prompt_token_ids": [1, 2]}}]}

Where the metrics of all steps hold the token ids of their prompts, these are read and no tokenizer is needed;
otherwise a step's prompt is all that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kvcap.formats.bodies.turns import Json
from kvcap.formats.bodies.usage import Usage, usage_of
from kvcap.formats.conversations import read_turns
from kvcap.formats.dialect import Dialect
from kvcap.formats.paths import find
from kvcap.formats.rows import FieldError, Row, Skip, Values, an_object, inside, show

_SOURCES: Final = {"system": "system", "user": "user", "agent": "assistant"}


def _read_atif(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "steps")
    messages: list[Json] = []
    usages: list[Usage] = []
    for index, step in enumerate(_steps(record)):
        with inside(f"steps[{index}]"):
            added = _step_messages(step)
        usages.extend([usage_of(step.get("metrics")), *(Usage() for _ in added[1:])])
        messages.extend(added)
    model = find(record, "agent.model_name")
    yield from read_turns(
        messages,
        tools=find(record, "agent.tool_definitions"),
        session=_text(record.get("session_id")),
        model=_text(model),
        usages=usages,
    )


def _step_messages(step: Json) -> list[Json]:
    role = _SOURCES.get(str(step.get("source")))
    if role is None:
        raise FieldError("source", f"is {show(step.get('source'))}, expected system, user or agent")
    content = step.get("message")
    message = {"role": role, "content": content, "timestamp": step.get("timestamp")}
    for name in ("tool_calls", "reasoning_content"):
        if step.get(name):
            message[name] = step[name]
    results = find(step, "observation.results")
    answers = [
        {
            "role": "tool",
            "tool_call_id": find(result, "source_call_id"),
            "content": find(result, "content") or "",
        }
        for result in (results if isinstance(results, list) else ())
    ]
    return [message, *answers]


def _read_atif_ids(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "steps")
    for index, step in enumerate(_steps(record)):
        if step.get("source") != "agent":
            yield Skip("steps that are no call of a model")
            continue
        with inside(f"steps[{index}].metrics"):
            metrics = an_object(step.get("metrics"), "prompt_token_ids")
            usage = usage_of(metrics)
            generated = metrics.get("completion_token_ids")
            row = Row(
                ids=values.tokens(metrics.get("prompt_token_ids"), "prompt_token_ids"),
                output_ids=None if generated is None else values.tokens(generated, "completion_token_ids"),
                timestamp=step.get("timestamp"),
                session=_text(record.get("session_id")),
                model=_text(step.get("model_name")) or _text(find(record, "agent.model_name")),
                output_length=usage.output,
                observed_cached_tokens=usage.cached,
                record=step,
            )
        yield row


def _steps(record: Json) -> list[Json]:
    steps = record.get("steps")
    if type(steps) is not list or not all(type(step) is dict for step in steps):
        raise FieldError("steps", f"is {show(steps)}, expected a list of objects")
    return steps


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _is_atif(record: Any, *, with_ids: bool) -> bool:
    if (
        not isinstance(record, dict)
        or find(record, "steps.0.source") is None
        or "schema_version" not in record
    ):
        return False
    steps = record["steps"]
    agents = [step for step in steps if isinstance(step, dict) and step.get("source") == "agent"]
    has_ids = bool(agents) and all(isinstance(find(s, "metrics.prompt_token_ids"), list) for s in agents)
    return has_ids == with_ids


ATIF: Final = Dialect(
    name="atif",
    summary="Harbor's ATIF trajectories: steps (needs a tokenizer)",
    kind="request_json",
    matches=partial(_is_atif, with_ids=False),
    read=_read_atif,
    read_turns=_read_atif,
)

ATIF_IDS: Final = Dialect(
    name="atif-token-ids",
    summary="Harbor's ATIF trajectories with prompt_token_ids in their metrics",
    kind="token_ids",
    matches=partial(_is_atif, with_ids=True),
    read=_read_atif_ids,
)

r"""OpenTelemetry spans of generative AI, as the collector's file exporter has them (OTLP JSON).

::

    {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "1730000000000000000", "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.input.messages", "value": {"stringValue": "[{\"role\": \"user\", ...}]"}}]}]}]}]}

A line holds many spans, written when they end, so requests are put in the order of their start. Attributes
are those that :mod:`~kvcap.formats.otel_attributes` knows: OpenTelemetry's own, OpenInference's and older
OpenLLMetry's. They hold messages only where content capture is on
(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT). Spans of other things are left out. Log records with the
same attributes are read as spans are. Phoenix exports a span a row, its attributes as columns; Exgentic keeps
the spans of a session together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kvcap.formats.bodies.turns import Json
from kvcap.formats.dialect import Dialect, has
from kvcap.formats.otel_attributes import (
    MESSAGES,
    body_of,
    counts_of,
    model_of,
    reason_to_skip,
    session_of,
)
from kvcap.formats.paths import each
from kvcap.formats.rows import (
    FieldError,
    Row,
    Skip,
    Values,
    an_object,
    inner_list,
    inside,
    optional_text,
    show,
)
from kvcap.formats.text_rows import microseconds_between, text_row

_SINGLE_MESSAGES: Final = (
    "events of single messages, which no request can be made of: capture gen_ai.input.messages on spans "
    "(OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental)"
)
_LAYERS: Final = {
    "resourceSpans": ("scopeSpans", "spans", "startTimeUnixNano"),
    "resourceLogs": ("scopeLogs", "logRecords", "timeUnixNano"),
}


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "resourceSpans")
    outer = next((name for name in _LAYERS if name in record), "resourceSpans")
    middle, inner, time = _LAYERS[outer]
    n_spans = 0
    for i, resource in enumerate(inner_list(record, outer)):
        with inside(f"{outer}[{i}]"):
            scopes = inner_list(an_object(resource, middle), middle)
        for j, scope in enumerate(scopes):
            path = f"{outer}[{i}].{middle}[{j}]"
            with inside(path):
                spans = inner_list(an_object(scope, inner), inner)
            for k, span in enumerate(spans):
                n_spans += 1
                with inside(f"{path}.{inner}[{k}]"):
                    item = _span(an_object(span, "attributes"), time)
                yield item
    if n_spans == 0:
        yield Skip("lines without a span")


def _span(span: Json, time: str) -> Row | Skip:
    attributes = _attributes(span.get("attributes") or [])
    if time != "startTimeUnixNano" and MESSAGES not in attributes:
        name = str(span.get("eventName") or attributes.get("event.name") or "")
        return Skip(_SINGLE_MESSAGES if name.startswith("gen_ai.") else "log records of other things")
    skip = reason_to_skip(attributes)
    if skip is not None:
        return Skip(skip)
    begin = _nanoseconds(span, time)
    return _row(attributes, begin, span.get("endTimeUnixNano"))


def _row(attributes: Json, begin: Any, end: Any, unit: Any = "ns") -> Row:
    return text_row(
        body_of(attributes),
        counts_of(attributes),
        timestamp=begin,
        session=session_of(attributes),
        model=model_of(attributes),
        duration_us=microseconds_between(begin, end, unit),
        record=attributes,
    )


def _attributes(entries: Any) -> Json:
    if type(entries) is not list:
        raise FieldError("attributes", f"is {show(entries)}, expected a list")
    return {
        entry["key"]: _value(entry.get("value"))
        for entry in entries
        if has(entry, "key") and type(entry["key"]) is str
    }


def _value(value: Any, depth: int = 0) -> Any:
    """Return an OTLP value (``stringValue``, ``intValue``, ``arrayValue`` ...) as a plain one."""
    if type(value) is not dict or len(value) != 1 or depth > 50:
        return None
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return (
            int(inner)
            if type(inner) is int or (type(inner) is str and inner.lstrip("-").isdecimal())
            else None
        )
    if kind == "arrayValue" and isinstance(inner, dict):
        return [_value(item, depth + 1) for item in _entries(inner)]
    if kind == "kvlistValue" and isinstance(inner, dict):
        return {
            item["key"]: _value(item.get("value"), depth + 1)
            for item in _entries(inner)
            if has(item, "key") and type(item["key"]) is str
        }
    return inner


def _entries(inner: Json) -> list[Any]:
    values = inner.get("values")
    return values if type(values) is list else []


def _nanoseconds(span: Json, field: str) -> Any:
    """Return the start in nanoseconds as an exact number, whatever unit other numbers have."""
    value = span.get(field)
    if type(value) not in (int, str):
        raise FieldError(field, f"is {show(value)}, expected nanoseconds")
    return value


_COLUMN: Final = "attributes."


def _read_phoenix(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "attributes.llm.input_messages")
    attributes = {name[len(_COLUMN) :]: record[name] for name in record if name.startswith(_COLUMN)}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    attributes.setdefault("openinference.span.kind", record.get("span_kind"))
    skip = reason_to_skip(attributes)
    if skip is not None:
        yield Skip(skip)
        return
    row = _row(attributes, record.get("start_time"), record.get("end_time"), "s")
    row.session = row.session or optional_text(record, "session_id")
    yield row


def _read_exgentic(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "spans")
    for where, scopes in each(record, "spans[]"):
        with inside(where):
            span = an_object(scopes[0], "attributes")
            attributes = an_object(span.get("attributes"), MESSAGES)
            skip = None if span.get("type") == "llm_call" else f"spans of type {show(span.get('type'))}"
            row = None if skip else _row(attributes, span.get("start_time"), span.get("end_time"), "s")
        if row is None:
            yield Skip(skip or "")
            continue
        row.session = row.session or optional_text(record, "session_id")
        yield row


OTEL: Final = Dialect(
    name="otel",
    summary="OpenTelemetry, OpenInference and OpenLLMetry spans with content, OTLP JSON (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "resourceSpans") or has(record, "resourceLogs"),
    read=_read,
    timestamp_unit="ns",
    by_time=True,
)

PHOENIX: Final = Dialect(
    name="phoenix",
    summary="Phoenix spans, a row each with attributes as columns (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "span_kind") and any(name.startswith(_COLUMN) for name in record),
    read=_read_phoenix,
    timestamp_unit="s",
)

EXGENTIC: Final = Dialect(
    name="exgentic",
    summary="Exgentic sessions: spans of llm_call (needs a tokenizer)",
    kind="request_json",
    matches=lambda record: has(record, "harness", "spans") and isinstance(record["spans"], list),
    read=_read_exgentic,
    timestamp_unit="s",
)

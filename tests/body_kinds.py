"""One hand-made log of each kind that holds bodies at a path, with what a request of it comes to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CHAT = {"model": "m", "messages": [SYSTEM, USER], "tools": [TOOL]}
ANTHROPIC = {
    "model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "Be kind."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
}  # fmt: skip
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be kind."}]},
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [
        {"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "object"}}]}
    ],
}
CONVERSE = {
    "system": [{"text": "Be kind."}], "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    "toolConfig": {"tools": [
        {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}}]},
}  # fmt: skip
OPENAI_USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}
NOON = "2026-01-01T12:00:00Z"
NOON_S = 1_767_268_800


@dataclass(frozen=True)
class Kind:
    """A record of one kind of log, and the columns of its first request.

    Times are seconds after noon; ``durations`` are queue, ttft and duration in milliseconds.
    """

    name: str
    record: Any
    session: str | None = None
    model: str | None = "m"
    seconds: float | None = 0
    counts: tuple[int | None, int | None, int | None] = (None, None, None)
    durations: tuple[float | None, float | None, float | None] = (None, None, None)
    tools: bool = True
    skipped: int = 0
    more: dict[str, Any] = field(default_factory=dict)


KINDS = (
    Kind(
        "openhands-completions",
        {**CHAT, "tools": None, "kwargs": {"tools": [TOOL]}, "args": [], "timestamp": NOON_S + 0.5,
         "response": {"model": "served", "usage": OPENAI_USAGE}},
        model="served", seconds=0.5, counts=(20, 0, 7),
    ),
    Kind(
        "bedrock",
        {"schemaType": "ModelInvocationLog", "timestamp": NOON, "modelId": "m", "operation": "InvokeModel",
         "identity": {"arn": "arn:app"}, "requestMetadata": {"session_id": "s"},
         "input": {"inputBodyJson": ANTHROPIC, "inputTokenCount": 3, "cacheReadInputTokenCount": 15,
                   "cacheWriteInputTokenCount": 2},
         "output": {"outputTokenCount": 7}},
        session="s", counts=(20, 15, 7),
    ),
    Kind(
        "bedrock",
        {"schemaType": "ModelInvocationLog", "timestamp": NOON, "modelId": "m", "operation": "Converse",
         "input": {"inputBodyJson": CONVERSE, "inputTokenCount": 20}, "output": {"outputTokenCount": 7}},
        counts=(20, None, 7),
    ),
    Kind("anthropic-batch", {"custom_id": "r", "params": ANTHROPIC}, seconds=None),
    Kind("anthropic-batches", {"requests": [{"custom_id": "r", "params": ANTHROPIC}]}, seconds=None),
    Kind(
        "request-body",
        {"request": {"timestamp": NOON_S, "url": "https://x/v1/messages?beta=true", "body": ANTHROPIC},
         "response": {"timestamp": NOON_S + 2.5, "status_code": 200, "body_raw":
             'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 2, '
             '"cache_read_input_tokens": 15, "cache_creation_input_tokens": 3, "output_tokens": 1}}}\n\n'
             'event: message_delta\ndata: {"type": "message_delta", "usage": {"output_tokens": 7}}\n'}},
        counts=(20, 15, 7), durations=(None, None, 2500),
    ),
    Kind(
        "request-body",
        {"created_at": NOON, "trace_id": "s", "request": {"url": "/v1/chat/completions", "body": CHAT},
         "response": {"status": 200, "responseTime": 900, "body": {"usage": OPENAI_USAGE}}},
        session="s", counts=(20, 0, 7), durations=(None, None, 900),
    ),
    Kind(
        "helicone",
        {"request_id": "r", "request_created_at": NOON, "request_body": CHAT, "response_status": 200,
         "request_path": "/v1/chat/completions", "request_model": "named", "prompt_tokens": 20,
         "completion_tokens": 7, "properties": {"Helicone-Session-Id": "s"}, "delay_ms": 900,
         "time_to_first_token": 300, "response_body": {"usage": OPENAI_USAGE}},
        session="s", model="named", counts=(20, 0, 7), durations=(None, 300, 900),
    ),
    Kind(
        "databricks",
        {"databricks_request_id": "r", "timestamp_ms": NOON_S * 1000, "status_code": 200,
         "request": json.dumps(CHAT), "response": json.dumps({"usage": OPENAI_USAGE}),
         "execution_time_ms": 300, "request_metadata": {"model_name": "named"}},
        model="named", counts=(20, 0, 7), durations=(None, None, 300),
    ),
    Kind(
        "vertex-logging",
        {"logging_time": NOON, "model": "gemini", "full_request": GEMINI, "full_response": {"usageMetadata": {
            "promptTokenCount": 20, "candidatesTokenCount": 4, "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 12}}},
        model="gemini", counts=(20, 12, 7),
    ),
    Kind("gemini-batch", {"key": "r", "request": GEMINI}, model=None, seconds=None),
    Kind(
        "azure-apim",
        {"TimeGenerated": NOON, "CorrelationId": "c", "SequenceNumber": 1, "DeploymentName": "m",
         "RequestMessages": json.dumps([SYSTEM, USER])},
        tools=False,
    ),
    Kind(
        "weave",
        {"op_name": "weave:///x", "started_at": NOON, "ended_at": "2026-01-01T12:00:01Z", "thread_id": "s",
         "inputs": {"self": {}, **CHAT}, "output": {"usage": OPENAI_USAGE}},
        session="s", counts=(20, 0, 7), durations=(None, None, 1000),
    ),
    Kind(
        "langsmith",
        {"run_type": "llm", "start_time": "2026-01-01T12:00:00", "end_time": None, "prompt_tokens": 20,
         "completion_tokens": 7, "prompt_token_details": {"cache_read": 15},
         "inputs": {"messages": [[
             {"id": ["langchain", "SystemMessage"], "kwargs": {"content": "Be kind.", "type": "system"}},
             {"id": ["langchain", "HumanMessage"], "kwargs": {"content": "hi", "type": "human"}}]]},
         "extra": {"invocation_params": {"model": "m", "tools": [TOOL]}, "metadata": {"thread_id": "s"}}},
        session="s", counts=(20, 15, 7),
    ),
    Kind(
        "langfuse",
        {"traceId": "t", "sessionId": "s", "type": "GENERATION", "startTime": "2026-01-01T12:00:00.000Z",
         "completionStartTime": "2026-01-01T12:00:00.250Z", "endTime": "2026-01-01T12:00:00.900Z",
         "providedModelName": "m", "input": {"messages": [SYSTEM, USER], "tools": [TOOL]},
         "usageDetails": {"input": 5, "input_cached_tokens": 15, "output": 7, "total": 27}},
        session="s", counts=(20, 15, 7), durations=(None, 250, 900),
    ),
    Kind(
        "langfuse-trace",
        {"trace": {"id": "t", "sessionId": "s"}, "observations": [
            {"type": "GENERATION", "traceId": "t", "startTime": NOON, "model": "m",
             "input": [SYSTEM, USER, {"role": "tool", "content": TOOL}],
             "usageDetails": {"input": 5, "input_cache_read": 15, "output": 7}},
            {"type": "SPAN", "traceId": "t", "startTime": NOON}]},
        session="s", counts=(20, 15, 7), skipped=1,
    ),
    Kind(
        "mlflow",
        {"info": {"trace_id": "t", "trace_metadata": {"mlflow.trace.session": "s"}}, "data": {"spans": [
            {"start_time_unix_nano": NOON_S * 10**9, "end_time_unix_nano": NOON_S * 10**9 + 900_000_000,
             "attributes": {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps(CHAT),
                            "mlflow.chat.tokenUsage": json.dumps(
                                {"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 15})}},
            {"attributes": {"mlflow.spanType": '"CHAIN"'}}]}},
        session="s", counts=(20, 15, 7), durations=(None, None, 900), skipped=1,
    ),
    Kind(
        "braintrust",
        {"span_attributes": {"type": "llm"}, "input": [SYSTEM, USER], "root_span_id": "s",
         "metadata": {"model": "m", "tools": [TOOL]}, "metrics": {"start": NOON_S, "end": NOON_S + 1,
         "prompt_tokens": 20, "prompt_cached_tokens": 0, "completion_tokens": 7}},
        session="s", counts=(20, 0, 7), durations=(None, None, 1000),
    ),
    Kind(
        "openpipe",
        {"requestedAt": NOON, "receivedAt": "2026-01-01T12:00:01Z", "reqPayload": CHAT, "statusCode": 200,
         "respPayload": {"usage": OPENAI_USAGE}},
        counts=(20, 0, 7), durations=(None, None, 1000),
    ),
    Kind(
        "inference-perf",
        {"start_time": 100.5, "end_time": 101.5, "request": json.dumps(CHAT), "response": "{}",
         "info": {"input_tokens": 20, "output_tokens": 7}, "error": None},
        seconds=100.5 - NOON_S, counts=(20, None, 7), durations=(None, None, 1000),
    ),
    Kind(
        "har",
        {"log": {"entries": [
            {"startedDateTime": NOON, "time": 900, "request": {"url": "https://x/v1/chat/completions?a=1",
             "postData": {"text": json.dumps(CHAT)}},
             "response": {"status": 200, "content": {"text": json.dumps({"usage": OPENAI_USAGE})}}},
            {"startedDateTime": NOON, "request": {"url": "https://x/index.html"}},
        ]}},
        counts=(20, 0, 7), durations=(None, None, 900), skipped=1,
    ),
    Kind("aiperf-payload", {"timestamp": NOON_S * 1000, "session_id": "s", "payload": CHAT}, session="s"),
    Kind("aiperf-inputs", {"data": [{"session_id": "s", "payloads": [CHAT]}]}, session="s", seconds=None),
    Kind("genai-perf-inputs", {"data": [{"payload": [CHAT]}]}, seconds=None),
    Kind(
        "request-json",
        {"timestamp": NOON_S, "status": 200, "session_id": "s", "request_json": json.dumps(CHAT),
         "response_json": json.dumps({"usage": OPENAI_USAGE})},
        session="s", counts=(20, 0, 7),
    ),
    Kind(
        "inspect",
        {"samples": [{"events": [
            {"event": "model", "timestamp": NOON, "model": "m", "input": [SYSTEM, USER], "working_time": 1.5,
             "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
             "output": {"usage": {"input_tokens": 5, "input_tokens_cache_read": 15, "output_tokens": 7}}},
            {"event": "tool"}]}]},
        counts=(20, 15, 7), durations=(None, None, 1500), skipped=1,
    ),
    Kind("openai-batch", {"custom_id": "r", "url": "/v1/chat/completions", "body": CHAT}, seconds=None),
    Kind(
        "sagemaker",
        {"captureData": {"endpointInput": {"data": json.dumps(CHAT), "encoding": "JSON"},
                         "endpointOutput": {"data": json.dumps({"usage": OPENAI_USAGE})}},
         "eventMetadata": {"inferenceTime": NOON}},
        counts=(20, 0, 7),
    ),
    Kind(
        "litellm",
        {"call_type": "acompletion", "status": "success", "startTime": NOON_S, "endTime": NOON_S + 2,
         "completionStartTime": NOON_S + 0.5, "trace_id": "s", "model": "m", "messages": [SYSTEM, USER],
         "model_parameters": {"tools": [TOOL]}, "prompt_tokens": 20, "completion_tokens": 7,
         "metadata": {"usage_object": {"cache_read_input_tokens": 15}}, "model_id": "deployment"},
        session="s", counts=(20, 15, 7), durations=(None, 500, 2000), more={"instance": "deployment"},
    ),
    Kind(
        "litellm",
        {"call_type": "anthropic_messages", "startTime": NOON, "session_id": "s", "model": "m",
         "messages": "{}", "cache_hit": "False", "proxy_server_request": json.dumps(ANTHROPIC)},
        session="s",
    ),
    Kind(
        "litellm",
        {"call_type": "pass_through_endpoint", "startTime": NOON, "model": "m", "messages": {},
         "proxy_server_request": {"body": CHAT}},
    ),
    Kind("openai-requests", {**CHAT, "timestamp": NOON_S, "session_id": "s", "usage": OPENAI_USAGE},
         session="s", counts=(20, 0, 7)),
    Kind("openai-requests", {**ANTHROPIC, "metadata": {"user_id": "user_1_account_2_session_s"}},
         session="s", seconds=None),
    Kind("openai-requests", GEMINI, model=None, seconds=None),
    Kind("openai-requests", {"modelId": "x", **CONVERSE}, model=None, seconds=None),
    Kind(
        "phoenix",
        {"span_kind": "LLM", "start_time": "2026-01-01T12:00:00+00:00",
         "end_time": "2026-01-01T12:00:01+00:00",
         "attributes.llm.model_name": "m", "attributes.session.id": "s",
         "attributes.llm.input_messages": [{"message.role": "system", "message.content": "Be kind."},
                                           {"message.role": "user", "message.content": "hi"}],
         "attributes.llm.tools": [{"tool.json_schema": json.dumps(TOOL)}],
         "attributes.llm.token_count.prompt": 20, "attributes.llm.token_count.completion": 7,
         "attributes.llm.token_count.prompt_details.cache_read": 15},
        session="s", counts=(20, 15, 7), durations=(None, None, 1000),
    ),
    Kind(
        "exgentic",
        {"session_id": "s", "harness": "h", "spans": [
            {"type": "llm_call", "start_time": NOON, "end_time": "2026-01-01T12:00:01Z", "attributes": {
                "gen_ai.request.model": "m", "gen_ai.tool.definitions": [TOOL],
                "gen_ai.input.messages": json.dumps([
                    {"role": role, "parts": [{"type": "text", "content": text}]}
                    for role, text in (("system", "Be kind."), ("user", "hi"))]),
                "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 7}},
            {"type": "tool_call", "attributes": {}}]},
        session="s", counts=(20, None, 7), durations=(None, None, 1000), skipped=1,
    ),
)  # fmt: skip
"""Each is the same request: a system message, ``hi`` and one tool."""

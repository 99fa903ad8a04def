"""Every kind of log that holds bodies says the same prompt, and all that it knows beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from body_kinds import ANTHROPIC, CHAT, KINDS, NOON_S, SYSTEM, TOOL, USER, Kind
from reading import read_log, write_log

from kvcap.errors import EmptyTraceError, RecordError
from kvcap.formats.preset_table import PRESETS


def log(tmp_path: Path, *records: Any) -> Path:
    return write_log(tmp_path / "log", *(json.dumps(record) for record in records))


def row(path: Path, **options: Any) -> dict[str, Any]:
    table, _ = read_log(path, **options)
    found: dict[str, Any] = table.to_pylist()[0]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=[f"{kind.name}-{i}" for i, kind in enumerate(KINDS)])
def test_a_kind_is_recognized_and_read_whole(kind: Kind, tmp_path: Path) -> None:
    table, report = read_log(log(tmp_path, kind.record))
    (found,) = table.to_pylist()
    assert report.format_name == kind.name
    assert sum(report.skipped.values()) == kind.skipped
    body = json.loads(found["request_json"])
    assert body["messages"] == [SYSTEM, USER]
    assert (body.get("tools") or []) == ([TOOL] if kind.tools else [])
    assert (found["session_id"], found["model"]) == (kind.session, kind.model)
    counts = (found["input_length"], found["observed_cached_tokens"], found["output_length"])
    assert counts == kind.counts
    durations = tuple(found[name] for name in ("queue_us", "ttft_us", "duration_us"))
    assert durations == tuple(None if ms is None else ms * 1000 for ms in kind.durations)
    time = table["timestamp"].cast("int64")[0].as_py()
    assert time == (None if kind.seconds is None else round((NOON_S + kind.seconds) * 1e6))
    assert {name: found[name] for name in kind.more} == kind.more


def test_every_preset_has_a_kind() -> None:
    names = {kind.name for kind in KINDS}
    assert {preset.name for preset in PRESETS} - {"aibrix", "verl"} <= names


@pytest.mark.parametrize("kind", KINDS, ids=[f"{kind.name}-{i}" for i, kind in enumerate(KINDS)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("redacted-by-litellm", "was replaced by the logger"),
        ("default-message-value", "was replaced by the logger"),
        ("[REDACTED_TEXT len=13131]", "was replaced by the logger"),
        ("__REDACTED__", "was replaced by the logger"),
        ("<truncated due to size exceeding limit>", "was replaced by the logger"),
        ("...", "was cut by the logger"),
        ("a (litellm_truncated skipped 9000 chars. Safeguard.) b", "was cut by LiteLLM"),
    ],
)
def test_a_text_that_the_logger_cut_or_replaced_is_refused_in_every_kind(
    kind: Kind, text: str, message: str, tmp_path: Path
) -> None:
    record = json.loads(json.dumps(kind.record).replace("Be kind.", text))
    with pytest.raises(RecordError, match=rf"log:1: .*{message}.*, expected .*: "):
        read_log(log(tmp_path, record))


def test_texts_that_speak_of_redaction_are_texts(tmp_path: Path) -> None:
    texts = ["What does [REDACTED] mean?", "redacted", "litellm_truncated", "wait ...", "(redacted) or not"]
    path = log(tmp_path, *({"messages": [{"role": "user", "content": text}]} for text in texts))
    assert read_log(path)[0].num_rows == len(texts)


def test_calls_that_never_reached_an_engine_are_left_out_of_litellm(tmp_path: Path) -> None:
    base = {"startTime": NOON_S, "model": "m", "messages": [USER], "call_type": "acompletion"}
    path = log(
        tmp_path,
        base,
        {**base, "cache_hit": True},
        {**base, "cache_hit": "True"},
        {**base, "cache_hit": "None"},
        {**base, "call_type": "aembedding"},
        {
            **base,
            "call_type": "pass_through_endpoint",
            "messages": {},
            "proxy_server_request": {"input_x": 1},
        },
        {**base, "call_type": "anthropic_messages"},
        {**base, "call_type": ""},
    )
    table, report = read_log(path)
    assert table.num_rows == 4
    assert report.skipped == {
        "calls that LiteLLM answered from its own cache, which never reached an engine": 2,
        "calls of type aembedding, which generate nothing": 1,
        "calls of type pass_through_endpoint without a prompt": 1,
    }


@pytest.mark.parametrize("messages", [{}, "{}", None, "", []])
def test_litellm_records_without_messages_are_refused_with_the_setting(messages: Any, tmp_path: Path) -> None:
    record = {"call_type": "acompletion", "startTime": 1, "messages": messages, "proxy_server_request": "{}"}
    with pytest.raises(RecordError, match=r"log:1: messages .* Set store_prompts_in_spend_logs"):
        read_log(log(tmp_path, record))


def test_billing_headers_are_taken_out_said_and_counted(tmp_path: Path) -> None:
    header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=5f1;"}
    bodies = [{**ANTHROPIC, "system": [header, *ANTHROPIC["system"]]} for _ in range(2)]  # type: ignore[misc]
    table, report = read_log(log(tmp_path, *bodies, ANTHROPIC))
    assert len(set(table["request_json"].to_pylist())) == 1
    assert any(notice.startswith("2 requests hold a billing header") for notice in report.notices)


def test_a_session_of_deltas_is_whole_prompts_without_the_answers(tmp_path: Path) -> None:
    first = {"session_id": "s", "messages": [SYSTEM, USER], "tools": [TOOL], "timestamp": 1000}
    more = {"session_id": "s", "messages": [{"role": "user", "content": "more"}], "delay": 500}
    other = {"session_id": "o", "messages": [USER], "timestamp": 0}
    path = log(tmp_path, *({**r, "message_mode": "delta"} for r in (first, more)), other)
    table, report = read_log(path)
    joined = json.loads(table["request_json"][1].as_py())
    assert joined["messages"] == [SYSTEM, USER, *more["messages"]]
    assert joined["tools"] == [TOOL]
    assert table["timestamp"].cast("int64").to_pylist() == [1_000_000, 1_500_000, 0]
    assert any(notice.startswith("1 requests hold earlier turns") for notice in report.notices)
    plain = log(tmp_path, first, more, other)
    assert [len(json.loads(text)["messages"]) for text in read_log(plain)[0]["request_json"].to_pylist()] == [
        2,
        1,
        1,
    ]
    forced, _ = read_log(plain, session_mode="delta")
    assert [len(json.loads(text)["messages"]) for text in forced["request_json"].to_pylist()] == [2, 3, 1]


def test_bodies_of_other_endpoints_and_failures_are_left_out(tmp_path: Path) -> None:
    def call(**changes: Any) -> dict[str, Any]:
        base = {"request_created_at": NOON_S, "request_body": CHAT, "request_path": "/v1/chat/completions"}
        return {**base, **changes}

    path = log(
        tmp_path,
        call(),
        call(response_status=500),
        call(request_path="/v1/embeddings", request_body={"input": "x"}),
    )
    table, report = read_log(path)
    assert table.num_rows == 1
    assert report.skipped == {
        "calls that failed": 1,
        "requests to /v1/embeddings, which generate nothing": 1,
    }


def test_a_body_that_was_cut_in_the_middle_is_no_text(tmp_path: Path) -> None:
    record = {"databricks_request_id": "r", "request": json.dumps(CHAT)[:-9]}
    with pytest.raises(RecordError, match=r"log:1: request is .*, expected a JSON object .*: was it cut"):
        read_log(log(tmp_path, record))
    langfuse = {"traceId": "t", "type": "GENERATION", "startTime": NOON_S, "input": '{"messages": [{"ro'}
    with pytest.raises(RecordError, match=r"log:1: input is .*: was it cut"):
        read_log(log(tmp_path, langfuse))


def test_events_of_single_messages_are_refused_with_what_to_log(tmp_path: Path) -> None:
    record = {"resourceLogs": [{"scopeLogs": [{"logRecords": [
        {"timeUnixNano": "1", "eventName": "gen_ai.user.message", "attributes": []}]}]}]}  # fmt: skip
    with pytest.raises(
        EmptyTraceError, match=r"1 events of single messages, .*capture gen_ai.input.messages"
    ):
        read_log(log(tmp_path, record))


def messages(path: Path, **options: Any) -> list[list[str]]:
    table, _ = read_log(path, **options)
    return [
        [message["content"] for message in json.loads(text)["messages"]]
        for text in table["request_json"].to_pylist()
    ]


def test_turns_of_aiperf_add_to_their_session_and_forks_begin_with_it(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        {
            "session_id": "s",
            "turns": [{"text": "a", "timestamp": 5}, {"text": "b", "delay": 2, "forks": ["c"]}],
        },
        {"session_id": "o", "turns": [{"texts": ["x"]}]},
        {"session_id": "c", "turns": [{"messages": [{"role": "user", "content": "d"}]}]},
    )
    assert messages(path) == [["a"], ["a", "b"], ["x"], ["a", "b", "d"]]
    table, report = read_log(path)
    assert table["timestamp"].cast("int64").to_pylist() == [5000, 7000, None, None]
    assert any(notice.startswith("2 requests hold earlier turns") for notice in report.notices)


def test_single_turns_of_aiperf_are_user_messages(tmp_path: Path) -> None:
    path = log(
        tmp_path, {"text": "a"}, {"type": "random_pool", "texts": ["b"]}, {"text": "c", "output_length": 3}
    )
    assert messages(path) == [["a"], ["b"], ["c"]]
    with pytest.raises(RecordError, match=r"log:2: image is there, expected text alone"):
        read_log(log(tmp_path, {"text": "a"}, {"text": "a", "image": "x.png"}))


def test_hashes_of_baseten_need_no_tokenizer(tmp_path: Path) -> None:
    record = {
        "timestamp_start_unix_ms": NOON_S * 1000, "prompt": "p", "input_tokens": 300, "output_tokens": 7,
        "total_hashes": [1, 2, 3], "block_size": 128, "provided_session_id": "s", "model_name": "m",
        "cached_tokens_reference": 256,
    }  # fmt: skip
    found = row(log(tmp_path, record))
    assert (found["hash_ids"], found["block_size"], found["input_length"]) == ([1, 2, 3], 128, 300)
    assert (found["session_id"], found["model"], found["observed_cached_tokens"]) == ("s", "m", 256)


def test_inputs_of_verl_are_rendered_prompts(tmp_path: Path) -> None:
    assert json.loads(
        row(log(tmp_path, {"input": "user\nhi", "output": "x", "score": 1.0}))["request_json"]
    ) == {"prompt": "user\nhi"}


VLLM_LINE = (
    "INFO 03-12 11:16:50 logger.py:39] Received request chatcmpl-9: prompt: {}, params: SamplingParams(n=1), "
    "prompt_token_ids: {}, lora_request: {}, prompt_adapter_request: None."
)


def test_vllm_lines_without_ids_are_rendered_prompts(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "log",
        VLLM_LINE.format("'it\\'s\\n\\u00e9, params: SamplingParams('", "None", "None"),
        VLLM_LINE.format('"it\'s"', "None", "LoRARequest(lora_name='a', lora_int_id=1)"),
        "INFO 03-12 11:16:50 engine.py:280] Added request chatcmpl-9.",
        VLLM_LINE.format("'x'", "[1, 2]", "None"),
    )
    table, report = read_log(path)
    bodies = [json.loads(text) for text in table["request_json"].to_pylist()]
    assert [body["prompt"] for body in bodies] == ["it's\né, params: SamplingParams(", "it's", [1, 2]]
    assert not any(body["add_special_tokens"] for body in bodies)
    assert table["namespace"].to_pylist() == [None, "adapter=a", None]
    assert report.format_name == "vllm-text"

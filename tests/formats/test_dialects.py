"""Every dialect on a hand-made sample: what it means as requests, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from reading import id_of, read_log, write_log
from shared_data import shared_path

from kvcap.errors import RecordError, UnknownFormatError, UsageError
from kvcap.formats.registry import DIALECTS


def rows(path: Path, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    """Return columns of a log's requests; times in whole microseconds."""
    table, _ = read_log(path, **options)
    values = {
        name: table[name].cast("int64").to_pylist() if name == "timestamp" else table[name].to_pylist()
        for name in columns
    }
    return list(zip(*values.values(), strict=True))


def log(tmp_path: Path, *records: Any) -> Path:
    return write_log(
        tmp_path / "log", *(record if isinstance(record, str) else json.dumps(record) for record in records)
    )


USER = {"role": "user", "content": "hi"}


def bodies(path: Path, **options: Any) -> list[Any]:
    return [json.loads(text) for (text,) in rows(path, "request_json", **options)]


def test_mooncake_rows_without_ids_are_bad_records(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        {"timestamp": 0, "input_length": 9, "output_length": 1},
        {"timestamp": 7, "input_length": 600, "output_length": 1, "hash_ids": [4, 5]},
    )
    with pytest.raises(RecordError, match="log:1: hash_ids is missing, expected a list of ids: without them"):
        read_log(path, block_size=512)
    assert rows(path, "timestamp", "hash_ids", block_size=512, skip_bad=1) == [(7000, [4, 5])]
    assert rows(path, "block_size", skip_bad=1) == [(512,)]


def session(key: str, **row: Any) -> dict[str, Any]:
    return {"session_id": key, "output_length": 6, **row}


CUMULATIVE = (
    session("a", timestamp=1000, input_length=10, hash_ids=[1, 2, 3]),
    session("b", timestamp=1200, input_length=4, hash_ids=[1]),
    session("a", delay_ms=50, input_length=18, hash_ids=[1, 2, 4, 5, 6]),
)
DELTA = (
    session("a", timestamp=1000, input_length=10, hash_ids=[1, 2, 3], group_id=0),
    session("b", timestamp=1200, input_length=4, hash_ids=[1], group_id=0),
    session("a", delay=50.5, input_length=5, hash_ids=[7, 8]),
    session("a", delay=1, input_length=2, hash_ids=[9]),
)


def test_cumulative_sessions_are_whole_prompts_with_derived_times(tmp_path: Path) -> None:
    found = rows(log(tmp_path, *CUMULATIVE), "timestamp", "input_length", "hash_ids", block_size=4)
    assert found == [
        (1_000_000, 10, [1, 2, 3]),
        (1_200_000, 4, [1]),
        (1_050_000, 18, [1, 2, 4, 5, 6]),
    ]


def test_delta_sessions_are_joined_with_all_earlier_inputs_and_outputs(tmp_path: Path) -> None:
    out = [2**63 | id_of(f"\0output a {n}") for n in range(4)]
    found = rows(log(tmp_path, *DELTA), "timestamp", "input_length", "hash_ids", "block_tokens", block_size=4)
    assert found == [
        (1_000_000, 10, [1, 2, 3], [4, 4, 2]),
        (1_200_000, 4, [1], [4]),
        (1_050_500, 21, [1, 2, 3, *out[:2], 7, 8], [4, 4, 2, 4, 2, 4, 1]),
        (1_051_500, 29, [1, 2, 3, *out[:2], 7, 8, *out[2:], 9], [4, 4, 2, 4, 2, 4, 1, 4, 2, 2]),
    ]


@pytest.mark.parametrize(
    "records",
    [
        [CUMULATIVE[0], session("a", delay_ms=50, input_length=8, hash_ids=[7, 8])],
        [CUMULATIVE[0], session("a", delay=50, input_length=18, hash_ids=[1, 2, 3, 4, 5])],
        [CUMULATIVE[0], session("a", delay=50, group_id=1, input_length=18, hash_ids=[1, 2, 3, 4, 5])],
        [DELTA[0], session("a", delay_ms=50, input_length=8, hash_ids=[7, 8])],
    ],
    ids=["cumulative-that-starts-anew", "delta-that-repeats", "grouped-that-repeats", "mixed-spelling"],
)
def test_sessions_that_can_mean_two_things_are_asked_for(tmp_path: Path, records: list[Any]) -> None:
    path = log(tmp_path, *records)
    with pytest.raises(UsageError, match=r"line 2: .* --session-mode cumulative or --session-mode delta"):
        read_log(path, block_size=4, skip_bad=9)
    last = records[1]
    assert rows(path, "hash_ids", block_size=4, session_mode="cumulative")[1] == (last["hash_ids"],)
    (joined,) = rows(path, "hash_ids", block_size=4, session_mode="delta")[1]
    assert joined[:3] == [1, 2, 3]
    assert joined[5:] == last["hash_ids"]


def test_delta_sessions_of_string_ids_are_joined_too(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        session("a", timestamp=0, input_length=4, hash_ids=["x"]),
        session("a", delay=1, group_id=1, input_length=4, hash_ids=["y"]),
    )
    x, output, y = map(id_of, ("x", "\0output a 0", "y"))
    assert rows(path, "hash_ids", block_size=8) == [([x],), ([x, output, y],)]


def test_ids_of_outputs_never_meet_ids_of_the_log(tmp_path: Path) -> None:
    path = log(tmp_path, *DELTA[:3], session("c", timestamp=9, input_length=4, hash_ids=[2**63 + 1]))
    with pytest.raises(RecordError, match="log:4: hash_ids holds an id below 0 or from 2\\*\\*63 on"):
        read_log(path, block_size=4)


def test_a_session_row_in_a_log_of_whole_prompts_is_no_plain_row(tmp_path: Path) -> None:
    path = log(tmp_path, *CUMULATIVE)
    with pytest.raises(RecordError, match=r"log:3: delay_ms is there, .* --input-format mooncake-sessions"):
        read_log(path, block_size=4, input_format="hash-ids")


def test_agentic_rows_start_after_what_they_wait_for(tmp_path: Path) -> None:
    base = {"input_length": 4, "output_length": 1, "hash_ids": [1]}
    path = log(
        tmp_path,
        {"request_id": "r1", "timestamp": 10.0, **base},
        {"request_id": "r2", "wait_for": ["r1"], "delay": 1.5, "tool_wait_ms": 5, **base},
        {"request_id": "r3", "wait_for": ["r1", "r2"], "delay": 1, **base},
        {"request_id": "r4", "wait_for": ["r9"], "delay": 1, **base},
    )
    assert rows(path, "timestamp", block_size=4, skip_bad=1) == [(10_000,), (16_500,), (17_500,)]
    with pytest.raises(RecordError, match=r"log:4: wait_for\[0\] is 'r9', expected an earlier request_id"):
        read_log(path, block_size=4)


def test_qwen_bailian_counts_seconds_and_chains_chats(tmp_path: Path) -> None:
    base = {"input_length": 20, "output_length": 1, "type": "text", "turn": 1, "hash_ids": [5, 6]}
    path = log(
        tmp_path,
        {"chat_id": 3, "parent_chat_id": -1, "timestamp": 0.5, **base},
        {"chat_id": 4, "parent_chat_id": 3, "timestamp": 61.114, **base},
        {"chat_id": 9, "parent_chat_id": 4, "timestamp": 62, **base},
    )
    assert rows(path, "timestamp", "session_id", "block_size", block_size=16) == [
        (500_000, "3", 16), (61_114_000, "3", 16), (62_000_000, "3", 16),
    ]  # fmt: skip
    assert rows(path, "block_size") == [(16,)] * 3


SESSION_DOCUMENT = {
    "id": "trace_1", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 150, "out": 20, "hash_ids": [1, 2]},
        {"t": 3.0, "type": "subagent", "agent_id": "a", "requests": [
            {"t": 0.5, "type": "n", "model": "s", "in": 130, "out": 5, "hash_ids": [900, 901]},
            {"t": 1.0, "type": "subagent", "agent_id": "b", "requests": [
                {"t": 6.0, "type": "n", "model": "s", "in": 64, "out": 5, "hash_ids": [900]}]},
        ]},
        {"t": 9.0, "type": "s", "model": "m", "in": 200, "out": 20, "hash_ids": [1, 2, 3]},
    ],
}  # fmt: skip


def test_kv_cache_tester_sessions_have_their_own_ids_and_nested_times(tmp_path: Path) -> None:
    path = log(tmp_path, SESSION_DOCUMENT, {**SESSION_DOCUMENT, "id": "trace_2"})
    first = [
        (0, "trace_1", "m", 150, [1, 2]),
        (3_500_000, "trace_1", "s", 130, [900, 901]),
        (9_000_000, "trace_1", "m", 200, [1, 2, 3]),
        (10_000_000, "trace_1", "s", 64, [900]),
    ]
    second = [(t, "trace_2", m, n, [2**32 + i for i in ids]) for t, _, m, n, ids in first]
    columns = ("timestamp", "session_id", "model", "input_length", "hash_ids")
    assert rows(path, *columns) == first + second
    assert rows(path, *columns, sort_by_time=True)[:2] == [first[0], second[0]]
    shared = log(tmp_path, *({**SESSION_DOCUMENT, "hash_id_scope": "global"} for _ in range(2)))
    assert rows(shared, "hash_ids")[4] == ([1, 2],)


def test_kv_cache_tester_documents_may_be_files_over_many_lines(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(SESSION_DOCUMENT, indent=2))
    table, report = read_log(tmp_path)
    assert table["hash_ids"].to_pylist()[4] == [2**32 + 1, 2**32 + 2]
    assert any("--sort-by-time" in notice for notice in report.notices)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": 5}, "requests is 5, expected a list"),
        ({"requests": [7]}, r"requests\[0\] is 7, expected an object"),
        ({"requests": [{"t": -1, "in": 4, "hash_ids": [1]}]}, r"requests\[0\].t is -1, expected"),
        ({"requests": [{"t": 0, "hash_ids": [1]}]}, r"requests\[0\].in is missing"),
        ({"requests": [{"t": 0, "requests": [{"in": 4}]}]}, r"requests\[0\].requests\[0\].hash_ids"),
        ({"requests": [{"t": 0, "in": 4, "hash_ids": [2**32]}]}, r"hash_ids holds an id from 2\*\*32 on"),
        ({"hash_id_scope": "x"}, "hash_id_scope is 'x', expected local or global"),
    ],
)  # fmt: skip
def test_a_bad_session_document_says_where(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=f"log:2: {message}"):
        read_log(log(tmp_path, SESSION_DOCUMENT, {**SESSION_DOCUMENT, **change}))


def test_subagents_nested_without_end_are_refused(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"t": 0, "in": 1, "hash_ids": [1]}
    for _ in range(40):
        inner = {"t": 0, "requests": [inner]}
    with pytest.raises(RecordError, match="is nested more than 20 deep"):
        read_log(log(tmp_path, {"block_size": 4, "requests": [inner]}))


def test_minimal_sessions_have_full_blocks(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        {"requests": [{"timestamp": 0, "hash_ids": [1, 2]}, {"timestamp": 3, "hash_ids": [1, 2, 3]}]},
        {"requests": []},
        {"requests": [{"timestamp": 1, "hash_ids": []}]},
    )
    assert rows(path, "timestamp", "input_length", "hash_ids", block_size=16) == [
        (0, 32, [1, 2]), (3_000_000, 48, [1, 2, 3]), (1_000_000, 0, []),
    ]  # fmt: skip


def dynamo(received: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    replay = {"trace_block_size": 64, "input_length": 64 * len(hashes), "input_sequence_hashes": hashes}
    request = {"request_id": "r", "request_received_ms": received, "output_tokens": 16, "replay": replay}
    return {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request, **more}


def test_dynamo_requests_come_in_the_order_received(tmp_path: Path) -> None:
    now = 1_777_312_800_000
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "tool": {}}
    path = log(tmp_path, tool, dynamo(now + 5, [2**64 - 1]), dynamo(now, [2**63 + 5, 7], session_id="s"))
    table, report = read_log(path)
    assert table["hash_ids"].to_pylist() == [[2**63 + 5, 7], [2**64 - 1]]
    assert table["session_id"].to_pylist() == ["s", None]
    assert report.skipped == {"rows of tools": 1}
    assert report.backward_timestamps == 0
    bad = dynamo(now, [1])
    del bad["request"]["replay"]["input_length"]
    with pytest.raises(RecordError, match=r"request\.replay\.input_length is missing"):
        read_log(log(tmp_path, bad))


def test_lmcache_lookups_are_pools_of_models(tmp_path: Path) -> None:
    base = {"timestamp": 1711929600.123, "chunk_size": 256, "seq_len": 600, "shapes": [[32, 256, 128]]}
    path = log(
        tmp_path,
        {**base, "model_name": "m", "chunk_hashes": ["0xab12", "0x0a78"]},
        {**base, "model_name": "n", "chunk_hashes": ["0xab12"], "tenant": "t"},
    )
    assert rows(path, "model", "pool", "hash_ids", "input_length", "block_size") == [
        ("m", "m", [id_of("0xab12"), id_of("0x0a78")], 600, 256),
        ("n", "n", [id_of("0xab12")], 600, 256),
    ]
    path = log(tmp_path, *({**base, "model_name": "m", "chunk_hashes": [], "pod": pod} for pod in (1, 2)))
    assert rows(path, "pool", pool="pod") == [("1",), ("2",)]


def test_tair_keys_are_signed_and_writes_do_not_count(tmp_path: Path) -> None:
    keys = [7467810767593291063, -7262535415567954716]
    path = log(tmp_path, {"timestamp": 1780722022391.4038, "input_length": 500, "block_ids": keys})
    assert rows(path, "hash_ids", "timestamp", block_size=256) == [
        ([keys[0], keys[1] % 2**64], 1_780_722_022_391_404)
    ]
    event = {"source": "377", "trigger_time_us": 1763975741548745, "keys": keys}
    path = log(
        tmp_path,
        {**event, "type": "GetCacheLocation", "query_type": "prefix_match"},
        {**event, "type": "StartWriteCache"},
    )
    table, report = read_log(path, block_size=256)
    assert table["input_length"].to_pylist() == [512]
    assert sum(report.skipped.values()) == 1
    path = log(tmp_path, {"timestamp": 1.0, "input_length": 9, "input_block_hash_ids": ["0a", "0b"]})
    assert rows(path, "hash_ids", block_size=256) == [([id_of("0a"), id_of("0b")],)]


RAG_ROW = {
    "timestamp": "82", "input_length": 700, "output_length": 5, "session_id": "s",
    "hash_ids": {"sys_prompt": [8, 1], "passages_ids": [7, 7], "history": [], "user_input": [3]},
}  # fmt: skip


def test_ragpulse_parts_follow_each_other_and_side_files_weigh_them(tmp_path: Path) -> None:
    trace = log(tmp_path, RAG_ROW)
    assert rows(trace, "timestamp", "hash_ids", "block_tokens", block_size=256) == [
        (82_000_000, [8, 1, 7, 7, 3], None)
    ]
    sizes = {8: 100, 1: 20, 7: 250, 3: 60}
    side = write_log(
        tmp_path / "side", *(json.dumps({"passage_id": key, "token_length": n}) for key, n in sizes.items())
    )
    table, report = read_log([side, trace], block_size=256)
    assert table["block_tokens"].to_pylist() == [[100, 20, 250, 250, 60]]
    assert sum(report.skipped.values()) == 4
    with pytest.raises(RecordError, match="side:1: token_length comes after a request"):
        read_log([trace, side], block_size=256)
    with pytest.raises(RecordError, match="hash_ids holds 3, expected an id that a side file gives"):
        read_log([write_log(tmp_path / "side", '{"id": 8, "token_length": 9}', '{"id": 1, "token_length": 9}',
                            '{"id": 7, "token_length": 9}'), trace], block_size=256)  # fmt: skip


def sglang(event: str, rid: str | None, ids: Any, **more: Any) -> dict[str, Any]:
    obj = {"rid": rid, "text": None, "input_ids": ids}
    return {"timestamp": "2026-08-01T10:00:00.5", "event": f"request.{event}", "rid": rid, "obj": obj, **more}


CUT = [1, 2, "...", 3, 4]


def test_sglang_requests_count_once_each(tmp_path: Path) -> None:
    out = {"meta_info": {"completion_tokens": 2}}
    path = log(
        tmp_path,
        sglang("received", "a", [1, 2, 3]),
        sglang("finished", "a", CUT, out=out),
        sglang("finished", "b", [4], out=out),
        {"timestamp": "2026-08-01T10:00:02", "event": "request.received.openai", "obj": {"messages": []}},
        {"event": "server.started"},
        sglang("received", "a", [5]),
    )
    table, report = read_log(path)
    assert table["token_ids"].to_pylist() == [[1, 2, 3], [4], [5]]
    assert table["output_length"].to_pylist() == [2, 2, None]
    assert sum(report.skipped.values()) == 3


def test_sglang_lists_that_were_cut_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = log(tmp_path, sglang("received", "a", [1]), sglang("received", "b", CUT))
    with pytest.raises(
        RecordError, match=r"log:2: obj\.input_ids was cut by the server .*--log-requests-level 3"
    ):
        read_log(path)


def test_sglang_metrics_hold_their_request_in_a_string(tmp_path: Path) -> None:
    parameters = json.dumps({"rid": "r", "input_ids": [1, 2], "sampling_params": {}})
    path = log(tmp_path, {"request_parameters": parameters, "id": "r", "completion_tokens": 2})
    assert rows(path, "token_ids", "output_length") == [([1, 2], 2)]
    with pytest.raises(RecordError, match=r"log:2: request_parameters is '\{', expected a JSON object"):
        read_log(log(tmp_path, {"request_parameters": parameters}, {"request_parameters": "{"}))


def test_sglang_text_lines_are_parsed(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "[2025-08-04 11:51:40] server started",
        "[2025-08-04 11:51:41] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2], x={})",
        "[2025-08-04 11:51:41 TP0] Finish: obj=GenerateReqInput(rid='a', input_ids=[1, 2]), out={'text': ''}",
        "[2025-08-04 11:51:42] Receive: obj=GenerateReqInput(rid='b', text='input_ids=[9]', input_ids=[3])",
    )
    table, report = read_log(path)
    assert table["token_ids"].to_pylist() == [[1, 2], [3]]
    assert sum(report.skipped.values()) == 2
    path = log(tmp_path, "[2025-08-04 11:51:41] Receive: obj=GenerateReqInput(input_ids=[1, ..., 2])")
    with pytest.raises(RecordError, match="was cut by the server"):
        read_log(path)


def test_sglang_text_requests_go_on_to_tokenization(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello"}]
    path = log(
        tmp_path,
        {"event": "request.received.openai", "obj": {"model": "m", "messages": messages}},
        {"event": "request.received", "rid": "r", "obj": {"text": "hi there"}},
    )
    assert bodies(path) == [{"model": "m", "messages": messages}, {"prompt": "hi there"}]


SAYS = "half of it ... and the other half"


@pytest.mark.parametrize(
    "obj",
    [
        {"text": SAYS},
        {"messages": [{"role": "user", "content": SAYS}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": SAYS}]}]},
        {"messages": [{"role": "user", "content": "hi"}, "...", {"role": "user", "content": "ho"}]},
        {"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"description": SAYS}}]},
    ],
)
def test_sglang_texts_that_were_cut_anywhere_in_the_body_are_refused(tmp_path: Path, obj: Any) -> None:
    whole = {"event": "request.received", "rid": "a", "obj": {"text": "Wait... what? well...yes"}}
    assert bodies(log(tmp_path, whole)) == [{"prompt": "Wait... what? well...yes"}]
    with pytest.raises(RecordError, match=r"log:2: obj was cut by the server .*--log-requests-level 3"):
        bodies(log(tmp_path, whole, {"event": "request.received", "rid": "b", "obj": obj}))


def test_vllm_lines_with_token_ids_are_requests(tmp_path: Path) -> None:
    old = (
        "INFO 10-01 18:43:27 logger.py:36] Received request c-0: prompt: 'prompt_token_ids: [9]', params: "
        "SamplingParams(n=1), prompt_token_ids: [1, 2, 3], lora_request: None."
    )
    details = (
        "(APIServer pid=1) DEBUG 10-01 18:43:28 [logger.py:42] Request c-1 details: prompt: 'x', "
        "prompt_token_ids: [4], prompt_embeds shape: None."
    )
    received = "INFO 10-01 18:43:28 [logger.py:49] Received request {}: params: S(n=1), lora_request: None."
    path = log(tmp_path, "INFO 10-01 18:00:00 api_server.py:1] started", old, details, received.format("c-1"))
    table, report = read_log(path)
    assert table["token_ids"].to_pylist() == [[1, 2, 3], [4]]
    assert str(table["timestamp"][0].as_py()) == "2000-10-01 18:43:27"
    assert sum(report.skipped.values()) == 2
    with pytest.raises(RecordError, match=r"log:2: prompt_token_ids is missing, .*VLLM_LOGGING_LEVEL=DEBUG"):
        read_log(log(tmp_path, old, received.format("c-7")))


def test_openai_bodies_are_texts(tmp_path: Path) -> None:
    chat = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "session_id": "s",
        "output_length": 4,
    }
    path = log(tmp_path, chat, {"text_input": "Hello", "timestamp": 5}, {"model": "m", "prompt": [1, 2]})
    assert bodies(path) == [chat, {"prompt": "Hello", "timestamp": 5}, {"model": "m", "prompt": [1, 2]}]
    assert rows(path, "session_id", "output_length", "timestamp", "source_line") == [
        ("s", 4, None, 1), (None, None, 5000, 2), (None, None, None, 3),
    ]  # fmt: skip
    with pytest.raises(RecordError, match="log:2: has no prompt, expected messages"):
        read_log(log(tmp_path, chat, {"model": "m"}))


def test_batch_input_is_text_without_what_generates_nothing(tmp_path: Path) -> None:
    chat = {"model": "m", "messages": [USER]}
    path = log(
        tmp_path,
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": chat},
        {"custom_id": "2", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}},
        {"custom_id": "3", "method": "POST", "url": "/v1/responses", "body": {"input": "x"}},
    )
    assert bodies(path) == [chat, {"input": "x"}]


def test_litellm_calls_bring_their_tools_and_failures_are_left_out(tmp_path: Path) -> None:
    base = {"call_type": "acompletion", "startTime": 1730000000.1, "model": "m", "trace_id": "t"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    path = log(
        tmp_path,
        {
            **base,
            "status": "success",
            "messages": [USER],
            "model_parameters": {"tools": tools, "stream": True},
        },
        {**base, "status": "failure", "messages": [USER]},
        {**base, "call_type": "aembedding", "messages": [USER]},
        {**base, "messages": "plain"},
    )
    assert bodies(path) == [
        {"model": "m", "messages": [USER], "tools": tools}, {"model": "m", "prompt": "plain"},
    ]  # fmt: skip
    assert rows(path, "timestamp", "session_id")[0] == (1_730_000_000_100_000, "t")
    with pytest.raises(RecordError, match="message logging turned off"):
        read_log(log(tmp_path, {**base, "messages": [USER]}, {**base, "messages": None}))


@pytest.mark.parametrize("encoding", ["JSON", "BASE64"])
def test_sagemaker_captures_hold_the_body_in_a_string(tmp_path: Path, encoding: str) -> None:
    body = json.dumps({"messages": [USER], "model": "m"})
    data = base64.b64encode(body.encode()).decode() if encoding == "BASE64" else body
    capture = {"endpointInput": {"data": data, "encoding": encoding}}
    path = log(tmp_path, {"captureData": capture, "eventMetadata": {"inferenceTime": "2026-04-29T00:03:18Z"}})
    assert rows(path, "request_json", "timestamp", "model") == [
        ('{"messages":[{"role":"user","content":"hi"}],"model":"m"}', 1_777_420_998_000_000, "m")
    ]
    capture["endpointInput"]["data"] = "*"
    with pytest.raises(RecordError, match=r"log:1: captureData\.endpointInput\.data is "):
        read_log(log(tmp_path, {"captureData": capture}))


def test_aibrix_lines_hold_several_requests(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        {"timestamp": 6011, "requests": [
            {"Prompt Length": 3, "Output Length": 22, "prompt": "a"},
            {"prompt_length": 3, "output_length": 5, "prompt": "b", "session_id": 7}]},
        {"timestamp": 6012, "requests": []},
    )  # fmt: skip
    table, report = read_log(path)
    assert table["request_json"].to_pylist() == ['{"prompt":"a"}', '{"prompt":"b"}']
    assert table["output_length"].to_pylist() == [22, 5]
    assert table["session_id"].to_pylist() == [None, "7"]
    assert report.skipped == {"records without a request": 1}


def test_lmcache_agent_text_is_a_prompt(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        {"timestamp": 1760587801647311, "input": "user: Hi", "output": "Hello", "session_id": "22ff"},
        {"timestamp": 1760587801647310, "input": "", "output": "x", "session_id": "22ff"},
    )
    assert bodies(path) == [{"prompt": "user: Hi"}, {"prompt": ""}]
    assert read_log(path)[1].backward_timestamps == 1


def span(start: int, **attributes: Any) -> dict[str, Any]:
    def value(item: Any) -> dict[str, Any]:
        if isinstance(item, int):
            return {"intValue": str(item)}
        if isinstance(item, list):
            return {"arrayValue": {"values": [value(entry) for entry in item]}}
        if isinstance(item, dict):
            return {"kvlistValue": {"values": [{"key": k, "value": value(v)} for k, v in item.items()]}}
        return {"stringValue": item}

    entries = [
        {"key": f"gen_ai.{key.replace('__', '.')}", "value": value(item)} for key, item in attributes.items()
    ]
    return {"name": "chat m", "startTimeUnixNano": str(start), "attributes": entries}


def test_otel_spans_are_requests_in_the_order_of_their_start(tmp_path: Path) -> None:
    now = 1_730_000_000_000_000_000
    call = {"type": "tool_call", "id": "c", "name": "f", "arguments": {"x": 1}}
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "sunny"}]},
    ]
    spans = [
        span(now + 2000, operation__name="chat", request__model="m", input__messages=json.dumps(messages),
             system_instructions=json.dumps([{"type": "text", "content": "be kind"}]),
             tool__definitions=json.dumps([{"type": "function", "name": "f", "parameters": {}}]),
             conversation__id="k", usage__output_tokens=9),
        span(now, operation__name="chat", input__messages=messages[:1]),
        span(now, operation__name="execute_tool"),
        {"name": "GET /", "startTimeUnixNano": "1", "attributes": []},
    ]  # fmt: skip
    path = log(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    table, report = read_log(path)
    first, second = (json.loads(text) for text in table["request_json"].to_pylist())
    assert first["messages"] == [{"role": "user", "content": "hi"}]
    assert second == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]},
            {"role": "tool", "tool_call_id": "c", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    }  # fmt: skip
    assert table["session_id"].to_pylist() == [None, "k"]
    assert table["timestamp"].cast("int64").to_pylist() == [now // 1000, now // 1000 + 2]
    assert sum(report.skipped.values()) == 2
    path = log(
        tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [span(now, operation__name="chat")]}]}]}
    )
    with pytest.raises(
        RecordError, match=r"spans\[0\]\.gen_ai\.input\.messages is missing, .*content capture"
    ):
        read_log(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"ts": 1.0, "events": [{"type": "BlockStored", "block_hashes": [1]}]},
            "kv-events: KV events say what",
        ),
        ([1.0, [["BlockRemoved", [4291203], "GPU"]]], "kv-events: KV events say what"),
        ({"id": "b", "custom_id": "r", "response": {"body": {}}}, "Batch output file holds the answers"),
        ({"timestamp": 0, "input_length": 512, "output_length": 1}, "records with lengths alone"),
        ({"session_id": "x", "input_tokens_total": 3, "prefix_tokens": 2}, "records with lengths alone"),
    ],
)
def test_what_cannot_drive_a_replay_hears_why(tmp_path: Path, record: Any, message: str) -> None:
    path = log(tmp_path, record)
    with pytest.raises(UnknownFormatError, match=message):
        read_log(path)
    name = next(dialect.name for dialect in DIALECTS if dialect.refusal and dialect.matches(record))
    with pytest.raises(UnknownFormatError, match=message):
        read_log(path, input_format=name)


SAMPLES = {
    "agentic_mooncake.jsonl": ("mooncake-agentic", 2),
    "aibrix_workload.jsonl": ("aibrix", 2),
    "dynamo_request_trace_v1.jsonl": ("dynamo", 1),
    "litellm_standard_logging_payload.jsonl": ("litellm", 1),
    "lmcache_agent_text.jsonl": ("lmcache-text", 1),
    "lmcache_lookup_hashes.jsonl": ("lmcache-lookups", 1),
    "minimal_sessions.jsonl": ("minimal-sessions", 2),
    "mooncake_no_hash.jsonl": ("mooncake", 1),
    "mooncake_session_cumulative.jsonl": ("mooncake-sessions", 2),
    "mooncake_session_delta.jsonl": ("mooncake-sessions", 2),
    "openai_batch.jsonl": ("openai-batch", 3),
    "openai_batch_output.jsonl": ("openai-batch-output", None),
    "qwen_bailian.jsonl": ("qwen-bailian", 1),
    "ragpulse.jsonl": ("ragpulse", 1),
    "sagemaker_data_capture.jsonl": ("sagemaker", 1),
    "sglang_export_metrics.log": ("sglang", 1),
    "sglang_log_requests_json.jsonl": ("sglang", 1),
    "string_hash_ids.jsonl": ("hash-ids", 1),
    "tair_block_ids.jsonl": ("tair", 1),
    "tair_publisher.log": ("tair-events", 1),
    "tair_timeline.jsonl": ("tair", 1),
    "tracelab_round.jsonl": ("lengths", None),
    "vllm_kv_events_map.jsonl": ("kv-events", None),
    "vllm_log_requests.log": ("vllm", 1),
    "weka_session.jsonl": ("kv-cache-tester", 3),
}


@pytest.mark.parametrize(("name", "expected"), SAMPLES.items(), ids=SAMPLES)
def test_samples_of_the_field_are_recognized(name: str, expected: tuple[str, int | None]) -> None:
    path = shared_path(f"traces/formats/{name}")
    dialect, n_requests = expected
    if n_requests is None:
        with pytest.raises(UnknownFormatError, match=f": {dialect}: "):
            read_log(path)
        return
    table, report = read_log(path, block_size=512, skip_bad=3)
    assert (report.format_name, table.num_rows) == (dialect, n_requests)
    named, _ = read_log(path, block_size=512, skip_bad=3, input_format=dialect)
    assert named.equals(table)


def test_all_samples_of_the_field_are_covered() -> None:
    assert {path.name for path in shared_path("traces/formats").iterdir()} == set(SAMPLES)


def test_names_of_dialects_are_different() -> None:
    names = [dialect.name for dialect in DIALECTS]
    assert len(set(names)) == len(names)


def otel_body(tmp_path: Path, attributes: dict[str, Any]) -> dict[str, Any]:
    entries = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    spans = [{"startTimeUnixNano": "1", "attributes": entries}]
    (body,) = bodies(log(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    found: dict[str, Any] = body
    return found


def test_every_part_of_an_otel_message_counts(tmp_path: Path) -> None:
    messages = [
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"},
                                        {"type": "tool_call", "id": "a", "name": "f", "arguments": "{}"}]},
        {"role": "user", "parts": [
            {"type": "tool_call_response", "id": "a", "response": "rainy 11"},
            {"type": "tool_call_response", "id": "b", "response": {"t": 22}},
            {"type": "text", "content": "and now?"},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA"}]},
    ]  # fmt: skip
    found = otel_body(tmp_path, {"gen_ai.input.messages": json.dumps(messages)})["messages"]
    assert found[0]["reasoning"] == "hm"
    assert [message["role"] for message in found] == ["assistant", "tool", "tool", "user"]
    assert [message["content"] for message in found[1:3]] == ["rainy 11", '{"t":22}']
    assert found[3]["content"][0] == {"type": "text", "text": "and now?"}
    assert found[3]["content"][1]["type"] == "image"


def test_an_unknown_part_of_an_otel_message_is_refused(tmp_path: Path) -> None:
    messages = [{"role": "user", "parts": [{"type": "hologram"}]}]
    with pytest.raises(RecordError, match=r"messages\[0\].parts\[0\].type is 'hologram', expected text"):
        otel_body(tmp_path, {"gen_ai.input.messages": json.dumps(messages)})


def test_openinference_attributes_are_a_request(tmp_path: Path) -> None:
    call = "llm.input_messages.1.message.tool_calls.0.tool_call"
    body = otel_body(
        tmp_path,
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "m",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": "hi",
            "llm.input_messages.1.message.role": "assistant",
            f"{call}.id": "c",
            f"{call}.function.name": "f",
            f"{call}.function.arguments": "{}",
            "llm.input_messages.2.message.role": "tool",
            "llm.input_messages.2.message.content": "4",
            "llm.input_messages.2.message.tool_call_id": "c",
            "llm.tools.0.tool.json_schema": '{"name": "f", "input_schema": {}}',
        },
    )
    assert body == {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "4", "tool_call_id": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    }  # fmt: skip


def test_older_openllmetry_attributes_are_a_request_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    attributes = {f"gen_ai.prompt.{n}.{key}": value for n in range(11) for key, value in (
        ("role", "user"), ("content", str(n)))}  # fmt: skip
    attributes |= {
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.name": "f",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"x": 1}',
        "llm.request.functions.0.name": "f",
        "llm.request.functions.0.parameters": '{"type": "object"}',
    }
    body = otel_body(tmp_path, attributes)
    assert [message["content"] for message in body["messages"]] == [str(n) for n in range(11)]
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}
    assert body["tools"][0]["function"] == {"name": "f", "parameters": {"type": "object"}}
    completion = {
        "llm.request.type": "completion",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "x",
    }
    assert otel_body(tmp_path, completion)["prompt"] == "x"

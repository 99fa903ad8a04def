"""Stored conversations are a request per assistant turn, or one: as the user says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from body_kinds import ANTHROPIC, CHAT, TOOL
from reading import read_log, write_log
from stored_conversations import PLAIN, RECORDS

from kvcap.errors import EmptyTraceError, RecordError, UsageError


def log(tmp_path: Path, *records: Any) -> Path:
    return write_log(tmp_path / "log", *(json.dumps(record) for record in records))


def prompts(table: Any) -> list[list[str]]:
    return [
        [message["content"] for message in json.loads(text)["messages"]]
        for text in table["request_json"].to_pylist()
    ]


@pytest.mark.parametrize("name", RECORDS)
def test_each_assistant_turn_is_a_request_of_all_before_it(name: str, tmp_path: Path) -> None:
    table, report = read_log(log(tmp_path, RECORDS[name]), conversations="turns")
    assert report.format_name == name
    assert prompts(table) == [["S", "a"], ["S", "a", "b", "c"]]
    assert table["session_id"].to_pylist() == ["s", "s"]
    assert table["model"].to_pylist() == ["m", "m"]
    notices = " ".join(report.notices)
    assert "1 records are conversations, of which each assistant turn is a request" in notices
    assert "1 records end with an assistant turn" in notices


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "openai-requests"])
def test_a_kind_that_stores_conversations_is_read_so_unless_whole_is_asked_for(
    name: str, tmp_path: Path
) -> None:
    path = log(tmp_path, RECORDS[name])
    assert len(prompts(read_log(path)[0])) == 2
    if name != "atif":
        table, report = read_log(path, conversations="whole")
        assert prompts(table) == [["S", "a", "b", "c", "d"]]
        assert any("1 records end with an assistant turn" in notice for notice in report.notices)


def test_bodies_that_end_with_an_assistant_turn_are_asked_about(tmp_path: Path) -> None:
    path = log(tmp_path, CHAT, RECORDS["openai-requests"])
    with pytest.raises(UsageError, match=r"line 2: .* --conversations turns .* or --conversations whole"):
        read_log(path, skip_bad=9)
    table, report = read_log(path, conversations="whole")
    assert [len(prompt) for prompt in prompts(table)] == [2, 5]
    assert any(notice == "1 records end with an assistant turn" for notice in report.notices)
    turns, report = read_log(path, conversations="turns")
    assert [len(prompt) for prompt in prompts(turns)] == [2, 4]
    assert report.skipped == {"conversations without an assistant turn": 1}


@pytest.mark.parametrize("more", [{"max_tokens": 3}, {"stream": True}, {"continue_final_message": True}])
def test_a_request_that_goes_on_with_its_last_turn_is_one(more: dict[str, Any], tmp_path: Path) -> None:
    assert read_log(log(tmp_path, {**RECORDS["openai-requests"], **more}))[0].num_rows == 1


def test_a_list_of_messages_is_a_conversation(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    for indent in (None, 2):
        path.write_text(json.dumps(PLAIN, indent=indent))
        table, report = read_log(path)
        assert (report.format_name, len(prompts(table))) == ("message-list", 2)


def test_blocks_tools_times_and_counts_of_a_turn_are_its_request(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "4"}
    record = {"trajectory": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [call], "timestamp": 5},
        {"role": "user", "content": [answer]},
        {"role": "assistant", "content": "b", "extra": {"response": {"usage": usage}}, "timestamp": 9},
    ], "tools": json.dumps([TOOL])}  # fmt: skip
    table, _ = read_log(log(tmp_path, record), timestamp_unit="s")
    last = json.loads(table["request_json"][1].as_py())
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "tool"]
    assert last["tools"] == [TOOL]
    row = table.to_pylist()[1]
    assert (row["input_length"], row["observed_cached_tokens"], row["output_length"]) == (20, 16, 7)
    assert table["timestamp"].cast("int64").to_pylist() == [5_000_000, 9_000_000]


def test_steps_of_atif_have_calls_and_what_came_of_them(tmp_path: Path) -> None:
    record = {"schema_version": "ATIF-v1.6", "agent": {"tool_definitions": [TOOL]}, "steps": [
        {"source": "user", "message": "a"},
        {"source": "agent", "message": "", "tool_calls": [
            {"tool_call_id": "t", "function_name": "f", "arguments": {"x": 1}}],
         "observation": {"results": [{"source_call_id": "t", "content": "4"}]},
         "metrics": {"prompt_tokens": 3, "cached_tokens": 0}},
        {"source": "agent", "message": "b", "metrics": {"prompt_tokens": 20, "cached_tokens": 16}},
    ]}  # fmt: skip
    table, _ = read_log(log(tmp_path, record))
    last = json.loads(table["request_json"][1].as_py())
    assert last["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert last["messages"][2] == {"role": "tool", "content": "4", "tool_call_id": "t"}
    assert last["tools"] == [TOOL]
    assert table["observed_cached_tokens"].to_pylist() == [0, 16]


def test_steps_of_atif_with_token_ids_need_no_tokenizer(tmp_path: Path) -> None:
    record = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"model_name": "m"}, "steps": [
        {"source": "user", "message": "a"},
        {"source": "agent", "message": "b", "metrics": {
            "prompt_tokens": 3, "cached_tokens": 2, "prompt_token_ids": [1, 2, 3],
            "completion_token_ids": [4]}},
    ]}  # fmt: skip
    table, report = read_log(log(tmp_path, record))
    row = table.to_pylist()[0]
    assert (report.format_name, row["token_ids"], row["output_ids"]) == ("atif-token-ids", [1, 2, 3], [4])
    assert (row["observed_cached_tokens"], row["session_id"], row["model"]) == (2, "s", "m")
    assert sum(report.skipped.values()) == 1


def test_logs_of_requests_are_no_conversations(tmp_path: Path) -> None:
    path = log(tmp_path, {"custom_id": "r", "params": ANTHROPIC})
    with pytest.raises(UsageError, match="--conversations turns is no reading of anthropic-batch logs"):
        read_log(path, conversations="turns")


def test_conversations_without_an_answer_hold_no_request(tmp_path: Path) -> None:
    with pytest.raises(EmptyTraceError, match="1 conversations without an assistant turn"):
        read_log(log(tmp_path, {"conversation": PLAIN[:2]}))
    with pytest.raises(RecordError, match=r"log:1: messages\[0\].role is 3, expected a string"):
        read_log(log(tmp_path, {"conversation": [{"role": 3, "content": "x"}]}))

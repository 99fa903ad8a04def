"""Damaged logs of every dialect: an answer or one clear error, and every record accounted for."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from body_kinds import KINDS, USER
from hypothesis import given
from hypothesis import strategies as st
from stored_conversations import PLAIN, RECORDS
from transcript_calls import TRANSCRIPTS

from kvcap.errors import KvcapError
from kvcap.formats import ReadOptions, log_trace, open_trace
from kvcap.formats.records import read_chunk
from kvcap.formats.registry import DIALECTS

TOKENS = {"input_ids": [1, 2, 3], "timestamp": 5, "output_ids": [4], "session_id": "s"}
HASHES = {"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1, 2, 3]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SAMPLES: dict[str, list[Any]] = {
    "token-ids": [[1, 2, 3], TOKENS],
    "hash-ids": [{**HASHES, "block_size": 4, "block_tokens": [4, 4, 1], "model": "m"}],
    "mooncake": [HASHES, {**HASHES, "hash_ids": [1, 2, 9]}],
    "mooncake-sessions": [
        {**HASHES, "session_id": "s", "group_id": 1},
        {"session_id": "s", "delay": 3.5, "input_length": 5, "output_length": 2, "hash_ids": [7, 8]},
    ],
    "mooncake-agentic": [
        {**HASHES, "request_id": "a"},
        {"request_id": "b", "wait_for": ["a"], "delay": 1, "input_length": 3, "hash_ids": [1]},
    ],
    "qwen-bailian": [{**HASHES, "chat_id": 1, "parent_chat_id": -1, "turn": 1}],
    "ragpulse": [
        {"passage_id": 3, "token_length": 5},
        {"timestamp": "8", "input_length": 9,
         "hash_ids": {"sys_prompt": [3], "history": [], "user_input": [3, 3]}},
    ],
    "kv-cache-tester": [
        {"id": "t", "block_size": 4, "hash_id_scope": "local", "requests": [
            {"t": 0.5, "type": "n", "in": 9, "out": 2, "hash_ids": [1, 2]},
            {"t": 1, "type": "subagent", "requests": [{"t": 0, "in": 4, "out": 1, "hash_ids": [3]}]}]}
    ],
    "minimal-sessions": [{"requests": [{"timestamp": 0, "hash_ids": [1, 2]}]}],
    "dynamo": [
        {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {
            "request_received_ms": 1777312800000, "output_tokens": 1,
            "replay": {"trace_block_size": 4, "input_length": 9, "input_sequence_hashes": [2**63 + 5, 7]}}},
    ],
    "lmcache-lookups": [
        {"timestamp": 1.5, "model_name": "m", "chunk_size": 4, "seq_len": 9, "chunk_hashes": ["0xab"]}
    ],
    "tair": [{"timestamp": 1.5, "input_length": 9, "output_length": 1, "block_ids": [1, 2]}],
    "tair-events": [{"type": "GetCacheLocation", "trigger_time_us": 5, "keys": [-5, 6]}],
    "sglang": [
        {"timestamp": "2026-08-01T10:00:00", "event": "request.received", "rid": "r",
         "obj": {"input_ids": [1, 2]}},
        {"request_parameters": json.dumps({"input_ids": [1]}), "id": "q", "completion_tokens": 2},
    ],
    "sglang-text-requests": [{"event": "request.received", "rid": "r", "obj": {"text": "hi"}}],
    "openai-requests": [{**CHAT, "timestamp": 3}, {"prompt": [1, 2]}],
    "aibrix": [{"timestamp": 6011, "requests": [{"Output Length": 22, "prompt": "a"}]}],
    "lmcache-text": [{"timestamp": 1760587801647311, "input": "Hi", "output": "x"}],
    "otel": [
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "1730", "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}},
            {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])}}]}]}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": 1730, "attributes": [
            {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [
                {"kvlistValue": {"values": [{"key": "role", "value": {"stringValue": "user"}}]}}]}}}]}]}]}]},
    ],
    "verl": [{"input": "x", "output": "y", "score": 1.0}],
    "aiperf-single-turn": [{"text": "a", "timestamp": 1}, {"type": "random_pool", "texts": ["a", "b"]}],
    "aiperf-turns": [
        {"session_id": "s", "turns": [{"text": "a", "delay": 1, "forks": ["t"]}, {"messages": [USER]}]},
        {"session_id": "t", "turns": [{"text": "b"}]},
    ],
    "baseten": [{"timestamp_start_unix_ms": 1, "total_hashes": [1, 2], "block_size": 4, "input_tokens": 8}],
}  # fmt: skip
SAMPLES |= TRANSCRIPTS
SAMPLES |= {
    name: [record, record] for name, record in RECORDS.items() if name != "openai-requests"
} | {
    "message-list": [PLAIN],
    "atif-token-ids": [
        {"schema_version": "ATIF-v1.6", "steps": [{"source": "user"}, {"source": "agent", "metrics": {
            "prompt_tokens": 3, "prompt_token_ids": [1, 2, 3], "completion_token_ids": [4]}}]}
    ],
}  # fmt: skip
for _kind in KINDS:
    SAMPLES.setdefault(_kind.name, []).append(_kind.record)
LINES = {
    "vllm-text": "INFO 10-01 18:43:27 logger.py:36] Received request c-0: prompt: 'x\\n', params: S(n=1), "
    "prompt_token_ids: None, lora_request: None.",
    "vllm": "INFO 10-01 18:43:27 logger.py:36] Received request c-0: prompt: 'x', params: S(n=1), "
    "prompt_token_ids: [1, 2, 3], lora_request: None.",
    "sglang-lines": "[2025-08-04 11:51:41] Receive: obj=GenerateReqInput(rid='a', input_ids=[1, 2])",
}

odd_values = st.sampled_from(
    [None, True, False, -1, 0, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308,
     "", "x", "1", "nan", "2026-01-01", "\0", "\ud83d", "{", "[1,2",
     [], [[]], [1, [2]], [1, 2.5], [True], ["a", 1], {}, {"a": 1}, [{}]]
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a document, itself included."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a document with one value replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def dropped(value: Any, path: tuple[Any, ...]) -> Any:
    """Return a document without one of its values."""
    if not path:
        return {}
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = dropped(value[path[0]], path[1:])
    return copy


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode(errors="surrogatepass")


@st.composite
def damaged_lines(draw: st.DrawFn, records: list[Any]) -> list[bytes]:
    """Lines of a log of which some are damaged, in ways that logs are."""
    lines: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        record = draw(st.sampled_from(records))
        how = draw(st.sampled_from(["whole", "value", "value", "drop", "cut", "byte", "deep", "twice"]))
        path = draw(st.sampled_from(places(record)))
        if how == "value":
            record = replaced(record, path, draw(odd_values))
        elif how == "drop":
            record = dropped(record, path)
        line = dumped(record)
        if how == "cut":
            line = line[: draw(st.integers(0, len(line)))]
        elif how == "byte":
            position = draw(st.integers(0, len(line) - 1))
            line = line[:position] + draw(st.binary(min_size=1, max_size=3)) + line[position + 1 :]
        elif how == "deep":
            line = b'{"a":' * 3000 + line + b"}" * 3000
        elif how == "twice":
            line += line
        lines.append(line + draw(st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n"])))
    return lines


def one_line(text: str) -> str:
    assert "\n" not in text
    return text


def outcome(path: Path, options: ReadOptions) -> tuple[Any, ...]:
    """Return all that reading a log comes to, with its account checked."""
    try:
        trace = open_trace([str(path)], options)
        with contextlib.closing(trace):
            table = pa.Table.from_batches(list(trace.batches()), trace.schema)
    except KvcapError as error:
        return type(error).__name__, one_line(str(error))
    report = trace.report
    assert report.records == report.requests + sum(report.skipped.values()) + report.bad_records
    assert report.requests == table.num_rows > 0
    return table.to_pydict(), report


def compiled_read_chunk(*args: Any, **kwargs: Any) -> Any:
    return read_chunk(*args, **{**kwargs, "compiled": True})


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_a_damaged_log_is_an_answer_or_one_error_both_ways(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    named = data.draw(st.booleans())
    bom = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    path.write_bytes(bom + b"".join(data.draw(damaged_lines(SAMPLES[name]))))
    options = ReadOptions(
        input_format=name if named else None,
        block_size=4,
        skip_bad=data.draw(st.sampled_from([0, 1, 99])),
        keep=data.draw(st.sampled_from([(), ("timestamp",)])),
        sort_by_time=data.draw(st.booleans()),
    )
    plain = outcome(path, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_trace, "read_chunk", compiled_read_chunk)
        assert outcome(path, options) == plain


@pytest.mark.parametrize("name", LINES)
@given(data=st.data())
def test_damaged_lines_of_server_logs_are_an_answer_or_one_error(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    line = LINES[name].encode()
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        begin, end = sorted(data.draw(st.tuples(st.integers(0, len(line)), st.integers(0, len(line)))))
        lines.append(line[:begin] + data.draw(st.binary(max_size=4)) + line[end:])
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(b"\n".join(lines))
    outcome(path, ReadOptions(input_format=data.draw(st.sampled_from([None, name])), skip_bad=2))


@given(data=st.data(), pack=st.sampled_from([gzip.compress, lzma.compress, None]))
def test_a_damaged_archive_is_an_answer_or_one_error(
    data: st.DataObject, pack: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = b"".join(dumped(HASHES) + b"\n" for _ in range(20))
    packed = bytearray(pack(plain) if pack else pa.compress(plain, "zstd", asbytes=True))
    kind = data.draw(st.sampled_from(["cut", "flip"]))
    position = data.draw(st.integers(0, len(packed) - 1))
    if kind == "cut":
        del packed[position:]
    else:
        packed[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(packed)
    found = outcome(path, ReadOptions(block_size=4))
    if kind == "cut":
        assert isinstance(found[0], str)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(content)
    outcome(path, ReadOptions(block_size=4))


def test_every_dialect_is_fuzzed() -> None:
    assert {dialect.name for dialect in DIALECTS if dialect.refusal is None} == {*SAMPLES, *LINES}

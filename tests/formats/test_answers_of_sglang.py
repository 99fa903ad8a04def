"""What SGLang says when a request ends belongs to the request that came, in the order in which it came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import read_log, write_log

from kvcap.formats import sglang


def line(event: str, rid: str, ids: Any = None, cached: int | None = None) -> str:
    record: dict[str, Any] = {
        "timestamp": "2026-08-01T10:00:00.5",
        "event": f"request.{event}",
        "obj": {"rid": rid, "input_ids": ids or [1]},
    }
    if cached is not None:
        record["out"] = {"meta_info": {"cached_tokens": cached, "completion_tokens": 7, "e2e_latency": 0.25}}
    return json.dumps(record)


def observed(path: str) -> list[tuple[Any, ...]]:
    table, report = read_log(path)
    columns = ("token_ids", "observed_cached_tokens", "output_length", "duration_us")
    assert report.records == report.requests + sum(report.skipped.values())
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_requests_keep_the_order_in_which_they_came(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "log",
        line("received", "a", [1, 2, 3]),
        line("received", "b", [4, 5]),
        line("received", "c", [6]),
        line("finished", "b", cached=2),
        json.dumps({"event": "request.received.openai", "obj": {"messages": []}}),
        line("finished", "a", cached=0),
        line("received", "d", [7]),
    )
    assert observed(str(path)) == [
        ([1, 2, 3], 0, 7, 250_000),
        ([4, 5], 2, 7, 250_000),
        ([6], None, None, None),
        ([7], None, None, None),
    ]


def test_a_request_that_never_ends_holds_no_more_than_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang, "_MOST_WAITING", 3)
    lines = [line("received", "lost", [99])]
    for number in range(10):
        lines += [line("received", f"r{number}", [number, 1]), line("finished", f"r{number}", cached=1)]
    lines.append(line("finished", "lost", cached=1))
    found = observed(str(write_log(tmp_path / "log", *lines)))
    assert [ids[0] for ids, *_ in found] == [99, *range(10)]
    assert [cached for _, cached, *_ in found] == [None] + [1] * 10


def test_metrics_files_say_it_in_one_record(tmp_path: Path) -> None:
    record = {
        "request_parameters": json.dumps({"rid": "r", "input_ids": [1, 2, 3]}),
        "id": "r",
        "completion_tokens": 2,
        "cached_tokens": 3,
        "e2e_latency": 0.9,
    }
    assert observed(str(write_log(tmp_path / "log", json.dumps(record)))) == [([1, 2, 3], 3, 2, 900_000)]


def test_lines_of_text_say_it_behind_the_answer(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "log",
        "[2025-08-04 11:51:41] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2], x={})",
        "[2025-08-04 11:51:42] Finish: obj=GenerateReqInput(rid='a', input_ids=[1, 2]), out={'text': "
        "\"'meta_info': {'cached_tokens': 9}\", 'meta_info': {'id': 'a', 'completion_tokens': 3, "
        "'cached_tokens': 2, 'e2e_latency': 0.125}}",
    )
    assert observed(str(path)) == [([1, 2], 2, 3, 125_000)]

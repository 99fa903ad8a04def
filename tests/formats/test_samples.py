"""A sample of each log that people hold is read right, or refused with something to do."""

from __future__ import annotations

import json

import pytest
from held_logs import HELD, Held
from reading import read_log
from shared_data import shared_path

from kvcap.errors import KvcapError
from kvcap.tokenize.prompts import PromptSource
from kvcap.tokenize.requests import prompts_of

_SYSTEM = "You are the support assistant"
_WITHOUT_IT = {"litellm", "otel", "message-list"}


@pytest.mark.parametrize("held", HELD, ids=[held.sample for held in HELD])
def test_a_log_that_people_hold_is_right_or_refused_with_something_to_do(held: Held) -> None:
    path = shared_path(f"cases/samples/{held.sample}")
    options = {"block_size": held.block_size, "conversations": held.conversations}
    if held.kind is None:
        with pytest.raises(KvcapError) as caught:
            read_log(path, **options)
        assert held.says in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    table, report = read_log(path, **options)
    assert (report.format_name, table.num_rows, report.bad_records) == (held.kind, held.requests, 0)
    if "request_json" in table.schema.names:
        for text in table["request_json"].to_pylist():
            prompts_of(text, PromptSource("log", 1), None, "refuse")


@pytest.mark.parametrize("held", HELD, ids=[held.sample for held in HELD])
def test_the_system_prompt_of_a_sample_is_in_every_request(held: Held) -> None:
    path = shared_path(f"cases/samples/{held.sample}")
    content = path.read_bytes()
    if held.kind is None or held.kind in _WITHOUT_IT or _SYSTEM.encode() not in content:
        pytest.skip("holds no system prompt, or not in every request")
    table, _ = read_log(path, block_size=held.block_size, conversations=held.conversations)
    if "request_json" not in table.schema.names:
        pytest.skip("is read as ids")
    for text in table["request_json"].to_pylist():
        body = json.loads(text)
        begin = body.get("instructions") or body.get("prompt") or body["messages"][0]["content"]
        assert _SYSTEM in json.dumps(begin)[:200]


def test_every_sample_is_in_the_list() -> None:
    names = {path.name for path in shared_path("cases/samples").iterdir()}
    assert {held.sample for held in HELD} == names

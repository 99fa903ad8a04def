"""Prompts that are token ids already need no tokenizer, whatever wraps their requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import write_log

import kvcap
from kvcap.errors import UsageError

IDS = [list(range(100)), [*range(64), 7, 8, 9]]
WRAPPERS = {
    "batch": lambda body: {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": body},
    "litellm": lambda body: {
        "call_type": "atext_completion",
        "id": "x",
        "startTime": 1.0,
        "model_parameters": {},
        "messages": "{}",
        "proxy_server_request": {"body": body},
    },
}


def replayed(path: Path) -> kvcap.Results:
    return kvcap.replay(str(path))


@pytest.mark.parametrize("form", WRAPPERS)
def test_prompts_of_ids_replay_as_they_are(tmp_path: Path, form: str) -> None:
    lines = [json.dumps(WRAPPERS[form]({"model": "m", "prompt": ids})) for ids in IDS]
    with replayed(write_log(tmp_path / "log", *lines)) as results:
        requests = results.table("requests")
        assert requests["input_length"].to_pylist() == [len(ids) for ids in IDS]
        assert requests["ceiling_blocks"].to_pylist() == [0, 1]


def test_one_prompt_of_text_among_them_says_what_it_needs(tmp_path: Path) -> None:
    prompts: list[Any] = [IDS[0], "text"]
    lines = [json.dumps(WRAPPERS["batch"]({"model": "m", "prompt": prompt})) for prompt in prompts]
    with pytest.raises(UsageError, match="this log holds text: give --tokenizer"):
        replayed(write_log(tmp_path / "log", *lines))


def test_an_image_without_a_tokenizer_is_text_that_needs_one(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body = {"messages": [{"role": "user", "content": [image]}]}
    with pytest.raises(UsageError, match="this log holds text: give --tokenizer"):
        replayed(write_log(tmp_path / "log", json.dumps(body)))

from __future__ import annotations

import random
import threading
import time
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kvcap.errors import EmptyTraceError, RecordError, UsageError
from kvcap.schema import trace_schema
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.driver import tokenize_trace
from kvcap.tokenize.ordered import ITEMS_PER_WORKER, ordered_map
from kvcap.tokenize.prompts import ChatPrompt, TextPrompt, TokenIds


class Letters:
    """A backend whose ids are characters, slow at random; it refuses texts that say so."""

    def __init__(self, most_ms: float = 0) -> None:
        self._most_ms = most_ms
        self.random = random.Random(7)
        self.seen: list[ChatPrompt | TextPrompt] = []
        self.closed = False

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        self.seen.append(prompt)
        time.sleep(self.random.random() * self._most_ms / 1000)
        text = prompt.text if isinstance(prompt, TextPrompt) else str(prompt.messages[0]["content"])
        if text.startswith("bad"):
            raise prompt.source.error("messages", "do not render")
        return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)

    def close(self) -> None:
        self.closed = True


def options(**changes: Any) -> TokenizeOptions:
    return TokenizeOptions(**{"tokenizer": "letters", **changes})


def chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def letters(row: list[int]) -> str:
    return "".join(map(chr, row))


def read(trace: Any, backend: Letters | None = None, **changes: Any) -> tuple[pa.Table, Any]:
    tokenized = tokenize_trace(trace, options(**changes), lambda _: backend or Letters())
    batches = list(tokenized.batches())
    assert all(batch.schema == tokenized.schema for batch in batches)
    return pa.Table.from_batches(batches), tokenized.report


def test_requests_keep_their_columns_and_get_ids_and_length(text_trace: Any) -> None:
    sent = datetime(2026, 1, 2, 3, 4, 5)
    trace = text_trace([chat("abc"), chat("")], timestamps=[sent, None], kept={"tenant": ["x", "y"]})
    table, report = read(trace)
    assert table.schema == trace_schema("token_ids", (pa.field("tenant", pa.string()),))
    assert table.column("token_ids").to_pylist() == [[97, 98, 99], []]
    assert table.column("input_length").to_pylist() == [3, 0]
    assert table.column("output_length").to_pylist() == [7, 7]
    assert table.column("timestamp").to_pylist() == [sent, None]
    assert table.column("tenant").to_pylist() == ["x", "y"]
    assert table.column("output_ids").to_pylist() == [None, None]
    assert (report.records, report.requests, report.bad_records) == (2, 2, 0)


@pytest.mark.parametrize("workers", [1, 2, 4, 13])
def test_order_is_that_of_the_log_whatever_finishes_first(text_trace: Any, workers: int) -> None:
    texts = [f"request {number}" for number in range(120)]
    trace = text_trace([chat(text) for text in texts])
    table, _ = read(trace, Letters(most_ms=4), workers=workers)
    assert [letters(row) for row in table.column("token_ids").to_pylist()] == texts
    assert table.column("request_id").to_pylist() == list(range(120))


def test_a_body_with_several_prompts_is_several_requests(text_trace: Any) -> None:
    bodies = [chat("a"), {"prompt": ["b", "c"]}, {"prompt": [[5, 6], [7]]}, chat("d")]
    table, report = read(text_trace(bodies))
    assert table.column("request_id").to_pylist() == list(range(6))
    assert table.column("token_ids").to_pylist() == [[97], [98], [99], [5, 6], [7], [100]]
    # The log's one count of generated tokens is nobody's in particular.
    assert table.column("output_length").to_pylist() == [7, None, None, None, None, 7]
    assert (report.records, report.requests) == (6, 6)


def test_a_bad_request_stops_the_run_with_its_file_and_line(text_trace: Any) -> None:
    trace = text_trace([chat("a"), chat("bad"), chat("c")])
    with pytest.raises(RecordError, match=r"^log.jsonl:20: messages do not render$"):
        read(trace)


@pytest.mark.parametrize("workers", [1, 4])
def test_bad_requests_are_counted_up_to_the_limit(text_trace: Any, workers: int) -> None:
    bodies = [chat("bad 1"), chat("a"), "{", chat("b"), {"prompt": ["c", "bad 2"]}]
    table, report = read(text_trace(bodies), skip_bad=3, workers=workers)
    assert [letters(row) for row in table.column("token_ids").to_pylist()] == ["a", "b"]
    assert table.column("request_id").to_pylist() == [0, 1]
    assert (report.records, report.requests, report.bad_records) == (5, 2, 3)
    assert report.bad_examples[0] == "log.jsonl:10: messages do not render"
    with pytest.raises(RecordError, match=r"log\.jsonl:50"):
        read(text_trace(bodies), skip_bad=2, workers=workers)


def test_bad_records_of_the_reader_count_too(text_trace: Any) -> None:
    trace = text_trace([chat("bad")])
    trace.report.bad_records = 1
    with pytest.raises(RecordError):
        read(trace, skip_bad=1)


def test_nothing_left_is_an_error(text_trace: Any) -> None:
    with pytest.raises(
        EmptyTraceError, match=r"log.jsonl: holds no request that can be tokenized in 1 records"
    ):
        read(text_trace([chat("bad")]), skip_bad=5)


def test_only_texts_are_tokenized(text_trace: Any) -> None:
    trace = text_trace([])
    trace.kind = "hash_ids"
    with pytest.raises(UsageError, match="the log holds hash_ids, expected request texts"):
        tokenize_trace(trace, options(), lambda _: Letters())


def test_a_length_other_than_the_logs_own_count_is_said(text_trace: Any) -> None:
    trace = text_trace(
        [chat("abc"), chat("abc"), chat("abc"), {"prompt": ["x", "y"]}], input_lengths=[3, 4, None, 9]
    )
    _, report = read(trace)
    assert report.notices == [
        "1 of 2 prompts have another length than the log counted (log.jsonl:20 says 4, tokenized are 3): "
        "is it the right tokenizer?"
    ]


def test_placeholders_are_said(text_trace: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://images.example/1"}}
    body = {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [image, image]}]}
    _, report = read(text_trace([body, chat("y")]), multimodal="placeholder")
    assert report.notices == [
        "2 images and the like in 1 requests count as a placeholder each: the tokens that an engine makes of "
        "them are missing"
    ]


def test_the_time_of_a_request_reaches_its_prompt_in_utc(text_trace: Any) -> None:
    backend = Letters()
    read(text_trace([chat("a")], timestamps=[datetime(2026, 1, 2)]), backend)
    (prompt,) = backend.seen
    assert isinstance(prompt, ChatPrompt)
    assert prompt.timestamp == datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_batches_are_bounded(text_trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.tokenize.driver.BATCH_TOKENS", 5)
    trace = text_trace([chat("abc")] * 6, rows_per_batch=6)
    tokenized = tokenize_trace(trace, options(), lambda _: Letters())
    assert [batch.num_rows for batch in tokenized.batches()] == [2, 2, 2]


def test_closing_closes_the_reader_and_the_backend(text_trace: Any) -> None:
    trace, backend = text_trace([]), Letters()
    tokenize_trace(trace, options(), lambda _: backend).close()
    assert (trace.closed, backend.closed) == (True, True)


def test_leaving_early_waits_for_what_has_begun_and_drops_the_rest() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            begun.append(item)
        time.sleep(0.002)
        return item

    results = ordered_map(work, iter(range(1000)), 2)
    first, result = next(results)
    assert (first, result()) == (0, 0)
    results.close()
    seen = len(begun)
    time.sleep(0.01)
    assert len(begun) == seen <= 2 * ITEMS_PER_WORKER


def test_no_more_items_are_read_ahead_than_workers_can_use() -> None:
    read_items: list[int] = []

    def items() -> Any:
        for item in range(1000):
            read_items.append(item)
            yield item

    results = ordered_map(lambda item: item, items(), 3)
    for _ in range(5):
        next(results)
    assert len(read_items) <= 3 * ITEMS_PER_WORKER + 5
    results.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": None}, "the huggingface backend needs --tokenizer"),
        ({"backend": "engine"}, "the engine backend needs --engine-url"),
        ({"engine_url": "http://localhost:1"}, "--engine-url means the engine backend"),
        ({"tool_call_parser": "glm47"}, "--tool-call-parser is for the sglang backend"),
        ({"workers": 0}, "workers is 0, expected at least 1"),
        (
            {"backend": "engine", "engine_url": "http://localhost:1", "chat_template": "x.jinja"},
            "--chat-template is the server's own choice",
        ),
    ],
)
def test_options_that_mean_nothing_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(**changes)

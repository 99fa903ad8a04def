"""The engine backend against real HTTP servers on the loopback: vLLM's and SGLang's ways, and faults."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kvcap.cli.main import main
from kvcap.errors import RecordError, UsageError
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.driver import tokenize_trace
from kvcap.tokenize.prompts import ChatPrompt, PromptSource, TextPrompt

SOURCE = PromptSource("log.jsonl", 9)
KEY = "KVCAP_ENGINE_API_KEY"

Fault = Callable[["Handler"], bool]
"""Spoils an answer and tells that it did."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        if self.server.refuses(self):
            return
        described = {
            "vllm": {"/version": {"version": "0.32.0"}},
            "sglang": {"/model_info": {"model_path": "m"}},
        }
        value = described.get(self.server.dialect, {}).get(self.path)
        self.answer(200 if value else 404, value or {"detail": "Not Found"})

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refuses(self):
            return
        with self.server.lock:
            number = self.server.posts
            self.server.posts += 1
            self.server.in_work += 1
            self.server.most_in_work = max(self.server.most_in_work, self.server.in_work)
        try:
            self.server.questions.append((self.path, question))
            fault = self.server.fault_of(number)
            if fault is not None and fault(self):
                return
            time.sleep(self.server.delay_s)
            tokens = self.server.tokenize(question)
            self.answer(200, {"tokens": tokens, "count": len(tokens), "max_model_len": 4096})
        finally:
            with self.server.lock:
                self.server.in_work -= 1

    def answer(self, status: int, value: Any, **headers: str) -> None:
        self.answer_bytes(status, json.dumps(value).encode(), **headers)

    def answer_bytes(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, dialect: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.dialect = dialect
        self.lock = threading.Lock()
        self.questions: list[tuple[str, Any]] = []
        self.posts = self.in_work = self.most_in_work = 0
        self.delay_s = 0.0
        self.api_key: str | None = None
        self.fault_of: Callable[[int], Fault | None] = lambda _: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def refuses(self, handler: Handler) -> bool:
        if self.api_key is None or handler.headers.get("Authorization") == f"Bearer {self.api_key}":
            return False
        handler.answer(401, {"error": "Unauthorized"})
        return True

    def tokenize(self, question: Any) -> list[int]:
        text = question["prompt"] if "prompt" in question else question["messages"][-1]["content"]
        return list(map(ord, text))


@pytest.fixture
def serve() -> Iterator[Callable[[str], Server]]:
    servers: list[Server] = []

    def start(dialect: str) -> Server:
        server = Server(dialect)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.tokenize.backends.engine.FIRST_PAUSE_S", 0.002)
    monkeypatch.delenv(KEY, raising=False)


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def create(url: str, **changes: Any) -> Any:
        options = TokenizeOptions(backend="engine", engine_url=url, **{"engine_timeout_s": 5, **changes})
        opened.append(create_backend(options))
        return opened[-1]

    yield create
    for backend in opened:
        backend.close()


def chat(text: str = "hi", **body: Any) -> ChatPrompt:
    return ChatPrompt(SOURCE, {"model": "logged", "messages": [{"role": "user", "content": text}], **body})


def test_vllm_gets_the_fields_that_it_takes(serve: Any, connect: Any) -> None:
    server = serve("vllm")
    backend = connect(server.url + "/v1/", tokenizer="served")
    tools = [{"type": "function", "function": {"name": "f"}}]
    prompt = chat(
        tools=tools,
        reasoning_effort="low",
        chat_template_kwargs={"thinking": True},
        stream=True,
        temperature=0,
    )
    assert backend.dialect == "vllm"
    assert backend.encode(prompt).tolist() == [104, 105]
    assert server.questions == [
        (
            "/tokenize",
            {
                "model": "served",
                "messages": prompt.messages,
                "tools": tools,
                "chat_template_kwargs": {"thinking": True, "reasoning_effort": "low"},
                "add_generation_prompt": True,
                "continue_final_message": False,
            },
        )
    ]


def test_sglang_gets_the_chat_completion_as_it_is(serve: Any, connect: Any) -> None:
    server = serve("sglang")
    backend = connect(server.url)
    prompt = chat(reasoning_effort="low", tool_choice="none", stream=True, user=None)
    assert backend.dialect == "sglang"
    assert backend.encode(prompt).tolist() == [104, 105]
    expected = {key: value for key, value in prompt.body.items() if key not in ("model", "user")}
    assert server.questions == [("/tokenize", expected)]


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_a_completion_is_a_prompt(serve: Any, connect: Any, dialect: str) -> None:
    server = serve(dialect)
    prompt = TextPrompt(SOURCE, "ab", True, {"prompt": "ab", "model": "logged"})
    assert connect(server.url).encode(prompt).tolist() == [97, 98]
    assert server.questions == [("/tokenize", {"prompt": "ab", "add_special_tokens": True})]


def test_the_api_key_comes_from_the_environment(
    serve: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("vllm")
    server.api_key = "secret"
    with pytest.raises(UsageError, match=f"refuses the API key, expected it in {KEY}"):
        connect(server.url)
    monkeypatch.setenv(KEY, "secret")
    assert connect(server.url).encode(chat()).tolist() == [104, 105]


def hang_up(handler: Handler) -> bool:
    handler.close_connection = True
    return True


def break_off(handler: Handler) -> bool:
    handler.answer_bytes(200, b'{"tokens": [1, 2', length=4000)
    handler.close_connection = True
    return True


def no_json(handler: Handler) -> bool:
    handler.answer_bytes(200, b"<html>busy</html>")
    return True


def miscount(handler: Handler) -> bool:
    handler.answer(200, {"tokens": [1, 2, 3], "count": 4, "max_model_len": 1})
    return True


def no_ids(handler: Handler) -> bool:
    handler.answer(200, {"tokens": ["a"], "count": 1, "max_model_len": 1})
    return True


def status(code: int, **headers: str) -> Fault:
    def fault(handler: Handler) -> bool:
        handler.answer(code, {"error": {"message": f"code {code}"}}, **headers)
        return True

    return fault


def too_slow(handler: Handler) -> bool:
    time.sleep(0.4)
    hang_up(handler)
    return True


FAULTS = [
    hang_up,
    break_off,
    no_json,
    miscount,
    no_ids,
    status(500),
    status(502),
    status(503, Retry_After="0.001"),
    status(429, Retry_After="soon"),
]


@pytest.mark.parametrize("fault", [*FAULTS, too_slow])
def test_a_failure_that_passes_costs_nothing_but_time(serve: Any, connect: Any, fault: Fault) -> None:
    server = serve("vllm")
    server.fault_of = lambda number: fault if number < 2 else None
    backend = connect(server.url, engine_timeout_s=0.2)
    assert backend.encode(chat("abc")).tolist() == [97, 98, 99]
    assert server.posts == 3


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_no_request_is_lost_or_counted_twice_under_faults(text_trace: Any, serve: Any, dialect: str) -> None:
    server = serve(dialect)
    server.delay_s = 0.001
    # Every third of the first answers is spoiled, each time in the next way: 40 in all, so that even a
    # request that meets every one of them is answered within its retries.
    server.fault_of = lambda number: (
        FAULTS[number // 3 % len(FAULTS)] if number % 3 == 1 and number < 120 else None
    )
    texts = [f"request {number}" for number in range(150)]
    trace = text_trace(
        [{"messages": [{"role": "user", "content": text}]} for text in texts], rows_per_batch=40
    )
    options = TokenizeOptions(backend="engine", engine_url=server.url, engine_retries=45, workers=6)
    tokenized = tokenize_trace(trace, options)
    ids = [row for batch in tokenized.batches() for row in batch.column("token_ids").to_pylist()]
    tokenized.close()
    assert ["".join(map(chr, row)) for row in ids] == texts
    assert tokenized.report.requests == 150
    assert server.posts > 150
    assert 1 < server.most_in_work <= 6
    answered = Counter(question["messages"][0]["content"] for _, question in server.questions)
    assert sorted(answered) == sorted(texts)


def test_a_prompt_that_the_server_refuses_is_an_error_of_that_request(serve: Any, connect: Any) -> None:
    server = serve("vllm")
    for code, tries in ((400, 1), (422, 1), (500, 3)):
        server.posts, server.fault_of = 0, lambda _, code=code: status(code)
        with pytest.raises(RecordError, match=f"^log.jsonl:9: is refused by the engine: code {code}$"):
            connect(server.url, engine_retries=2).encode(chat())
        assert server.posts == tries


def test_what_is_wrong_with_the_server_is_no_error_of_a_request(serve: Any, connect: Any) -> None:
    server = serve("vllm")
    backend = connect(server.url)
    server.fault_of = lambda _: status(404)
    with pytest.raises(UsageError, match="/tokenize answers with status 404: code 404"):
        backend.encode(chat())
    with pytest.raises(UsageError, match="answers neither like vLLM nor like SGLang"):
        connect(serve("other").url)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "http://host:port", "http://host:0", "http://[1"]
)
def test_an_address_that_is_none_is_refused(connect: Any, url: str) -> None:
    with pytest.raises(UsageError, match="expected an address such as http://localhost:8000"):
        connect(url)


def test_a_server_that_is_not_there_is_said_so(serve: Any, connect: Any) -> None:
    server = serve("vllm")
    server.shutdown()
    server.server_close()
    with pytest.raises(
        ConnectionError, match=rf"the engine at {server.url} does not answer after 3 tries: .*refused"
    ):
        connect(server.url, engine_retries=2)


def test_a_server_that_goes_away_ends_the_run_whatever_may_be_skipped(
    serve: Any, text_trace: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve("sglang")
    server.fault_of = lambda number: hang_up if number >= 10 else None
    bodies = [{"messages": [{"role": "user", "content": f"{number}"}]} for number in range(60)]
    monkeypatch.setattr("kvcap.formats.open_trace", lambda paths, options: text_trace(bodies))
    arguments = ["tokenize", "log.jsonl", "--engine-url", server.url, "--skip-bad", "100", "--quiet"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"kvcap: error: the engine at {server.url} does not answer after ")
    assert error.count("\n") == 1
    # One prompt uses up its tries; those beside it give up with it, the rest is never sent.
    assert server.posts < 10 + 4 * 8 + 8

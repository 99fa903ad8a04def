"""The mirror for engines that are ASGI applications."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from asgi import Answer, ask

from kvcap.errors import UsageError
from kvcap.online.mirror import Mirror

CHAT = "/v1/chat/completions"


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes that it was sent."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


class Collector(BaseHTTPRequestHandler):
    """Stands for the service: keeps what it is sent, and answers ``status``."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, bytes, str | None]]
    status = 200
    idle_close = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, body, self.headers["authorization"]))
        self.send_response(self.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        self.close_connection = self.idle_close

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[tuple[str, type[Collector]]]:
    handler = type("_Collector", (Collector,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def asked(app: Any, path: str, body: bytes = b"{}", **more: Any) -> Answer:
    return asyncio.run(ask(app, more.pop("method", "POST"), path, body, **more))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_completions_are_copied_in_order_and_answered_by_the_engine(
    service: tuple[str, type[Collector]],
) -> None:
    url, collector = service
    mirror = Mirror(engine, url, api_key="secret")
    bodies = [b'{"n": %d}' % n for n in range(20)]
    for body in bodies:
        assert asked(mirror, CHAT, body).body == str(len(body)).encode()
    assert asked(mirror, "/v1/completions", parts=[b'{"a"', b": 1}"]).body == b"8"
    until(lambda: mirror.counts.sent == 21)
    expected = [(CHAT, body) for body in bodies] + [("/v1/completions", b'{"a": 1}')]
    assert collector.seen == [(path, body, "Bearer secret") for path, body in expected]
    assert (mirror.counts.dropped, mirror.counts.failed) == (0, 0)


def test_other_requests_pass_uncopied(service: tuple[str, type[Collector]]) -> None:
    url, collector = service
    mirror = Mirror(engine, url, paths=("/generate",))
    for path, method in ((CHAT, "POST"), ("/generate", "GET"), ("/tokenize", "POST")):
        assert asked(mirror, path, b"12345", method=method).body == b"5"
    assert asked(mirror, "/generate", b"123").body == b"3"
    until(lambda: mirror.counts.sent == 1)
    assert collector.seen == [("/generate", b"123", None)]


def test_bodies_over_the_limit_are_counted_and_reach_the_engine_whole(
    service: tuple[str, type[Collector]],
) -> None:
    url, collector = service
    mirror = Mirror(engine, url, max_body_bytes=10)
    assert asked(mirror, CHAT, parts=[b"x" * 9, b"y" * 9]).body == b"18"
    assert asked(mirror, CHAT, b"z" * 10).body == b"10"
    until(lambda: mirror.counts.sent == 1)
    assert mirror.counts.dropped == 1
    assert collector.seen == [(CHAT, b"z" * 10, None)]


def test_a_service_that_is_away_costs_copies_and_no_request(
    service: tuple[str, type[Collector]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcap.online.mirror._PAUSE_S", 0.01)
    mirror = Mirror(engine, "http://127.0.0.1:9", waiting=1)
    for _ in range(50):
        assert asked(mirror, CHAT).status == 200
    until(lambda: mirror.counts.failed + mirror.counts.dropped == 50)
    assert mirror.counts.failed >= 1
    url, collector = service
    collector.status = 422
    refused = Mirror(engine, url)
    asked(refused, CHAT)
    until(lambda: refused.counts.failed == 1)


def test_a_connection_that_the_service_closed_is_opened_again(service: tuple[str, type[Collector]]) -> None:
    url, collector = service
    collector.idle_close = True
    mirror = Mirror(engine, url + "/")
    for number in range(3):
        asked(mirror, CHAT)
        until(lambda n=number: mirror.counts.sent == n + 1)  # type: ignore[misc]
    assert mirror.counts.failed == 0


def test_lifespan_and_websockets_are_the_engines() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    mirror = Mirror(app, "http://localhost:1")
    for kind in ("lifespan", "websocket"):
        asyncio.run(mirror({"type": kind, "path": CHAT}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://localhost", "http://", "http://a:80800", "http://[1"]
)
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected one such as"):
        Mirror(engine, url)

"""What one client may not do to the service, or to the others."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from asgi import ask
from live_service import FakeEncoder, go, options, post, running

from kvcap.online.server import service as service_module
from kvcap.online.server.incoming import MAX_SKEW_US

OURS = {"host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "10.1.2.3"}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "kvcap:8080"}, 200),
        ({"host": "evil.example.com"}, 403),
        ({"host": "127.0.0.1.evil.example.com"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": "kvcap.example.org"}, 200),
        ({"host": "a.pages.example.org:80"}, 200),
        ({**OURS, "origin": "http://127.0.0.1:8080"}, 200),
        ({**OURS, "origin": "http://127.0.0.1:9999"}, 403),
        ({**OURS, "origin": "http://evil.example.com"}, 403),
        ({**OURS, "origin": "null"}, 403),
        ({**OURS, "origin": "https://kvcap.example.org"}, 200),
    ],
)
def test_a_page_of_another_site_may_not_ask(headers: dict[str, str], status: int) -> None:
    async def test() -> None:
        chosen = options(allowed_hosts="kvcap.example.org,*.pages.example.org")
        async with running(chosen) as (app, _):
            for method, path in (("GET", "/status"), ("POST", "/v1/requests")):
                answer = await ask(app, method, path, {"token_ids": [1]}, headers)
                assert answer.status == status, (method, path)

    go(test)


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/completions", "/v1/chat/completions", "/finalize"])
@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_can_send_is_refused(path: str, kind: str) -> None:
    async def test() -> None:
        async with running() as (app, service):
            answer = await post(app, path, {"token_ids": [1]}, headers={"content-type": kind})
            assert answer.status == 415
            assert "curl: -H 'content-type: application/json'" in answer.json()["error"]["message"]
            assert not service.finalized

    go(test)


def test_a_slow_tokenization_does_not_hold_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.online.server.arrivals.PATIENCE_S", 0.2)

    async def test() -> None:
        encoder = FakeEncoder(lambda text: 1.5 if text.startswith("9") else 0.0)
        async with running(encoder=encoder) as (app, service):
            begin = time.monotonic()
            slow = asyncio.create_task(post(app, "/v1/completions", {"prompt": "9 1 2 3 4"}))
            await asyncio.sleep(0.05)
            first = await post(app, "/v1/completions", {"prompt": "1 2 3 4 5"})
            second = await post(app, "/v1/requests", {"token_ids": [1, 2, 3, 4, 5]})
            assert time.monotonic() - begin < 1.2
            assert (first.status, second.status) == (200, 200)
            assert (await slow).status == 200
            assert (await service.snapshot()).totals.requests == 3

    go(test)


def test_what_is_in_time_keeps_its_place_in_the_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.online.server.arrivals.PATIENCE_S", 5.0)

    async def test() -> None:
        encoder = FakeEncoder(lambda text: 0.4 if text.startswith("7") else 0.0)
        async with running(encoder=encoder) as (app, _):
            slow = asyncio.create_task(post(app, "/v1/completions", {"prompt": "7 1 2 3"}))
            await asyncio.sleep(0.05)
            quick = await post(app, "/v1/requests", {"token_ids": [7, 1, 2, 3]})
            assert quick.json()["ceiling_blocks"] == 1
            assert (await slow).status == 200

    go(test)


def test_health_says_not_ready_while_a_request_waits_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_STUCK_S", 0.2)

    async def test() -> None:
        encoder = FakeEncoder()
        encoder.gate.clear()
        async with running(options(api_key="key"), encoder) as (app, _):
            assert (await ask(app, "GET", "/healthz")).status == 200
            key = {"authorization": "Bearer key"}
            waiting = asyncio.create_task(post(app, "/v1/completions", {"prompt": "1"}, headers=key))
            await asyncio.sleep(0.4)
            answer = await ask(app, "GET", "/health")
            assert answer.status == 503
            assert "not ready" in answer.json()["error"]["message"]
            encoder.gate.set()
            assert (await waiting).status == 200
            assert (await ask(app, "GET", "/health")).status == 200

    go(test)


def test_the_end_does_not_wait_for_what_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_CLOSE_S", 0.2)
    encoder = FakeEncoder()
    encoder.gate.clear()

    async def test() -> None:
        async with running(encoder=encoder) as (app, _):
            waiting = asyncio.create_task(post(app, "/v1/completions", {"prompt": "1"}))
            await asyncio.sleep(0.1)
            begin = time.monotonic()
        assert time.monotonic() - begin < 2
        encoder.gate.set()
        assert (await waiting).status == 503

    go(test)


def test_one_time_in_the_future_does_not_empty_the_window() -> None:
    async def test() -> None:
        async with running(options(slide_window_seconds=60)) as (app, service):
            now = time.time()
            for timestamp in (now - 1, now + MAX_SKEW_US / 1e6 + 60, now):
                body = {"token_ids": [1, 2, 3, 4], "timestamp": timestamp}
                assert (await post(app, "/v1/requests", body)).status == 200
            assert (await service.snapshot()).window.requests == 3
            metrics = (await ask(app, "GET", "/metrics")).body.decode()
            assert "kvcap_future_timestamps_total 1.0" in metrics

    go(test)


def test_a_large_body_is_decoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noting(*arguments: Any) -> Any:
        import threading

        from kvcap.online.server.bodies import decode_body

        threads.append(threading.current_thread().name)
        return decode_body(*arguments)

    monkeypatch.setattr("kvcap.online.server.endpoints.decode_body", noting)

    async def test() -> None:
        async with running() as (app, _):
            tokens = np.arange(100_000).tolist()
            answers = [await post(app, "/v1/requests", {"token_ids": ids}) for ids in ([1, 2], tokens)]
            assert [answer.status for answer in answers] == [200, 200]
            assert threads[0] == "MainThread"
            assert threads[1].startswith("kvcap-serve-decode")

    go(test)

"""A real nginx mirrors what the official client sends an engine; the client sees the engine alone."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_process import ServiceProcess, serving

from kvcap.online.server.endpoints import asset
from kvcap.replay import ReplayOptions, replay

pytestmark = pytest.mark.service

MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {mirror}
}}
"""


class Engine(BaseHTTPRequestHandler):
    """Answers like an engine, streaming or not, and remembers what it was sent."""

    protocol_version = "HTTP/1.1"
    seen: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).seen.append(body)
        asked = json.loads(body)
        chat = "messages" in asked
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for word in ("from ", "the ", "engine"):
                self._event({"choices": [{"index": 0, "delta": {"content": word}, "text": word}]}, chat)
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
            return
        choice = {"message": {"role": "assistant", "content": "from the engine"}, "text": "from the engine"}
        self._answer({"choices": [{"index": 0, "finish_reason": "stop", **choice}], **_head(chat)})

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "engine-model", "object": "model"}]})

    def _answer(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _event(self, content: dict[str, Any], chat: bool) -> None:
        self._chunk(b"data: " + json.dumps({**content, **_head(chat)}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


def _head(chat: bool) -> dict[str, Any]:
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "1", "object": kind, "created": 1, "model": "engine-model"}


@contextmanager
def engine() -> Iterator[tuple[int, list[bytes]]]:
    handler = type("_Engine", (Engine,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, handler.seen
        server.shutdown()
        thread.join()


@contextmanager
def nginx(folder: Path, port: int, engine_port: int, kvcap_port: int) -> Iterator[str]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("needs nginx")
    mirror = asset("nginx-mirror.conf").decode()
    for shipped, own in ((8000, port), (30000, engine_port), (8080, kvcap_port)):
        assert f"127.0.0.1:{shipped};" in mirror
        mirror = mirror.replace(f"127.0.0.1:{shipped};", f"127.0.0.1:{own};")
    config = folder / "nginx.conf"
    config.write_text(MAIN.format(folder=folder, mirror=mirror))
    process = subprocess.Popen([program, "-p", str(folder), "-c", str(config)])
    try:
        deadline = time.monotonic() + 10
        while not (folder / "nginx.pid").exists():
            assert process.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def conversations(n: int) -> list[list[dict[str, str]]]:
    rng = random.Random(3)
    made: list[list[dict[str, str]]] = []
    for _ in range(n):
        earlier = rng.choice(made) if made and rng.random() < 0.6 else []
        text = " ".join(f"w{rng.randrange(200)}" for _ in range(rng.randrange(1, 60)))
        made.append([*earlier, {"role": "user", "content": text}])
    return made


def wait_for(service: ServiceProcess, requests: int) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while True:
        status: dict[str, Any] = service.ask("/status")[1]
        if status["totals"]["requests"] >= requests or time.monotonic() > deadline:
            return status
        time.sleep(0.05)


def test_mirrored_traffic_is_counted_as_its_log_replays_and_the_client_sees_the_engine(
    tmp_path: Path, word_tokenizer: Path, free_port: int
) -> None:
    openai = pytest.importorskip("openai")
    flags = ("--kv-bytes-per-token", "1000", "--block-size", "4", "--capacities", "20blocks,5000blocks")
    log = tmp_path / "log"
    texts = conversations(40)
    with (
        engine() as (engine_port, seen),
        serving(*flags, "--tokenizer", str(word_tokenizer), "--record", str(log)) as service,
        nginx(tmp_path, free_port, engine_port, urlsplit(service.url).port or 0) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="the-engine's", max_retries=0) as client,
    ):
        assert [model.id for model in client.models.list()] == ["engine-model"]
        for number, messages in enumerate(texts):
            found = client.chat.completions.create(
                model="engine-model", messages=messages, stream=number % 2 == 0
            )
            if number % 2 == 0:
                answer = "".join(chunk.choices[0].delta.content for chunk in found)
            else:
                answer = found.choices[0].message.content
                assert "kv_capacity_estimation" not in (found.model_extra or {})
            assert answer == "from the engine"
        assert client.completions.create(model="m", prompt="w1 w2 w3 w4").choices[0].text == "from the engine"
        assert len(seen) == len(texts) + 1
        totals = wait_for(service, len(texts) + 1)["totals"]
        assert totals["requests"] == len(texts) + 1
        assert totals["ceiling_blocks"] > 0
        assert service.terminate() == 0
    with replay(sorted(log.glob("*.parquet")), ReplayOptions.of(block_size=4)) as results:
        offline = results.query("totals").to_pylist()[0]
        for name in ("requests", "blocks", "ceiling_blocks", "input_tokens"):
            assert offline[name] == totals[name]
        for row in totals["capacities"]:
            rate = results.query("hit_rate", capacity_blocks=row["capacity_blocks"]).to_pylist()[0]
            assert rate["hit_blocks"] == row["hit_blocks"]


def test_the_engine_is_served_on_when_kvcap_is_gone(tmp_path: Path, free_port: int) -> None:
    openai = pytest.importorskip("openai")
    with (
        engine() as (engine_port, seen),
        nginx(tmp_path, free_port, engine_port, 1) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=5) as client,
    ):
        for _ in range(5):
            assert client.completions.create(model="m", prompt="x").choices[0].text == "from the engine"
        assert len(seen) == 5

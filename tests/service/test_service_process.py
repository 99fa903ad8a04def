"""The service as a process: signals, crashes, slow clients, and the official client library."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from service_process import ROOT, ServiceProcess, serving

from kvcap.replay import ReplayOptions, replay

pytestmark = pytest.mark.service

FLAGS = ("--kv-bytes-per-token", "1000", "--block-size", "4", "--capacities", "10blocks,1000blocks")


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceProcess]:
    with serving(*FLAGS, "--body-timeout-seconds", "0.5", "--max-connections", "20") as running:
        yield running


def feed_until_gone(service: ServiceProcess, answered: list[int]) -> None:
    """Post requests one after the other until the service is gone."""
    number = 0
    while True:
        try:
            status, found = service.ask("/v1/requests", {"token_ids": [number % 50] * 4 + list(range(100))})
        except (OSError, HTTPException):
            return
        if status == 200:
            answered.append(found["request_number"])
        number += 1


def log_requests(directory: Path) -> int:
    return sum(pq.read_table(path).num_rows for path in sorted(directory.glob("*.parquet")))


def test_sigterm_in_the_middle_of_load_keeps_every_answered_request_and_exits_0(tmp_path: Path) -> None:
    answered: list[int] = []
    with serving(*FLAGS, "--record", str(tmp_path / "log")) as service:
        feeders = [threading.Thread(target=feed_until_gone, args=(service, answered)) for _ in range(4)]
        for feeder in feeders:
            feeder.start()
        time.sleep(1)
        assert service.terminate() == 0
        for feeder in feeders:
            feeder.join(30)
    assert len(answered) > 20
    kept = log_requests(tmp_path / "log")
    assert kept >= len(answered)
    with serving(*FLAGS, "--record", str(tmp_path / "log")) as service:
        assert f"going on after {kept} requests;" in service.greeting
        assert service.ask("/status")[1]["totals"]["requests"] == kept


def test_kill_9_in_the_middle_of_load_leaves_whole_files_that_fit_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = (*FLAGS, "--record", str(log), "--record-seconds", "0.05", "--state-seconds", "0.2")
    reached = 0
    for _ in range(3):
        answered: list[int] = []
        with serving(*flags) as service:
            assert service.ask("/status")[1]["totals"]["requests"] >= reached
            feeder = threading.Thread(target=feed_until_gone, args=(service, answered))
            feeder.start()
            time.sleep(1)
            service.process.kill()
            feeder.join(30)
        kept = log_requests(log)
        assert kept > reached
        # At 0.05 s a file, all but the last moments before the crash must be there.
        assert kept >= answered[len(answered) // 2]
        reached = kept
    with serving(*flags) as service:
        totals = service.ask("/status")[1]["totals"]
        assert totals["requests"] == reached
    with replay(sorted(log.glob("*.parquet")), ReplayOptions.of(block_size=4)) as results:
        offline = results.query("totals").to_pylist()[0]
        assert offline["ceiling_blocks"] == totals["ceiling_blocks"]
        for row in totals["capacities"]:
            rate = results.query("hit_rate", capacity_blocks=row["capacity_blocks"]).to_pylist()[0]
            assert rate["hit_blocks"] == row["hit_blocks"]


def test_a_client_that_does_not_send_is_cut_off(service: ServiceProcess) -> None:
    address = urlsplit(service.url)
    post = b"POST /v1/requests HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    post += b"content-length: 9\r\n\r\n"
    for head in (b"", b"GET /stat", post):
        with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
            connection.sendall(head)
            answer = connection.recv(1000)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")
    assert service.ask("/health") == (200, {"status": "ok"})


def test_too_many_connections_are_turned_away_and_the_service_lives_on(service: ServiceProcess) -> None:
    address = urlsplit(service.url)
    held = [socket.create_connection((address.hostname, address.port), timeout=5) for _ in range(40)]
    assert service.ask("/status")[0] == 503
    assert service.ask("/health")[0] == 200
    for connection in held:
        connection.close()
    deadline = time.monotonic() + 10
    while service.ask("/status")[0] != 200:
        assert time.monotonic() < deadline


def test_the_official_client_reads_what_a_shadow_answers(service: ServiceProcess) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["kvcap"]
        found = client.completions.create(model="m", prompt=[1, 2, 3, 4, 5])
        assert (found.choices[0].text, found.choices[0].finish_reason) == ("", "stop")
        assert (found.model, found.usage.prompt_tokens) == ("m", 5)
        assert found.kv_capacity_estimation["block_accesses"] == 1
        streamed = list(client.completions.create(model="m", prompt=[1, 2, 3, 4], stream=True))
        assert streamed[-1].kv_capacity_estimation["reusable_accesses"] == 1
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "text"}])
        assert "--tokenizer" in refused.value.message


def test_a_port_in_use_is_one_line_and_exit_1(service: ServiceProcess) -> None:
    port = str(urlsplit(service.url).port)
    done = subprocess.run(
        [sys.executable, "-m", "kvcap", "serve", *FLAGS, "--port", port],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"kvcap: error: 127.0.0.1:{port}: ")
    assert len(done.stderr.splitlines()) == 1


def test_settings_come_from_the_environment_too() -> None:
    environment = {"KVCAP_KV_BYTES_PER_TOKEN": "61505", "KVCAP_API_KEY": "secret"}
    with serving(environment=environment) as service:
        assert service.ask("/status")[0] == 401
        status, found = service.ask("/status", headers={"authorization": "Bearer secret"})
        assert (status, found["options"]["kv_bytes_per_token"]) == (200, "61505")


def test_a_state_that_cannot_be_saved_at_the_end_is_no_success(tmp_path: Path) -> None:
    with serving(*FLAGS, "--state", str(tmp_path / "folder" / "state")) as service:
        (tmp_path / "folder").write_text("a file where the folder should be")
        assert service.terminate() == 1
        assert service.process.stderr is not None
        assert "kvcap: error: the service could not keep everything" in service.process.stderr.read()

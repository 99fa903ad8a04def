"""The service's queue, limits, log and end, through its ASGI application."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from asgi import ask
from live_service import BLOCK, FakeEncoder, go, options, post, running
from prometheus_client.parser import text_string_to_metric_families

from kvcap.errors import SchemaError
from kvcap.online import Estimator
from kvcap.online.server.options import STATE_NAME, ClientLimits, ServeOptions
from kvcap.online.server.prompts import TokenizingEncoder
from kvcap.online.server.service import Service
from kvcap.queries import open_results
from kvcap.replay import ReplayOptions, replay
from kvcap.units import format_size


def words(request: list[int]) -> str:
    return " ".join(str(token) for token in request)


def prompts(n: int, seed: int = 1) -> list[list[int]]:
    """Token ids of n requests that share prefixes."""
    rng = random.Random(seed)
    made: list[list[int]] = []
    for _ in range(n):
        earlier = rng.choice(made) if made and rng.random() < 0.7 else []
        cut = rng.randrange(len(earlier) + 1)
        made.append(earlier[:cut] + [rng.randrange(1000) for _ in range(rng.randrange(20))])
    return made


def test_one_request_is_answered_with_its_observation() -> None:
    async def test() -> None:
        async with running() as (app, _):
            tokens = list(range(10))
            await post(app, "/v1/requests", {"token_ids": tokens})
            found = (await post(app, "/v1/requests", {"token_ids": tokens})).json()
            assert found == {
                "request_number": 1,
                "input_tokens": 10,
                "blocks": 2,
                "ceiling_blocks": 2,
                "beyond_bound_blocks": 0,
                "required_blocks": 2,
                "hit_blocks": [2, 2, 2],
                "required_bytes": 2 * BLOCK * 1000,
            }

    go(test)


def test_many_requests_are_answered_in_their_order_and_form() -> None:
    async def test() -> None:
        async with running() as (app, _):
            many = [{"token_ids": tokens} for tokens in prompts(5)]
            listed = (await post(app, "/v1/requests", many)).json()["observations"]
            assert [item["request_number"] for item in listed] == list(range(5))
            lines = b"\n".join(json.dumps(item).encode() for item in many)
            headers = {"content-type": "application/x-ndjson"}
            answer = await post(app, "/v1/requests", lines, headers=headers)
            numbers = [json.loads(line)["request_number"] for line in answer.body.splitlines()]
            assert numbers == list(range(5, 10))

    go(test)


@pytest.mark.parametrize("seed", range(3))
def test_requests_are_observed_in_arrival_order_whatever_their_tokenizing_takes(seed: int) -> None:
    rng = random.Random(seed)
    requests = prompts(40, seed)
    delays = {words(request): rng.random() * 0.01 for request in requests}

    async def test() -> None:
        async with running(encoder=FakeEncoder(delays.__getitem__)) as (app, _):
            calls = [post(app, "/v1/completions", {"prompt": words(request)}) for request in requests]
            answers = [answer.json() for answer in await asyncio.gather(*calls)]
        estimator = Estimator(options().estimator)
        for number, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            expected = estimator.observe(request)
            found = answer["kv_capacity_estimation"]
            assert found["request_number"] == number
            assert [row["prefix_hits"] for row in found["configured_capacities"]] == list(expected.hit_blocks)

    go(test)


def test_a_prompt_that_cannot_be_tokenized_gives_its_place_up() -> None:
    async def test() -> None:
        async with running(encoder=FakeEncoder(lambda text: 0.05 if text == "bad" else 0)) as (app, service):
            calls = [post(app, "/v1/completions", {"prompt": text}) for text in ("1 2", "bad", "3 4")]
            first, bad, last = await asyncio.gather(*calls)
            assert (first.status, bad.status, last.status) == (200, 422, 200)
            assert last.json()["kv_capacity_estimation"]["request_number"] == 1
            assert service.pending == 0

    go(test)


def test_a_full_queue_drops_shadows_and_tells_ingestion_when_to_come_back() -> None:
    async def test() -> None:
        encoder = FakeEncoder()
        encoder.gate.clear()
        async with running(options(limits=ClientLimits(max_pending=2)), encoder) as (app, _):
            waiting = [asyncio.create_task(post(app, "/v1/completions", {"prompt": "1 2"})) for _ in range(2)]
            await asyncio.sleep(0.05)
            shadow = await post(app, "/v1/completions", {"prompt": "1 2"})
            ingestion = await post(app, "/v1/requests", {"token_ids": [1]})
            assert (shadow.status, ingestion.status) == (429, 429)
            assert int(ingestion.headers["retry-after"]) >= 1
            encoder.gate.set()
            assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200]
            counts = await metrics(app)
            assert counts["kvcap_dropped_total", ()] == 1
            assert counts["kvcap_requests_total", (("status", "overloaded"),)] == 1
            assert counts["kvcap_requests_total", (("status", "observed"),)] == 2

    go(test)


async def metrics(app: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await ask(app, "GET", "/metrics")).body.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_what_the_status_says() -> None:
    async def test() -> None:
        async with running() as (app, _):
            for tokens in prompts(30):
                await post(app, "/v1/requests", {"token_ids": tokens})
            found = await metrics(app)
            status = (await ask(app, "GET", "/status")).json()
        totals = status["totals"]
        assert found["kvcap_block_accesses_total", ()] == totals["blocks"]
        assert found["kvcap_reusable_block_accesses_total", ()] == totals["ceiling_blocks"]
        assert found["kvcap_tracked_blocks", ()] == status["tracked_blocks"]
        assert found["kvcap_required_capacity_bytes_count", ()] == 30
        assert found["kvcap_window_requests", ()] == 30
        for row in totals["capacities"]:
            labels = (
                ("capacity", format_size(row["capacity_bytes"])),
                ("capacity_bytes", str(row["capacity_bytes"])),
            )
            assert found["kvcap_prefix_hit_blocks_total", labels] == row["hit_blocks"]
            assert found["kvcap_prefix_hit_rate", labels] == pytest.approx(row["block_hit_rate"])
        for name, quantile in (("p50", "0.5"), ("p99", "0.99"), ("p999", "0.999")):
            key = ("kvcap_window_required_capacity_bytes", (("quantile", quantile),))
            assert found[key] == status["samples"]["required_bytes"][name]

    go(test)


@pytest.mark.parametrize("kind", ["token_ids", "hash_ids"])
def test_a_recorded_stream_replays_offline_to_the_same_numbers(tmp_path: Path, kind: str) -> None:
    requests = prompts(200)
    chosen = options(record=str(tmp_path / "log"), record_seconds="0.01", output_path=str(tmp_path / "out"))

    async def test() -> dict[str, Any]:
        async with running(chosen) as (app, _):
            for number, ids in enumerate(requests):
                item: dict[str, Any] = {kind: ids, "pool": "ab"[number % 2], "timestamp": number}
                if kind == "hash_ids":
                    item["input_length"] = max(1, len(ids) * BLOCK - number % 3)
                await post(app, "/v1/requests", item)
                await asyncio.sleep(0.001)
            assert (await post(app, "/finalize", b"")).status == 200
            status: dict[str, Any] = (await ask(app, "GET", "/status")).json()
            return status

    totals = asyncio.run(test())["totals"]
    files = sorted((tmp_path / "log").glob("*.parquet"))
    assert len(files) > 1
    again = replay(files, ReplayOptions.of(block_size=BLOCK), out=tmp_path / "again")
    for results in (open_results(tmp_path / "out"), again):
        with results:
            offline = results.query("totals").to_pylist()[0]
            assert offline["requests"] == totals["requests"] == 200
            for name in ("blocks", "ceiling_blocks", "ceiling_tokens", "input_tokens"):
                assert offline[name] == totals[name]
            for row in totals["capacities"]:
                rate = results.query("hit_rate", capacity_blocks=row["capacity_blocks"]).to_pylist()[0]
                assert (rate["hit_blocks"], rate["hit_tokens"]) == (row["hit_blocks"], row["hit_tokens"])
            assert results.query("totals").num_rows == 3, "together and two pools"


def test_finalizing_is_final_and_may_be_asked_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(options(record=str(tmp_path / "log"))) as (app, _):
            await post(app, "/v1/requests", {"token_ids": [1]})
            first, again = await asyncio.gather(*(post(app, "/finalize", b"") for _ in range(2)))
            assert first.json() == again.json() == (await post(app, "/finalize", b"")).json()
            assert first.json()["requests"] == 1
            refused = await post(app, "/v1/requests", {"token_ids": [1]})
            assert (refused.status, refused.json()["error"]["code"]) == (409, 409)
            assert (await post(app, "/v1/completions", {"prompt": "1"})).status == 409
            assert (await ask(app, "GET", "/status")).json()["finalized"] is True

    go(test)


def test_finalizing_waits_for_what_is_being_tokenized() -> None:
    async def test() -> None:
        encoder = FakeEncoder()
        encoder.gate.clear()
        async with running(encoder=encoder) as (app, _):
            waiting = asyncio.create_task(post(app, "/v1/completions", {"prompt": "1 2 3 4"}))
            await asyncio.sleep(0.02)
            end = asyncio.create_task(post(app, "/finalize", b""))
            await asyncio.sleep(0.02)
            encoder.gate.set()
            assert (await end).json()["requests"] == 1
            assert (await waiting).status == 200

    go(test)


def test_a_service_goes_on_where_it_was(tmp_path: Path) -> None:
    requests = prompts(60)

    async def feed(chosen: ServeOptions, part: list[list[int]]) -> dict[str, Any]:
        async with running(chosen) as (app, _):
            for tokens in part:
                await post(app, "/v1/requests", {"token_ids": tokens})
            status: dict[str, Any] = (await ask(app, "GET", "/status")).json()
            return status

    chosen = options(state=str(tmp_path / "state"))
    asyncio.run(feed(chosen, requests[:30]))
    halves = asyncio.run(feed(chosen, requests[30:]))
    whole = asyncio.run(feed(options(), requests))
    assert (halves["restored_requests"], whole["restored_requests"]) == (30, 0)
    for name in ("totals", "window", "samples", "tracked_blocks"):
        assert halves[name] == whole[name]


def test_a_lost_state_is_made_up_from_the_log(tmp_path: Path) -> None:
    chosen = options(record=str(tmp_path))

    async def test() -> None:
        async with running(chosen) as (app, _):
            for tokens in prompts(20):
                await post(app, "/v1/requests", {"token_ids": tokens})
            before = (await ask(app, "GET", "/status")).json()
        (tmp_path / STATE_NAME).unlink()
        (tmp_path / ".requests-000000000000020.parquet.1.partial").write_bytes(b"half of a file")
        async with running(chosen) as (app, service):
            after = (await ask(app, "GET", "/status")).json()
            assert (service.restored, service.from_log) == (20, 20)
            assert after["totals"] == before["totals"]
        assert not list(tmp_path.glob(".*.partial"))

    go(test)


def test_a_log_with_a_hole_is_refused(tmp_path: Path) -> None:
    chosen = options(record=str(tmp_path))

    async def test() -> None:
        async with running(chosen) as (app, _):
            await post(app, "/v1/requests", {"token_ids": [1]})
        async with running(chosen) as (app, _):
            await post(app, "/v1/requests", {"token_ids": [1]})
        (tmp_path / STATE_NAME).unlink()
        next(tmp_path.glob("requests-000000000000000-*.parquet")).unlink()
        with pytest.raises(SchemaError, match="request 0 before it"):
            Service(chosen)

    go(test)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", b"{", 400),
        ("/v1/completions", b"[]", 422),
        ("/v1/completions", b"{}", 422),
        ("/v1/chat/completions", b'{"prompt": "x"}', 422),
        ("/v1/completions", b'{"prompt": "x", "deep": ' + b"[" * 70 + b"]" * 70 + b"}", 422),
        ("/v1/completions", b'{"prompt": "x", "deep": ' + b"[" * 2000 + b"]" * 2000 + b"}", 400),
        ("/v1/requests", b"x" * 1001, 413),
        ("/nowhere", b"", 404),
        ("/status", b"", 405),
    ],
)
def test_errors_are_json_with_a_cause(path: str, body: bytes, status: int) -> None:
    async def test() -> None:
        limits = ClientLimits(max_body_bytes=1000 if path == "/v1/requests" else 10**6)
        async with running(options(limits=limits)) as (app, _):
            answer = await post(app, path, body)
            assert answer.status == status
            error = answer.json()["error"]
            assert error["code"] == status
            assert error["message"]

    go(test)


def test_a_body_that_grows_too_large_or_takes_too_long_is_refused() -> None:
    async def test() -> None:
        limits = ClientLimits(max_body_bytes=10, body_timeout_s=0.05)
        async with running(options(limits=limits)) as (app, _):
            large = await post(app, "/v1/requests", b"", parts=[b"123456", b"789012"])
            slow = await post(app, "/v1/requests", b"", parts=[b"{", 0.2, b"}"])
            packed = await post(app, "/v1/requests", b"{}", headers={"content-encoding": "gzip"})
            assert (large.status, slow.status, packed.status) == (413, 408, 415)

    go(test)


def test_only_who_shows_the_token_is_answered() -> None:
    async def test() -> None:
        async with running(options(api_key="secret")) as (app, _):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
                answer = await ask(app, "GET", "/status", headers=headers)
                assert answer.status == 401
                assert answer.json()["error"]["message"]
            shown = await ask(app, "GET", "/status", headers={"authorization": "Bearer secret"})
            assert shown.status == 200
            assert (await ask(app, "GET", "/health")).status == 200

    go(test)


def test_kinds_do_not_mix_and_the_first_decides() -> None:
    async def test() -> None:
        async with running() as (app, _):
            calls = [
                post(app, "/v1/requests", {kind: [1]}) for kind in ("token_ids", "hash_ids", "token_ids")
            ]
            assert [answer.status for answer in await asyncio.gather(*calls)] == [200, 422, 200]

    go(test)


def test_token_prompts_need_no_tokenizer_and_texts_say_that_they_do() -> None:
    async def test() -> None:
        async with running(encoder=TokenizingEncoder(None)) as (app, _):
            ids = await post(app, "/v1/completions", {"prompt": [[1, 2, 3, 4], [1, 2, 3, 4]]})
            assert ids.json()["usage"]["prompt_tokens"] == 8
            assert [item["reusable_accesses"] for item in ids.json()["kv_capacity_estimation"]] == [0, 1]
            text = await post(app, "/v1/completions", {"prompt": "text"})
            assert text.status == 501
            assert "--tokenizer" in text.json()["error"]["message"]

    go(test)


def test_a_streamed_shadow_ends_as_a_stream_ends() -> None:
    async def test() -> None:
        async with running() as (app, _):
            body = {"prompt": "1 2 3 4", "stream": True, "stream_options": {"include_usage": True}}
            answer = await post(app, "/v1/completions", body)
            assert answer.headers["content-type"].startswith("text/event-stream")
            events = [line.removeprefix(b"data: ") for line in answer.body.split(b"\n\n") if line]
            assert events[-1] == b"[DONE]"
            assert json.loads(events[-2])["usage"]["prompt_tokens"] == 4

    go(test)


def test_requests_know_their_pool_by_a_header() -> None:
    async def test() -> None:
        async with running() as (app, _):
            for pool in ("a", "b", "a"):
                headers = {"x-kvcap-pool": pool}
                answer = await post(app, "/v1/completions", {"prompt": "1 2 3 4"}, headers=headers)
            assert answer.json()["kv_capacity_estimation"]["reusable_accesses"] == 1
            assert (await ask(app, "GET", "/status")).json()["pools"] == 2

    go(test)

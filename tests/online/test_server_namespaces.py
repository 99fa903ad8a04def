"""What keeps requests apart, by the doors of the live service."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from live_service import BLOCK, go, options, post, running

import kvcap
from kvcap.errors import RequestRefusedError, UsageError
from kvcap.online.server.bodies import MAX_NAME, decode_body
from kvcap.online.server.options import ClientLimits

FIELDS: list[dict[str, Any]] = [
    {},
    {"model": "m"},
    {"model": "m", "cache_salt": "s"},
    {"cache_salt": "s", "lora_name": "a"},
    {"extra_key": "k"},
    {"namespace": "own", "model": "m"},
]
NAMES = [None, "model=m", "model=m cache_salt=s", "adapter=a cache_salt=s", "extra_key=k", "own"]


def test_objects_and_arrow_streams_name_their_namespace() -> None:
    requests = [{"token_ids": [1], **fields} for fields in FIELDS]
    incoming = decode_body(_json(requests), "application/json", ClientLimits())
    assert incoming.requests.namespaces == NAMES
    columns = {name: [fields.get(name) for fields in FIELDS] for name in {n for f in FIELDS for n in f}}
    table = pa.table({"token_ids": pa.array([[1]] * len(FIELDS), pa.list_(pa.uint32())), **columns})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = decode_body(sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream", ClientLimits())
    assert stream.requests.namespaces == NAMES


def test_named_fields_make_the_namespace_or_none_does() -> None:
    body = _json([{"token_ids": [1], "model": "m", "tenant": "t"}])
    assert decode_body(body, "application/json", ClientLimits(), ("tenant",)).requests.namespaces == [
        "tenant=t"
    ]
    plain = _json([{"token_ids": [1], "model": "m", "cache_salt": "s"}])
    assert decode_body(plain, "application/json", ClientLimits(), ()).requests.namespaces is None
    with pytest.raises(RequestRefusedError, match="holds tenant, expected only"):
        decode_body(body, "application/json", ClientLimits())


def test_a_namespace_that_is_too_long_is_refused() -> None:
    body = _json([{"token_ids": [1], "cache_salt": "s" * MAX_NAME}])
    with pytest.raises(RequestRefusedError, match=f"expected at most {MAX_NAME}"):
        decode_body(body, "application/json", ClientLimits())


def test_a_mirror_keeps_salts_and_models_apart_and_its_log_replays_to_the_same(tmp_path: Path) -> None:
    prompt = " ".join(map(str, range(3 * BLOCK)))
    worlds: list[dict[str, Any]] = [
        {"model": "m", "cache_salt": "x"},
        {"model": "m", "cache_salt": "y"},
        {"model": "n", "cache_salt": "x"},
        {"model": "m", "cache_salt": "x"},
        {},
    ]
    out = tmp_path / "results"
    found = []

    async def test() -> None:
        async with running(options(output_path=str(out))) as (app, service):
            for world in worlds:
                answer = await post(app, "/v1/completions", {"prompt": prompt, **world})
                found.append(answer.json()["kv_capacity_estimation"]["reusable_accesses"])
            ids = {"token_ids": list(range(3 * BLOCK))}
            for more in ({}, worlds[0]):
                answer = await post(app, "/v1/requests", {**ids, **more})
                found.append(answer.json()["ceiling_blocks"])
            await service.finalize()

    go(test)
    assert found == [0, 0, 0, 3, 0, 3, 3]
    with kvcap.open_results(out) as results:
        assert results.table("requests")["ceiling_blocks"].to_pylist() == found
    with kvcap.replay(
        str(tmp_path / "results.log" / "*.parquet"), kvcap.ReplayOptions.of(block_size=BLOCK)
    ) as again:
        assert again.table("requests")["ceiling_blocks"].to_pylist() == found


def test_one_world_shares_across_salts() -> None:
    found = []

    async def test() -> None:
        async with running(options(namespace="none")) as (app, _):
            for salt in "xy":
                body = {"token_ids": list(range(BLOCK)), "cache_salt": salt}
                found.append((await post(app, "/v1/requests", body)).json()["ceiling_blocks"])

    go(test)
    assert found == [0, 1]


def test_the_setting_names_fields_or_none() -> None:
    assert options(namespace="model, tenant").namespace == ("model", "tenant")
    assert options(namespace="none").namespace == ()
    assert options().namespace is None
    with pytest.raises(UsageError, match="namespace is 'a,', expected columns such as"):
        options(namespace="a,")


def test_the_engine_plugin_keeps_adapters_and_salts_apart() -> None:
    from kvcap.online.vllm_plugin import EngineObserver

    observer = EngineObserver(options())
    request = SimpleNamespace(lora_request=SimpleNamespace(lora_name="a"), cache_salt="s")
    assert observer.namespace_of(request) == "adapter=a cache_salt=s"
    assert observer.namespace_of(SimpleNamespace(lora_request=None)) is None
    assert EngineObserver(options(namespace="none")).namespace_of(request) is None


def _json(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value)

"""Where logs say what besides tokens makes a prefix, and what the answer says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import id_of, read_log, write_log

import kvcap
from kvcap.errors import RecordError, UsageError
from kvcap.formats.identity import compose, parts_of

IDS = list(range(64))


def namespaces(path: Path, **options: Any) -> list[str | None]:
    names: list[str | None] = read_log(path, **options)[0]["namespace"].to_pylist()
    return names


def records(path: Path, *items: object) -> Path:
    return write_log(path, *(json.dumps(item) for item in items))


@pytest.mark.parametrize(
    ("fields", "namespace"),
    [
        ({"model": "m"}, "model=m"),
        ({"model_name": "m"}, "model=m"),
        ({"cache_salt": "s"}, "cache_salt=s"),
        ({"lora_name": "a"}, "adapter=a"),
        ({"lora_path": "/l/a"}, "adapter=/l/a"),
        ({"lora_int_id": 3}, "adapter=3"),
        ({"lora_int_id": 0}, None),
        ({"lora_request": {"lora_name": "a", "lora_int_id": 1, "lora_path": "/l"}}, "adapter=a"),
        ({"lora_request": None, "cache_salt": ""}, None),
        ({"adapter_id": "x"}, "adapter=x"),
        ({"extra_key": "k", "model": "m", "lora_id": "7"}, "model=m adapter=7 extra_key=k"),
        ({"namespace": "own", "model": "m"}, "own"),
        ({"namespace": "", "model": "m"}, None),
        ({}, None),
    ],
)
def test_records_of_ids_name_their_namespace(
    tmp_path: Path, fields: dict[str, object], namespace: str | None
) -> None:
    path = records(tmp_path / "log", {"token_ids": [1], **fields})
    assert namespaces(path) == [namespace]
    hashes = records(tmp_path / "hashes", {"hash_ids": [1], "input_length": 4, "block_size": 4, **fields})
    assert namespaces(hashes) == [namespace]


def test_texts_and_bodies_name_their_namespace(tmp_path: Path) -> None:
    body = {"model": "m", "cache_salt": "s", "messages": [{"role": "user", "content": "hi"}]}
    assert namespaces(records(tmp_path / "requests", body)) == ["model=m cache_salt=s"]
    batch = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    assert namespaces(records(tmp_path / "batch", batch)) == ["model=m cache_salt=s"]


def sglang(number: int, **obj: object) -> dict[str, object]:
    event = {"timestamp": "2026-11-20T10:00:00", "event": "request.received", "rid": f"r{number}"}
    return {**event, "obj": {"input_ids": IDS, "sampling_params": {}, **obj}}


def test_sglang_keys_its_tree_on_adapter_and_extra_key(tmp_path: Path) -> None:
    path = records(
        tmp_path / "log",
        sglang(0, lora_path="a", extra_key="k0"),
        sglang(1, lora_path="b"),
        sglang(2, lora_path=None, extra_key=None),
    )
    assert namespaces(path) == ["adapter=a extra_key=k0", "adapter=b", None]


def test_sglang_text_lines_name_adapter_and_extra_key(tmp_path: Path) -> None:
    line = (
        "[2025-08-04 11:51:41] Receive: obj=GenerateReqInput(rid='{}', text=\"lora_path='x'\", "
        "input_ids=[1, 2], sampling_params={{}}, lora_path={}, extra_key={})"
    )
    path = write_log(tmp_path / "log", line.format("r0", "'a'", "'k'"), line.format("r1", "None", "None"))
    assert namespaces(path) == ["adapter=a extra_key=k", None]


def vllm(prefix: str, name: str, lora: str, ids: str = "[1, 2]") -> str:
    return (
        f"INFO 11-20 10:00:00 [logger.py:43] Received request {name}: prompt: {prefix!r}, params: S(n=1), "
        f"prompt_token_ids: {ids}, prompt_embeds shape: None, lora_request: {lora}."
    )


LORA = "LoRARequest(lora_name='fr', lora_int_id=1, lora_path='/l/fr')"


def test_vllm_lines_name_their_adapter(tmp_path: Path) -> None:
    prompt = f", lora_request: {LORA}"
    path = write_log(
        tmp_path / "log", vllm("x", "c-0", LORA), vllm(prompt, "c-1", "None"), vllm("x", "c-2", LORA)
    )
    assert namespaces(path) == ["adapter=fr", None, "adapter=fr"]
    table, _ = read_log(path, keep=("lora_request",))
    assert table["lora_request"].to_pylist() == [LORA, None, LORA]
    pooled, _ = read_log(write_log(tmp_path / "two", vllm("x", "c-0", LORA)), pool="lora_name")
    assert pooled["pool"].to_pylist() == ["fr"]


def details(name: str) -> str:
    return (
        f"DEBUG 10-01 18:43:28 [logger.py:42] Request {name} details: prompt: 'x', prompt_token_ids: [4], "
        "prompt_embeds shape: None."
    )


def received(name: str, lora: str) -> str:
    return (
        f"INFO 10-01 18:43:28 [logger.py:49] Received request {name}: params: S(n=1), lora_request: {lora}."
    )


def test_vllm_joins_ids_of_details_to_the_adapter_of_the_line_behind(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "log",
        details("c-0"),
        details("c-1"),
        received("c-0", LORA),
        received("c-1", "None"),
        details("c-2"),
    )
    table, report = read_log(path)
    assert table["namespace"].to_pylist() == ["adapter=fr", None, None]
    assert table["token_ids"].to_pylist() == [[4]] * 3
    assert sum(report.skipped.values()) == 2


def test_vllm_logs_of_details_alone_are_read_without_holding_them(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", *(details(f"c-{n}") for n in range(600)))
    assert read_log(path)[0].num_rows == 600


def test_dynamo_names_adapter_and_salt(tmp_path: Path) -> None:
    def row(number: int, **fields: object) -> dict[str, object]:
        replay = {"trace_block_size": 64, "input_length": 64, "input_sequence_hashes": [7]}
        request = {
            "request_id": f"r-{number}",
            "request_received_ms": 1777312800000 + number,
            "replay": replay,
        }
        event = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
        return {**event, "request": {**request, **fields}}

    path = records(tmp_path / "log", row(0, lora_name="a"), row(1, cache_salt="s"), row(2, model="m"), row(3))
    assert namespaces(path) == ["adapter=a", "cache_salt=s", "model=m", None]


def test_columns_that_the_user_names_make_the_namespace(tmp_path: Path) -> None:
    path = records(
        tmp_path / "log",
        {"token_ids": [1], "model": "m", "user": {"tenant": "t 1"}, "tier": 2},
        {"token_ids": [1], "model": "m", "user": {}, "tier": 2},
    )
    assert namespaces(path, namespace=("user.tenant", "tier")) == ['user.tenant="t 1" tier=2', "tier=2"]
    assert namespaces(path, namespace=("model",)) == ["model=m", "model=m"]
    assert namespaces(path, namespace=()) == [None, None]
    with pytest.raises(UsageError, match=r"--namespace nope: the first records of .* no such column"):
        read_log(path, namespace=("nope",))


def test_media_are_known_by_their_digests_and_stand_where_the_log_says(tmp_path: Path) -> None:
    path = records(
        tmp_path / "log",
        {
            "token_ids": [1],
            "mm_hashes": ["a", "b"],
            "mm_positions": [{"offset": 3, "length": 2}, {"offset": 9}],
        },
        {"token_ids": [1], "mm_hashes": {"image": ["a"], "audio": ["b"]}},
        {
            "token_ids": [1],
            "multi_modal_uuids": {"image": ["u"]},
            "mm_placeholders": {"image": [{"offset": 4}]},
        },
        {"token_ids": [1], "media_hashes": [7, 2**64 - 1], "media_offsets": [0, 5]},
        {"token_ids": [1], "image_data": "https://x/y.png"},
        {"token_ids": [1], "image_data": None},
    )
    table, _ = read_log(path)
    assert table["media_hashes"].to_pylist() == [
        [id_of("a"), id_of("b")], [id_of("b"), id_of("a")], [id_of("u")], [7, 2**64 - 1],
        [id_of("https://x/y.png")], None,
    ]  # fmt: skip
    assert table["media_offsets"].to_pylist() == [[3, 9], None, [4], [0, 5], None, None]


def test_a_place_of_media_that_is_none_is_refused(tmp_path: Path) -> None:
    path = records(tmp_path / "log", {"token_ids": [1], "media_hashes": [1], "media_offsets": [-1]})
    with pytest.raises(RecordError, match=r"log:1: media_offsets\[0\] is -1, expected a token's place"):
        read_log(path)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["model", "a.b"]), st.text(max_size=4)),
            max_size=2,
            unique_by=lambda p: p[0],
        ),
        max_size=6,
    )
)
def test_different_parts_make_different_namespaces(items: list[list[tuple[str, str]]]) -> None:
    made = [compose(parts) for parts in items]
    for parts, namespace in zip(items, made, strict=True):
        assert parts_of(namespace or "") == dict(parts)
        for other, same in zip(items, made, strict=True):
            assert (parts == other) == (namespace == same)


@given(st.text(max_size=12))
def test_any_text_is_a_namespace(text: str) -> None:
    parts = parts_of(text)
    assert all(isinstance(value, str) for value in parts.values())


def notices(path: Path, **reading: Any) -> list[str]:
    with kvcap.replay(
        str(path), kvcap.ReplayOptions.of(block_size=4), reading=kvcap.ReadOptions(**reading)
    ) as r:
        return [n for n in r.run.reading.notices if "shared" in n or "share" in n]


def test_the_answer_says_what_was_kept_apart_and_how_to_undo_it(tmp_path: Path) -> None:
    models = records(tmp_path / "models", *({"token_ids": IDS, "model": f"m{n}"} for n in range(3)))
    assert notices(models) == [
        "3 models in one cache of each capacity; nothing is shared between them; --pool model gives each its "
        "own; if these names are aliases of one model, --namespace none"
    ]
    assert notices(models, pool="model") == notices(models, namespace=()) == []
    salts = records(tmp_path / "salts", *({"token_ids": IDS, "model": "m", "cache_salt": n} for n in "ab"))
    assert notices(salts) == [
        "2 cache salts in one cache of each capacity; nothing is shared between them; --namespace none makes "
        "them one"
    ]
    some = records(tmp_path / "some", {"token_ids": IDS}, {"token_ids": IDS, "lora_name": "a", "model": "m"})
    assert notices(some)[0].startswith("1 model and requests without one and 1 adapter and requests without")
    own = records(tmp_path / "own", *({"token_ids": IDS, "namespace": n} for n in "ab"))
    assert notices(own)[0].startswith("2 namespaces in one cache")
    media = records(tmp_path / "media", {"token_ids": IDS, "image_data": ["x"]})
    assert notices(media)[0].startswith("1 requests have images or the like whose place")

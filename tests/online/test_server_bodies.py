"""Bodies of /v1/requests, in every form that they may have."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcap.errors import RequestRefusedError
from kvcap.online.server.arrow_bounds import MalformedStreamError, decompressed_bytes
from kvcap.online.server.bodies import decode_body
from kvcap.online.server.options import ClientLimits

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
JSON = "application/json"
LIMITS = ClientLimits(max_ids_per_request=10, max_pending=5, max_body_bytes=1 << 16)


def arrow(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue().to_pybytes()


def lists(requests: list[list[int]], kind: pa.DataType) -> pa.Array:
    return pa.array(requests, pa.list_(kind))


@given(requests=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), min_size=1, max_size=5))
def test_a_list_lines_and_an_arrow_stream_say_the_same(requests: list[list[int]]) -> None:
    objects = [{"token_ids": tokens} for tokens in requests]
    bodies = [
        (json.dumps(objects).encode(), JSON),
        (b"\n".join(json.dumps(item).encode() for item in objects) + b"\n\n", LINES),
        (arrow(token_ids=lists(requests, pa.uint32())), ARROW),
        (arrow(token_ids=lists(requests, pa.int64())), ARROW),
        (
            arrow(
                token_ids=pa.array(requests, pa.large_list(pa.int32() if _small(requests) else pa.int64()))
            ),
            ARROW,
        ),
    ]
    for body, media_type in bodies:
        found = decode_body(body, media_type, LIMITS).requests
        assert found.kind == "token_ids"
        assert found.ids.dtype == np.uint32
        assert [part.tolist() for part in np.split(found.ids, found.offsets[1:-1])] == requests


def _small(requests: list[list[int]]) -> bool:
    return all(token < 2**31 for request in requests for token in request)


def test_everything_about_a_request_arrives_in_json_and_in_arrow() -> None:
    item = {
        "hash_ids": [1, -1],
        "input_length": 70,
        "timestamp": 1.5,
        "pool": "a",
        "session_id": "s",
        "model": "m",
        "output_length": 3,
    }
    columns = {name: [value] for name, value in item.items()}
    columns["timestamp"] = pa.array([1_500_000_000], pa.timestamp("ns"))  # type: ignore[assignment]
    for body, media_type in ((json.dumps(item).encode(), JSON), (arrow(**columns), ARROW)):
        found = decode_body(body, media_type, LIMITS)
        requests = found.requests
        assert requests.ids.tolist() == [1, 2**64 - 1]
        assert requests.input_tokens is not None
        assert requests.input_tokens.tolist() == [70]
        assert requests.timestamps_us is not None
        assert requests.timestamps_us.tolist() == [1_500_000]
        assert requests.pools == ["a"]
        assert found.labels == {"session_id": ["s"], "model": ["m"], "output_length": [3]}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "no JSON"),
        (b"{", 400, "no JSON"),
        (b"[" * 5000 + b"]" * 5000, 400, "no JSON"),
        (b"[]", 422, "no request"),
        (b"3", 422, "no object"),
        (b"{}", 422, "either token_ids or hash_ids"),
        (b'{"token_ids": [1], "hash_ids": [1]}', 422, "either token_ids or hash_ids"),
        (b'{"token_ids": "abc"}', 422, "no list"),
        (b'{"token_ids": ["1"]}', 422, "expected whole numbers"),
        (b'{"token_ids": [1, null]}', 422, "expected whole numbers"),
        (b'{"token_ids": [1, [2]]}', 422, "whole numbers"),
        (b'{"token_ids": [true]}', 422, "expected whole numbers"),
        (b'{"token_ids": [1.0]}', 422, "expected whole numbers"),
        (b'{"token_ids": [4294967296]}', 422, "outside"),
        (b'{"hash_ids": [18446744073709551616]}', 422, "expected whole numbers"),
        (b'{"token_ids": [1], "extra": 1}', 422, "holds extra"),
        (b'{"token_ids": [1], "input_length": 1}', 422, "input_length"),
        (b'{"hash_ids": [1], "input_length": -1}', 422, "from 0"),
        (b'[{"hash_ids": [1], "input_length": 1}, {"hash_ids": [1]}]', 422, "all or none"),
        (b'[{"token_ids": [1]}, {"hash_ids": [1]}]', 422, "one kind"),
        (b'[{"token_ids": [1]}, {"token_ids": [-1]}]', 422, "request 1: "),
        (b'{"token_ids": [1], "timestamp": "now"}', 422, "seconds since 1970"),
        (b'{"token_ids": [1], "timestamp": 1e300}', 422, "seconds since 1970"),
        (b'{"token_ids": [1], "pool": 3}', 422, "pool is 3"),
        (b'{"token_ids": [1], "pool": "%s"}' % (b"p" * 1025), 422, "at most 1024"),
        (b'[{"token_ids": [1]}' + b', {"token_ids": [1]}' * 5 + b"]", 413, "holds 6 requests"),
        (b'{"token_ids": [1,2,3,4,5,6,7,8,9,10,11]}', 413, "at most 10"),
    ],
)
def test_a_bad_body_is_refused_with_its_cause(body: bytes, status: int, message: str) -> None:
    with pytest.raises(RequestRefusedError, match=message) as refused:
        decode_body(body, JSON, LIMITS)
    assert refused.value.status == status


def test_a_bad_line_is_named() -> None:
    with pytest.raises(RequestRefusedError, match="line 2: "):
        decode_body(b'{"token_ids": []}\n{', LINES, LIMITS)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not arrow", 400),
        (arrow(token_ids=lists([[1]], pa.uint32()))[:-30], 400),
        (arrow(token_ids=lists([[-1]], pa.int64())), 400),
        (arrow(token_ids=[1]), 400),
        (arrow(token_ids=lists([[1]], pa.float64()).slice(0, 0)), 422),
        (arrow(token_ids=pa.array([[1], None], pa.list_(pa.uint32()))), 422),
        (arrow(token_ids=pa.array([[1, None]], pa.list_(pa.uint32()))), 422),
        (arrow(prompt=["x"]), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), hash_ids=lists([[1]], pa.uint64())), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), input_length=[1]), 422),
        (arrow(hash_ids=lists([[1]], pa.uint64()), input_length=[-1]), 422),
        (arrow(hash_ids=lists([[1]], pa.uint64()), input_length=pa.array([None], pa.int64())), 422),
        (arrow(token_ids=lists([[1] * 11], pa.uint32())), 413),
        (arrow(token_ids=lists([[1]] * 6, pa.uint32())), 413),
        (arrow(token_ids=lists([[1]], pa.uint32()), output_length=[-5]), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), model=["m" * 1025]), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), pool=pa.array(["p" * 1025]).dictionary_encode()), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), pool=pc.run_end_encode(pa.array(["p"]))), 422),
        (arrow(token_ids=lists([[1]], pa.uint32()), timestamp=pa.array([-1], pa.timestamp("us"))), 422),
        (
            arrow(token_ids=lists([[1]], pa.uint32()), timestamp=pa.array([2**63 - 1], pa.timestamp("us"))),
            422,
        ),
    ],
)
def test_a_bad_stream_is_refused(body: bytes, status: int) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        decode_body(body, ARROW, LIMITS)
    assert refused.value.status == status


@given(body=st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    for media_type in (JSON, LINES, ARROW):
        with contextlib.suppress(RequestRefusedError):
            decode_body(body, media_type, LIMITS)


@given(
    requests=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), min_size=1, max_size=5),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    pools=st.booleans(),
)
def test_the_size_of_a_stream_is_told_before_it_is_decompressed(
    requests: list[list[int]], compression: str | None, pools: bool
) -> None:
    columns: dict[str, Any] = {"token_ids": lists(requests, pa.uint32())}
    if pools:
        columns["pool"] = pa.array(["p"] * len(requests)).dictionary_encode()
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as w:
        w.write_table(table)
    told = decompressed_bytes(sink.getvalue().to_pybytes())
    assert sum(len(request) for request in requests) * 4 <= told <= table.nbytes + 1024


def test_a_small_stream_of_many_bytes_is_refused_without_reading_them() -> None:
    n = 1 << 22
    table = pa.table({"token_ids": pa.ListArray.from_arrays([0, n], pa.array(np.zeros(n, np.uint32)))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    assert len(body) < LIMITS.max_body_bytes
    before = pa.total_allocated_bytes()
    with pytest.raises(RequestRefusedError, match="expected at most 65536") as refused:
        decode_body(body, ARROW, LIMITS)
    assert refused.value.status == 413
    assert pa.total_allocated_bytes() - before < n


@given(data=st.data())
def test_damaged_metadata_is_refused(data: st.DataObject) -> None:
    body = bytearray(arrow(token_ids=lists([[1, 2], [3]], pa.uint32()), pool=["a", "b"]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RequestRefusedError):
        decode_body(bytes(body), ARROW, LIMITS)
    with contextlib.suppress(MalformedStreamError, pa.ArrowException, OSError):
        decompressed_bytes(bytes(body))

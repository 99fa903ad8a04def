"""Where logs lie: Parquet of others, Hive directories, CSV exports, object stores."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from reading import id_of, read_log, write_log

from kvcap.convert import convert
from kvcap.errors import EmptyTraceError, RecordError, TraceError, UsageError
from kvcap.formats import ReadOptions, open_trace, sources


def parquet(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.uint64()), pa.list_(pa.int32())],
    ids=str,
)
def test_hash_ids_in_parquet_of_others_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    ids = pa.array([[1, 2], [], [3]], type=kind)
    times = [datetime(2026, 1, 1)] * 3
    path = parquet(tmp_path / "t.parquet", hash_ids=ids, input_length=[8, 0, 3], timestamp=times, n=[1, 2, 3])
    table, report = read_log(path, block_size=4, keep=("n",))
    assert table["hash_ids"].to_pylist() == [[1, 2], [], [3]]
    assert table["input_length"].to_pylist() == [8, 0, 3]
    assert table["timestamp"].to_pylist() == times
    assert table["n"].to_pylist() == [1, 2, 3]
    assert report.format_name == "hash-ids"


def test_ids_in_parquet_are_exact_signed_or_unsigned(tmp_path: Path) -> None:
    unsigned = pa.array([[2**63 + 5, 2**53 + 1]], type=pa.list_(pa.uint64()))
    path = parquet(tmp_path / "u.parquet", hash_ids=unsigned, input_length=[8])
    assert read_log(path, block_size=4)[0]["hash_ids"].to_pylist() == [[2**63 + 5, 2**53 + 1]]
    path = parquet(tmp_path / "s.parquet", hash_ids=[[-1, 2]], input_length=[8])
    assert read_log(path, block_size=4)[0]["hash_ids"].to_pylist() == [[2**64 - 1, 2]]
    both = [tmp_path / "s.parquet", tmp_path / "u.parquet"]
    with pytest.raises(RecordError, match=r"u\.parquet:1: hash_ids holds an id that is 2\*\*63 or more"):
        read_log(both, block_size=4)


def test_string_ids_token_ids_and_texts_in_parquet_are_read(tmp_path: Path) -> None:
    path = parquet(tmp_path / "s.parquet", hash_ids=[["a", "b"], ["a"]], input_length=[8, 4])
    assert read_log(path, block_size=4)[0]["hash_ids"].to_pylist() == [[id_of("a"), id_of("b")], [id_of("a")]]
    path = parquet(tmp_path / "t.parquet", input_ids=pa.array([[1, 2], None, [3]]))
    with pytest.raises(RecordError, match=r"t\.parquet:2: has no token ids"):
        read_log(path)
    assert read_log(path, skip_bad=1)[0]["token_ids"].to_pylist() == [[1, 2], [3]]
    path = parquet(tmp_path / "b.parquet", input_ids=[[1, -2]])
    with pytest.raises(RecordError, match=r"b\.parquet:1: input_ids\[1\] is -2, expected a token id"):
        read_log(path)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    path = parquet(tmp_path / "r.parquet", request_json=[body, body], status=[200, 503], model=["x", None])
    table, report = read_log(path)
    assert (table.num_rows, table["model"].to_pylist(), table["source_line"].to_pylist()) == (1, ["x"], [1])
    assert report.skipped == {"calls that failed": 1}


def test_null_entries_in_a_list_of_ids_are_bad(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", tokens=pa.array([[1, None]], type=pa.list_(pa.int64())))
    with pytest.raises(RecordError, match=r"t\.parquet:1: tokens\[1\] is null, expected an integer"):
        read_log(path)


def test_directories_in_the_form_of_hive_give_their_columns(tmp_path: Path) -> None:
    for day, tokens in (("2026-08-02", [[3]]), ("2026-08-01", [[1], [2]])):
        parquet(tmp_path / f"day={day}" / "region=eu%20west" / "part-0.parquet", tokens=tokens)
    (tmp_path / "_SUCCESS").touch()
    table, _ = read_log(tmp_path, keep=("day",), pool="region")
    assert table["token_ids"].to_pylist() == [[1], [2], [3]]
    assert table["day"].to_pylist() == ["2026-08-01", "2026-08-01", "2026-08-02"]
    assert table["pool"].to_pylist() == ["eu west"] * 3


def test_logs_and_parquet_can_follow_each_other(tmp_path: Path) -> None:
    first = write_log(tmp_path / "a.jsonl", "[1]")
    second = parquet(tmp_path / "b.parquet", tokens=[[2]])
    assert read_log([first, second])[0]["token_ids"].to_pylist() == [[1], [2]]
    assert read_log([second, first])[0]["token_ids"].to_pylist() == [[2], [1]]


def test_an_empty_parquet_file_holds_no_request(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", tokens=pa.array([], type=pa.list_(pa.int64())))
    with pytest.raises(EmptyTraceError, match="is empty"):
        read_log(path)


BODY = '{"model": "m", "messages": [{"role": "user", "content": "a,\\n\\"b\\""}]}'


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_exports_with_request_json_are_texts(tmp_path: Path, delimiter: str) -> None:
    pretty = json.dumps(json.loads(BODY), indent=1)
    lines = [
        ["timestamp", "status", "model", "request_json"],
        ["2026-08-01T00:00:00Z", "200", "x", quoted(BODY)],
        ["2026-08-01T00:00:01Z", "500", "x", quoted(BODY)],
        ["2026-08-01T00:00:02Z", "ok", "", quoted(pretty)],
    ]
    path = write_log(tmp_path / "t.csv", *(delimiter.join(line) for line in lines))
    table, report = read_log(path, keep=("status",))
    assert [json.loads(text) for text in table["request_json"].to_pylist()] == [json.loads(BODY)] * 2
    assert table["source_line"].to_pylist() == [2, 4]
    assert table["status"].to_pylist() == ["200", "ok"]
    assert report.skipped == {"calls that failed": 1}
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_log(tmp_path / "t.csv.gz")[0].num_rows == 2


def test_csv_rows_may_be_longer_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcap.formats.csv_chunks._READ_BYTES", 64)
    monkeypatch.setattr("kvcap.formats.csv_chunks._CHUNK_CHARACTERS", 1000)
    monkeypatch.setattr("kvcap.formats.chunks.FIRST_CHUNK_BYTES", 64)
    prompts = ["x\n" * n for n in range(60)]
    bodies = [json.dumps({"prompt": prompt}, indent=1) for prompt in prompts]
    path = write_log(tmp_path / "t.csv", "request_json", *map(quoted, bodies))
    table, _ = read_log(path)
    assert [json.loads(text)["prompt"] for text in table["request_json"].to_pylist()] == prompts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("200", r"t\.csv:3: has 1 fields, expected 2 as in the header"),
        ("200,nonsense", r"t\.csv:3: request_json is 'nonsense', expected a JSON object"),
        ("200,[1]", r"t\.csv:3: request_json is a list, expected a JSON object"),
        ('200,"{', r"t\.csv:3: is no row of an export"),
        ('200,"{}"x', r"t\.csv:3: is no row of an export"),
    ],
)
def test_a_bad_row_of_an_export_says_where(tmp_path: Path, row: str, message: str) -> None:
    path = write_log(tmp_path / "t.csv", "status,request_json", f"200,{quoted(BODY)}", row)
    with pytest.raises(RecordError, match=message):
        read_log(path)


def test_bytes_that_are_not_utf8_in_an_export_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"status,request_json\n200,\xff\n")
    with pytest.raises(RecordError, match=r"t\.csv:2: is not UTF-8 \(byte 0xff at column 5\)"):
        read_log(path)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that stands for ``s3://logs``."""
    root = tmp_path / "store"
    (root / "logs").mkdir(parents=True)
    store = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())

    monkeypatch.setattr(sources, "known_to_pyarrow", lambda url: (store, url.removeprefix("s3://")))
    return root / "logs"


def test_object_stores_are_read_by_file_directory_and_glob(bucket: Path) -> None:
    (bucket / "b.jsonl.gz").write_bytes(gzip.compress(b"[2]\n"))
    write_log(bucket / "a.jsonl", "[1]")
    parquet(bucket / "day=1" / "c.parquet", tokens=[[3]])
    assert read_log("s3://logs/a.jsonl")[0]["token_ids"].to_pylist() == [[1]]
    assert read_log("s3://logs/*.gz")[0]["token_ids"].to_pylist() == [[2]]
    table, report = read_log("s3://logs")
    assert table["token_ids"].to_pylist() == [[1], [2], [3]]
    assert report.sources == ("s3://logs/a.jsonl", "s3://logs/b.jsonl.gz", "s3://logs/day=1/c.parquet")
    with pytest.raises(FileNotFoundError):
        read_log("s3://logs/absent.jsonl")
    with pytest.raises(TraceError, match="holds no file"):
        read_log("s3://logs/*.zip")


def test_stored_traces_are_read_from_object_stores(bucket: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", '{"hash_ids": [1], "input_length": 3, "block_size": 4}')
    convert([str(log)], str(bucket / "t.parquet"))
    trace = open_trace(["s3://logs/t.parquet"])
    assert trace.chained
    assert [batch.num_rows for batch in trace.batches()] == [1]


def test_what_fsspec_knows_is_read(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/kvcap-test/a.jsonl", b"[1]\n[2]\n")
    memory.pipe("/kvcap-test/b.jsonl.gz", gzip.compress(b"[3]\n"))
    try:
        assert read_log("memory://kvcap-test/a.jsonl")[0].num_rows == 2
        assert read_log("memory://kvcap-test/*.gz")[0]["token_ids"].to_pylist() == [[3]]
        assert read_log("memory://kvcap-test")[0]["token_ids"].to_pylist() == [[1], [2], [3]]
    finally:
        memory.rm("/kvcap-test", recursive=True)


def test_an_unknown_scheme_is_an_error() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(TraceError, match="cannot be opened"):
        open_trace(["nonsense://x/y"])


def test_no_input_is_a_wrong_use() -> None:
    with pytest.raises(UsageError, match="no input given"):
        open_trace([], ReadOptions())
    assert sources.STDIN == "-"


@pytest.mark.parametrize("padding", range(16))
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_whole_wherever_reading_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: int, end: str
) -> None:
    for name, n_bytes in [("FIRST_CHUNK_BYTES", 16), ("CHUNK_BYTES", 8), ("PIECE_BYTES", 3)]:
        monkeypatch.setattr(f"kvcap.formats.chunks.{name}", n_bytes)
    lines = [f'{{"tokens": [{n}]}}' for n in range(9)]
    text = "\n".join(lines)[:-1] + " " * padding + "}"
    path = tmp_path / "t.jsonl"
    path.write_text(text + end)
    assert read_log(path)[0]["token_ids"].to_pylist() == [[n] for n in range(9)]


def test_a_line_beyond_the_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, n_bytes in [("FIRST_CHUNK_BYTES", 32), ("PIECE_BYTES", 8), ("MAX_LINE_BYTES", 64)]:
        monkeypatch.setattr(f"kvcap.formats.chunks.{name}", n_bytes)
    path = write_log(tmp_path / "t.jsonl", "[1]", "[2]", json.dumps(list(range(100))))
    with pytest.raises(RecordError, match=r"t\.jsonl:3: is longer than 64 bytes"):
        read_log(path)


def test_text_in_parquet_is_as_json_would_have_it(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": "{}"}, "id": "c"}
    messages = [
        [{"role": "user", "content": "hi"}],
        [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "4", "tool_call_id": "c"}],
    ]
    path = parquet(tmp_path / "m.parquet", messages=messages, total_hashes=[[1, 2], [3]])
    found = [json.loads(text) for text in read_log(path)[0]["request_json"].to_pylist()]
    assert [body["messages"] for body in found] == messages
    path = parquet(tmp_path / "p.parquet", prompt=["a", "b"], total_hashes=[[1, 2], [3]])
    assert read_log(path)[0].num_rows == 2

"""Token ids and hash ids from JSON Lines: what is read, and what is refused and how."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reading import id_of, read_log, write_log

from kvcap.errors import (
    EmptyTraceError,
    RecordError,
    TraceError,
    UnknownFormatError,
    UsageError,
)
from kvcap.formats import ReadOptions, log_trace, open_table, open_trace

TOKEN_LINES = ("[1, 2, 3]", '{"input_ids": [4]}', '{"token_ids": [5, 6]}', '{"tokens": []}')
HASH_LINE = '{"hash_ids": [7, 8], "input_length": 20, "block_size": 16, "timestamp": 5, "output_length": 3}'


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


@pytest.fixture(params=["plain", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading, which must not differ."""
    if request.param == "compiled":
        compiled = log_trace.read_chunk
        monkeypatch.setattr(
            log_trace, "read_chunk", lambda *args, **kwargs: compiled(*args, **{**kwargs, "compiled": True})
        )
    return str(request.param)


def test_shapes_of_token_ids_may_be_mixed(tmp_path: Path, engine: str) -> None:
    table, report = read_log(write_log(tmp_path / "t.jsonl", *TOKEN_LINES))
    assert table["token_ids"].to_pylist() == [[1, 2, 3], [4], [5, 6], []]
    assert table["input_length"].to_pylist() == [3, 1, 2, 0]
    assert report.format_name == "token-ids"


def test_hash_ids_come_with_their_lengths(tmp_path: Path, engine: str) -> None:
    table, report = read_log(write_log(tmp_path / "t.jsonl", HASH_LINE))
    row = table.to_pylist()[0]
    assert row["hash_ids"] == [7, 8]
    assert (row["input_length"], row["output_length"], row["block_size"]) == (20, 3, 16)
    assert row["timestamp"].microsecond == 5000
    assert report.format_name == "hash-ids"


def test_ids_are_exact_to_64_bits(tmp_path: Path, engine: str) -> None:
    unsigned = (
        '{"hash_ids": [9007199254740993, 9223372036854775813, 18446744073709551615], "input_length": 3}'
    )
    table, _ = read_log(write_log(tmp_path / "u.jsonl", unsigned), block_size=1)
    assert table["hash_ids"].to_pylist() == [[2**53 + 1, 2**63 + 5, 2**64 - 1]]
    signed = '{"hash_ids": [-9223372036854775808, -1, 9223372036854775807], "input_length": 3}'
    table, _ = read_log(write_log(tmp_path / "s.jsonl", signed), block_size=1)
    assert table["hash_ids"].to_pylist() == [[2**63, 2**64 - 1, 2**63 - 1]]


def test_signed_and_unsigned_ids_in_one_log_are_refused(tmp_path: Path, engine: str) -> None:
    lines = (
        '{"hash_ids": [-1], "input_length": 1}',
        '{"hash_ids": [18446744073709551615], "input_length": 1}',
    )
    with pytest.raises(
        RecordError, match=r":2: hash_ids holds an id that is 2\*\*63 or more where one before"
    ):
        read_log(write_log(tmp_path / "t.jsonl", *lines), block_size=1)


def test_string_ids_have_the_same_number_in_every_log(tmp_path: Path, engine: str) -> None:
    lines = ('{"hash_ids": ["b", "a"], "input_length": 2}', '{"hash_ids": ["0x1", "b"], "input_length": 2}')
    tables = [read_log(write_log(tmp_path / "t.jsonl", line), block_size=1)[0] for line in lines]
    assert [table["hash_ids"].to_pylist() for table in tables] == [
        [[id_of("b"), id_of("a")]],
        [[id_of("0x1"), id_of("b")]],
    ]


def test_bom_crlf_blank_lines_and_a_missing_last_line_feed_are_fine(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xef\xbb\xbf[1]\r\n\r\n  \n[2]\n\n[3]")
    table, report = read_log(path)
    assert table["token_ids"].to_pylist() == [[1], [2], [3]]
    assert report.records == 3


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, bz2.compress, zstd], ids=["gz", "xz", "bz2", "zst"]
)
def test_compression_is_told_from_the_content(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "misnamed.txt"
    data = "".join(f"{line}\n" for line in TOKEN_LINES).encode()
    path.write_bytes(pack(data))
    assert read_log(path)[0].num_rows == 4
    path.write_bytes(pack(data[:20]) + pack(data[20:]))
    assert read_log(path)[0].num_rows == 4


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, bz2.compress, zstd], ids=["gz", "xz", "bz2", "zst"]
)
def test_compressed_data_that_ends_early_is_an_error(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "t.jsonl.gz"
    data = os.urandom(3000).hex()
    packed = pack("".join(f'{{"tokens": [{i}], "x": "{data}"}}\n' for i in range(20)).encode())
    path.write_bytes(packed[:-20])
    with pytest.raises(TraceError, match="compressed data ends early"):
        read_log(path)
    path.write_bytes(packed[: len(packed) // 2] + bytes(64) + packed[len(packed) // 2 + 64 :])
    with pytest.raises(TraceError, match="compressed data is damaged"):
        read_log(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is '{', expected JSON"),
        ("nonsense", "is 'nonsense', expected JSON"),
        ("3", "is 3, expected a list of token ids"),
        ("null", "is null, expected"),
        ('{"tokens": [1, true]}', r"tokens\[1\] is true, expected an integer"),
        ('{"tokens": [1.5]}', r"tokens\[0\] is 1.5, expected an integer"),
        ('{"tokens": [1, -2]}', r"tokens\[1\] is -2, expected a token id from 0 to 4294967295"),
        ('{"tokens": [1, 4294967296]}', r"tokens\[1\] is 4294967296, expected a token id"),
        ('{"tokens": [1, 18446744073709551616]}', r"tokens\[1\] is .*, expected an integer of at most"),
        ('{"tokens": "1"}', "tokens is '1', expected a list of integers"),
        ('{"tokens": [[1], 2]}', r"tokens\[0\] is a list, expected an integer"),
        ('{"tokens": [1], "input_ids": [1]}', "has input_ids and tokens, expected exactly one of"),
        ('{"text": "x"}', "has no token ids, expected exactly one of"),
        ('{"tokens": [1], "output_length": -1}', "output_length is -1, expected an integer from 0"),
        ('{"tokens": [1], "timestamp": true}', "timestamp is true, expected a number or an ISO 8601 date"),
        ('{"tokens": [1], "timestamp": "today"}', "timestamp is 'today', expected a number or"),
        ('{"tokens": [1], "timestamp": 1e300}', "timestamp is 1e[+]300, expected a time in the years"),
    ],
)  # fmt: skip
def test_a_bad_token_record_is_one_line_with_file_line_and_field(
    tmp_path: Path, engine: str, line: str, message: str
) -> None:
    path = write_log(tmp_path / "t.jsonl", "[1]", "", line)
    with pytest.raises(RecordError, match=rf"t\.jsonl:3: {message}"):
        read_log(path)
    table, report = read_log(path, skip_bad=1)
    assert table.num_rows == 1
    assert report.bad_records == 1
    assert ":3: " in report.bad_examples[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('"input_length": 2', "hash_ids is missing, expected a list of ids"),
        ('"hash_ids": null, "input_length": 2', "hash_ids is null, expected a list of ids"),
        ('"hash_ids": [1]', "input_length is missing, expected an integer from 0"),
        ('"hash_ids": [1], "input_length": 1.5', "input_length is 1.5, expected an integer"),
        ('"hash_ids": [1], "input_length": true', "input_length is true, expected an integer"),
        ('"hash_ids": ["a", 1], "input_length": 2', r"hash_ids\[1\] is 1, expected a string"),
        ('"hash_ids": [1, "a"], "input_length": 2', r"hash_ids\[1\] is 'a', expected an integer"),
        ('"hash_ids": ["a"], "input_length": 1', "hash_ids holds strings, expected integers as in"),
        ('"hash_ids": {"a": 1}, "input_length": 1', "hash_ids is an object, expected a list"),
        ('"hash_ids": [1, 2], "input_length": 2, "block_tokens": [1]', r"block_tokens has 1 entries"),
        ('"hash_ids": [1], "input_length": 2, "block_tokens": [0]', r"block_tokens\[0\] is 0, expected an"),
        ('"hash_ids": [1], "input_length": 2, "block_size": 8', "block_size is 8, expected 16 as in"),
        ('"hash_ids": [1], "input_length": 2, "block_size": 0', "block_size is 0, expected an integer"),
    ],
)  # fmt: skip
def test_a_bad_hash_record_is_one_line_with_file_line_and_field(
    tmp_path: Path, engine: str, fields: str, message: str
) -> None:
    path = write_log(tmp_path / "t.jsonl", HASH_LINE, f"{{{fields}}}")
    with pytest.raises(RecordError, match=rf"t\.jsonl:2: {message}"):
        read_log(path, block_size=16)


def test_bytes_that_are_not_utf8_are_an_error(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'[1]\n{"tokens": [1], "model": "\xff"}\n')
    with pytest.raises(RecordError, match=r"t\.jsonl:2: is not UTF-8 \(byte 0xff at column 27\)"):
        read_log(path)


def test_no_block_size_anywhere_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t.jsonl", '{"hash_ids": [1], "input_length": 2}')
    with pytest.raises(
        RecordError, match="block_size is missing, expected it in the record or as --block-size"
    ):
        read_log(path, skip_bad=5)


def test_a_declared_block_size_wins_with_a_notice(tmp_path: Path) -> None:
    table, report = read_log(write_log(tmp_path / "t.jsonl", HASH_LINE), block_size=64)
    assert table["block_size"].to_pylist() == [16]
    assert any("wins over --block-size 64" in notice for notice in report.notices)


def test_too_many_and_too_few_ids_are_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"hash_ids": ids, "input_length": 20}) for ids in ([1], [1, 2], [1, 2, 3])]
    _, report = read_log(write_log(tmp_path / "t.jsonl", *lines), block_size=16)
    assert (report.underfull_requests, report.overfull_requests) == (1, 1)


@pytest.mark.parametrize(("ids", "word"), [([1], "floor"), ([1, 2], "ceil")])
def test_the_convention_of_the_last_block_is_said(tmp_path: Path, ids: list[int], word: str) -> None:
    line = json.dumps({"hash_ids": ids, "input_length": 20, "block_size": 16})
    _, report = read_log(write_log(tmp_path / "t.jsonl", line))
    assert any(f"({word})" in notice for notice in report.notices)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(EmptyTraceError, match="is empty"):
        read_log(path)


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\x80\x04\x95")
    with pytest.raises(UnknownFormatError, match="is a Python pickle, which can run code"):
        read_log(path)


def test_an_unknown_record_is_an_error_that_names_its_keys(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="an object of a, b: it holds no prompt"):
        read_log(write_log(tmp_path / "t.jsonl", '{"a": 1, "b": 2}'))


def test_an_unknown_format_name_is_a_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--input-format is 'x', expected one of"):
        read_log(write_log(tmp_path / "t.jsonl", "[1]"), input_format="x")


def test_files_globs_and_directories_replay_in_order(tmp_path: Path) -> None:
    second = write_log(tmp_path / "b.jsonl", "[2]", "[3]")
    first = write_log(tmp_path / "a.jsonl", "[1]")
    (tmp_path / "_SUCCESS").touch()
    assert read_log([second, first])[0]["token_ids"].to_pylist() == [[2], [3], [1]]
    assert read_log(tmp_path / "*.jsonl")[0]["token_ids"].to_pylist() == [[1], [2], [3]]
    table, report = read_log(tmp_path)
    assert table["token_ids"].to_pylist() == [[1], [2], [3]]
    assert report.sources == (str(first), str(second))
    with pytest.raises(TraceError, match="holds no file"):
        read_log(tmp_path / "*.json")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        stream.write(b"[1]\n[2]\n")
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert read_log("-")[0].num_rows == 2
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(reader)
    with pytest.raises(UsageError, match="standard input"):
        open_trace(["-", "-"])


def test_kept_columns_have_the_type_of_the_first_records(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "t.jsonl",
        '{"tokens": [1], "n": 1, "x": 1.5, "b": true, "s": "a", "o": {"p": [1]}}',
        '{"tokens": [2], "n": null, "x": 2, "s": 3, "o": {"p": "q"}}',
    )
    table, _ = read_log(path, keep=("n", "x", "b", "s", "o", "o.p"))
    assert table.select(["n", "x", "b", "s", "o", "o.p"]).to_pylist() == [
        {"n": 1, "x": 1.5, "b": True, "s": "a", "o": '{"p":[1]}', "o.p": "[1]"},
        {"n": None, "x": 2.0, "b": None, "s": "3", "o": '{"p":"q"}', "o.p": "q"},
    ]
    with pytest.raises(UsageError, match="--keep y: the first records of"):
        read_log(path, keep=("y",))


def test_a_column_names_the_pools(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t.jsonl", '{"tokens": [1], "pod": 3}', '{"tokens": [2], "pod": "x"}')
    assert read_log(path, pool="pod")[0]["pool"].to_pylist() == ["3", "x"]
    with pytest.raises(RecordError, match=r"t\.jsonl:3: pod is missing, expected a value"):
        read_log(write_log(path, '{"tokens": [1], "pod": 3}', "", '{"tokens": [2]}'), pool="pod")


def test_max_requests_stops_early(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t.jsonl", "[1]", "[2]", "nonsense")
    assert read_log(path, max_requests=2)[0].num_rows == 2


def test_a_json_array_over_many_lines_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"tokens": [1]}, {"tokens": [2, 3]}], indent=2))
    assert read_log(path)[0]["token_ids"].to_pylist() == [[1], [2, 3]]


def test_a_long_first_line_is_no_document_wherever_its_first_part_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '{"meta": {"a": [1, [2], {"b": 3}]}, "tokens": [1, 2]}'
    path = write_log(tmp_path / "t.jsonl", line, line)
    for n_bytes in range(6, len(line)):
        monkeypatch.setattr("kvcap.formats.chunks.FIRST_CHUNK_BYTES", n_bytes)
        assert read_log(path)[0]["token_ids"].to_pylist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("threads", [1, 3])
def test_large_logs_are_read_by_threads_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(log_trace, "PLAIN_BYTES", 0)
    monkeypatch.setattr("kvcap.formats.chunks.FIRST_CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr("kvcap.formats.chunks.CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr("kvcap.formats.chunks.PIECE_BYTES", 1 << 8)
    lines = [json.dumps({"tokens": list(range(i % 300)), "i": i}) for i in range(2000)]
    table, _ = read_log(write_log(tmp_path / "t.jsonl", *lines), threads=threads, keep=("i",))
    assert table["i"].to_pylist() == list(range(2000))
    assert table["token_ids"].to_pylist() == [list(range(i % 300)) for i in range(2000)]
    lines[1500] = '{"tokens": [1, "x"], "i": 0}'
    with pytest.raises(RecordError, match=r":1501: tokens\[1\] is 'x'"):
        read_log(write_log(tmp_path / "t.jsonl", *lines), threads=threads)


def test_closing_a_trace_early_stops_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(log_trace, "PLAIN_BYTES", 0)
    monkeypatch.setattr("kvcap.formats.chunks.CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr("kvcap.formats.assemble.MAX_BATCH_IDS", 100)
    trace = open_trace([str(write_log(tmp_path / "t.jsonl", *["[1]"] * 900_000))], ReadOptions(threads=2))
    next(iter(trace.batches()))
    trace.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("kvcap-work")]


def test_tables_in_memory_are_sources() -> None:
    table = pa.table({"token_ids": [[1, 2], []], "tenant": ["a", "b"]})
    trace = open_table(table, ReadOptions(pool="tenant"))
    (batch,) = trace.batches()
    assert batch.column("token_ids").to_pylist() == [[1, 2], []]
    assert batch.column("pool").to_pylist() == ["a", "b"]
    with pytest.raises(RecordError, match=r"table:2: token_ids\[0\] is -1"):
        list(open_table(pa.table({"token_ids": [[1], [-1]]})).batches())
    with pytest.raises(UsageError, match="a int is no source"):
        open_table(3)


def test_polars_frames_are_sources() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"hash_ids": [[2**63 + 5, 1], [3]], "input_length": [20, 3]})
    (batch,) = open_table(frame, ReadOptions(block_size=16)).batches()
    assert batch.column("hash_ids").to_pylist() == [[2**63 + 5, 1], [3]]


def test_reading_small_logs_needs_neither_numba_nor_polars(tmp_path: Path) -> None:
    import subprocess

    path = write_log(tmp_path / "t.jsonl", *TOKEN_LINES)
    code = (
        "import sys; from kvcap.formats import open_trace\n"
        f"print(sum(b.num_rows for b in open_trace([{str(path)!r}]).batches()))\n"
        "print(sorted({'numba', 'polars', 'duckdb'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[:2] == ["4", "[]"]


def test_batches_of_texts_are_bounded_by_their_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvcap.formats import ReadOptions, open_trace
    from kvcap.formats.assemble import _CHARACTERS_PER_ID, _IDS_PER_ROW

    limit = 4096
    monkeypatch.setattr("kvcap.formats.assemble.MAX_BATCH_IDS", limit)
    lengths = [*[30_000] * 5, *[10] * 500, *[3_000] * 20]
    lines = [json.dumps({"messages": [{"role": "user", "content": "x" * length}]}) for length in lengths]
    trace = open_trace([str(write_log(tmp_path / "log", *lines))], ReadOptions(threads=1))
    batches = list(trace.batches())
    assert sum(batch.num_rows for batch in batches) == len(lengths)
    for number, batch in enumerate(batches):
        texts = batch.column("request_json").to_pylist()
        weights = [_IDS_PER_ROW + len(text) // _CHARACTERS_PER_ID for text in texts]
        assert sum(weights[:-1]) < limit
        assert sum(weights) >= limit or number == len(batches) - 1

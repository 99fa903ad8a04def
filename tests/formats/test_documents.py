"""Lists on one line, documents with a list of records, tables, and JSON that only Python takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from body_kinds import ANTHROPIC, CHAT, KINDS, SYSTEM, USER, Kind
from reading import read_log, write_log

from kvcap.errors import EmptyTraceError, RecordError, TraceError, UnknownFormatError, UsageError
from kvcap.formats.options import FieldOptions

HASHES = [{"hash_ids": [n, n + 1], "input_length": 8, "block_size": 4} for n in range(3)]
TOKENS: list[Any] = [[1, 2, 3], [4], [5, 6]]


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_log(path, **options)[0].to_pylist()
    return [{key: row[key] for key in row if not key.startswith("source_")} for row in rows]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("records", [HASHES, TOKENS, [CHAT] * 3, [ANTHROPIC] * 3, [{"prompt": [1, 2]}] * 2])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("named", [False, True])
def test_a_list_of_records_is_the_log_of_them(
    records: list[Any], indent: int | None, named: bool, tmp_path: Path
) -> None:
    lines = read_log(write_log(tmp_path / "lines", *map(json.dumps, records)))
    expected = read(tmp_path / "lines")
    options = {"input_format": lines[1].format_name} if named else {}
    assert read(written(tmp_path / "list", json.dumps(records, indent=indent)), **options) == expected
    if isinstance(records[0], dict):
        document = {"object": "list", "data": records, "has_more": False}
        assert read(written(tmp_path / "data", json.dumps(document, indent=indent)), **options) == expected


@pytest.mark.parametrize("kind", KINDS, ids=[f"{kind.name}-{i}" for i, kind in enumerate(KINDS)])
def test_every_kind_may_come_as_a_list_on_one_line(kind: Kind, tmp_path: Path) -> None:
    once = read(write_log(tmp_path / "lines", json.dumps(kind.record)))
    assert len(read(written(tmp_path / "list", json.dumps([kind.record] * 2)))) == 2 * len(once)


def test_a_bad_record_of_a_list_says_which_and_is_one_of_them(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", json.dumps([HASHES[0], {"hash_ids": [1]}, HASHES[1]]))
    with pytest.raises(RecordError, match=r"t\.json:1: \[1\]\.input_length is missing"):
        read_log(path)
    table, report = read_log(path, skip_bad=1)
    assert (table.num_rows, report.records, report.bad_records) == (2, 3, 1)


@pytest.mark.parametrize("text", ["[]", "[]\n", "\n[]\n\n"])
def test_an_empty_list_holds_no_request(text: str, tmp_path: Path) -> None:
    with pytest.raises(EmptyTraceError, match="is empty, expected at least one request"):
        read_log(written(tmp_path / "t.json", text))


def test_a_list_of_integers_among_other_records_makes_no_log_of_token_ids(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t.jsonl", json.dumps({"kind": "note"}), "[1]", json.dumps({"kind": "note"}))
    with pytest.raises(UnknownFormatError, match="the first record is an object of kind"):
        read_log(path)
    assert read_log(write_log(tmp_path / "u", "[1]", '{"tokens": [2]}'))[0].num_rows == 2


def test_prompts_of_token_ids_need_no_tokenizer(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t", '{"model": "m", "prompt": [1, 2]}', '{"prompt_token_ids": [3]}')
    table, report = read_log(path)
    assert (report.format_name, table["token_ids"].to_pylist()) == ("token-ids", [[1, 2], [3]])
    mixed = write_log(tmp_path / "u", '{"prompt": [1, 2]}', '{"prompt": "text"}')
    assert read_log(mixed)[1].format_name == "openai-requests"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_tables_of_ids_and_of_text_are_read(delimiter: str, tmp_path: Path) -> None:
    def table(*rows: list[str]) -> Path:
        quoted = (delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
        return write_log(tmp_path / "t.csv", *quoted)

    path = table(["hash_ids", "input_length", "block_size", "session_id"], ["[1, 2]", "1024.0", "512", ""])
    (row,) = read(path)
    assert (row["hash_ids"], row["input_length"], row["session_id"]) == ([1, 2], 1024, None)
    path = table(["messages", "model", "output_length"], [json.dumps([SYSTEM, USER]), "m", "3"])
    (row,) = read(path)
    assert json.loads(row["request_json"])["messages"] == [SYSTEM, USER]
    assert row["output_length"] == 3
    path = table(["input_ids", "timestamp"], ["[5, 6]", "7"])
    assert read(path)[0]["token_ids"] == [5, 6]


@pytest.mark.parametrize(
    "header",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion",
    ],
)
def test_tables_of_lengths_hear_that_they_hold_no_prompts(header: str, tmp_path: Path) -> None:
    path = write_log(tmp_path / "t.csv", header, ",".join("1" * len(header.split(","))))
    with pytest.raises(UnknownFormatError, match="lengths: records with lengths alone"):
        read_log(path)


def test_a_table_without_names_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="without names of its columns, expected a first line"):
        read_log(write_log(tmp_path / "t.csv", "0,0,0,,0,0", "600,0,0,,0,0"))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", '"\\ud83d"', "1" * 400])
def test_what_only_python_takes_stops_no_run_in_fields_that_nobody_reads(value: str, tmp_path: Path) -> None:
    ids = f'{{"hash_ids": [1], "input_length": 4, "block_size": 4, "loss": {value}}}'
    assert read(write_log(tmp_path / "t", ids))[0]["hash_ids"] == [1]
    text = f'{{"messages": [{{"role": "user", "content": "hi"}}], "loss": {value}}}'
    assert json.loads(read(write_log(tmp_path / "u", text))[0]["request_json"])["messages"] == [USER]


def test_half_a_character_in_a_prompt_is_refused(tmp_path: Path) -> None:
    line = '{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    with pytest.raises(RecordError, match="t:1: cannot be written as JSON"):
        read_log(write_log(tmp_path / "t", line))


def test_a_body_is_read_where_the_user_says(tmp_path: Path) -> None:
    record = {"timestamp": 5, "who": {"id": "s"}, "call": {"sent": json.dumps(ANTHROPIC)}, "n": {"hit": 3}}
    path = write_log(tmp_path / "t", json.dumps(record))
    (row,) = read(path, fields=FieldOptions(body="call.sent", session="who.id", cached="n.hit"))
    assert json.loads(row["request_json"])["messages"] == [SYSTEM, USER]
    assert (row["session_id"], row["observed_cached_tokens"], row["model"]) == ("s", 3, "m")
    listed = write_log(tmp_path / "u", json.dumps({"who": "s", "calls": [{"b": CHAT}, {"b": CHAT}]}))
    rows = read(listed, fields=FieldOptions(body="calls[].b", session="who"))
    assert [row["session_id"] for row in rows] == ["s", "s"]
    bodies = write_log(tmp_path / "v", json.dumps({"calls": [CHAT]}))
    assert len(read(bodies, fields=FieldOptions(body="calls[]"))) == 1
    text = write_log(tmp_path / "w", json.dumps({"question": "why?"}))
    (row,) = read(text, fields=FieldOptions(body="question"))
    assert json.loads(row["request_json"]) == {"prompt": "why?"}


def test_a_body_that_is_not_there_names_its_option(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t", json.dumps({"a": 1}), json.dumps({"b": 1}))
    with pytest.raises(
        UsageError, match=r"--body-field x: the first records .* the first one is an object of a"
    ):
        read_log(path, fields=FieldOptions(body="x"))
    with pytest.raises(UsageError, match="expected no --input-format beside it"):
        read_log(path, fields=FieldOptions(body="x"), input_format="otel")
    path = write_log(tmp_path / "u", json.dumps({"a": CHAT}), json.dumps({"b": CHAT}))
    with pytest.raises(RecordError, match="u:2: a is missing, expected a request body: is it there in every"):
        read_log(path, fields=FieldOptions(body="a"))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"outer": {"sent": CHAT}},
            "a request body stands at outer.sent: read it with --body-field outer.sent",
        ),
        ({"outer": [{"sent": json.dumps(CHAT)}]}, r"read it with --body-field outer\[\].sent"),
        ({"role": "user", "content": "hi"}, "jq -s .* read that with --conversations turns"),
        ({"keys": {"block_hashes": [1, 2]}}, "keys.block_hashes looks like ids: name it hash_ids"),
        ({"user": {"question": "why?"}}, "if user.question holds whole prompts, read it with --body-field"),
        ({"metrics": {"input_tokens_mean": 4}}, "it holds lengths and no prompt .*: log of each request"),
        ({"x": 1}, "it holds no prompt that is known: log of each request"),
        ("x", "it holds no prompt that is known: log of each request"),
    ],
)
def test_an_unknown_log_hears_what_to_do(record: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match=message):
        read_log(write_log(tmp_path / "t", json.dumps(record)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[TRT-LLM][INFO] x", "expected JSON .*; of servers' own logs those of vLLM"),
        (
            "time=2026-01-01 level=INFO msg=hi",
            "expected JSON .*; of servers' own logs those of vLLM and SGLang",
        ),
        ('{"messages": [', "expected JSON .*; is the file whole, or are its lines cut"),
    ],
)
def test_a_first_line_that_is_no_json_hears_what_to_do(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=message):
        read_log(write_log(tmp_path / "t", line, line))


@pytest.mark.skipif(which("zstd") is None, reason="needs zstd")
def test_frames_without_data_are_skipped_and_a_large_window_is_named(tmp_path: Path) -> None:
    plain = write_log(tmp_path / "plain", *map(json.dumps, HASHES))
    packed = subprocess.run(["zstd", "-c", str(plain)], capture_output=True, check=True).stdout
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + len(packed).to_bytes(4, "little")
    (tmp_path / "p.zst").write_bytes((skippable + packed) * 2)
    assert len(read(tmp_path / "p.zst")) == 6
    large = subprocess.run(
        ["zstd", "--ultra", "--long=31", "-c"], input=plain.read_bytes(), capture_output=True, check=True
    ).stdout
    (tmp_path / "large.zst").write_bytes(large)
    with pytest.raises(TraceError, match=r"zstd of a window over 128 MiB .*zstd -dc --long=31"):
        read_log(tmp_path / "large.zst")

"""Conversion: what is written replays as what was read, and nothing is left half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read_log, write_log
from strategies import prefix_forests

from kvcap.convert import ConvertOptions, convert, job
from kvcap.errors import EmptyTraceError, RecordError, SchemaError, UsageError
from kvcap.formats import ReadOptions, open_trace
from kvcap.parquet_io import parquet_file
from kvcap.replay import ReplayOptions, replay
from kvcap.schema import PROVENANCE_KEY


def hash_lines(requests: list[list[int]], block_size: int = 4) -> list[str]:
    return [
        json.dumps(
            {
                "hash_ids": ids,
                "input_length": max(0, len(ids) * block_size - 1),
                "block_size": block_size,
                "timestamp": 10 * index,
                "session_id": f"user {index % 2}",
                "model": "secret",
                "tenant": f"t{index % 3}",
            }
        )
        for index, ids in enumerate(requests)
    ]


def answers(path: Path, **options: Any) -> dict[str, Any]:
    """Return every integer that a replay finds."""
    reading = ReadOptions(**options)
    with replay(
        str(path), ReplayOptions.of(block_size=options.get("block_size")), reading=reading
    ) as results:
        requests = results.table("requests").select(
            ["input_length", "blocks", "ceiling_blocks", "ceiling_tokens", "required_blocks"]
        )
        return {"requests": requests.to_pylist(), "curve": results.table("curve").to_pylist()}


def provenance(path: Path) -> dict[str, Any]:
    return json.loads(pq.read_metadata(path).metadata[PROVENANCE_KEY])


REQUESTS = [[1, 2, 3], [1, 2, 3, 4], [9], [1, 2, 5], [], [9, 10]]


def test_a_parquet_trace_reads_back_as_the_log(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS))
    out = tmp_path / "t.parquet"
    result = convert([str(log)], str(out), ReadOptions(keep=("tenant",), pool="model"))
    assert (result.kind, result.report.requests, result.chained) == ("hash_ids", 6, True)
    original, _ = read_log(log, keep=("tenant",), pool="model")
    converted, report = read_log(out)
    assert converted.equals(original)
    assert report.format_name == "trace"
    assert read_log(out, pool="tenant", keep=("tenant",))[0]["pool"].to_pylist() == ["t0", "t1", "t2"] * 2
    assert answers(out) == answers(log, pool="model")


def test_token_traces_read_back_too(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "t.jsonl", "[1, 2, 3]", '{"tokens": [1], "output_ids": [5], "timestamp": 3}', "[]"
    )
    convert([str(log)], str(tmp_path / "t.parquet"))
    assert read_log(tmp_path / "t.parquet")[0].equals(read_log(log)[0])


def test_several_inputs_become_one_trace_and_traces_can_be_joined(tmp_path: Path) -> None:
    first = write_log(tmp_path / "a.jsonl", *hash_lines(REQUESTS[:3]))
    second = write_log(tmp_path / "b.jsonl", *hash_lines(REQUESTS[3:]))
    for name, paths in (("ab", [first, second]), ("a", [first]), ("b", [second])):
        convert([str(path) for path in paths], str(tmp_path / f"{name}.parquet"))
    together, _ = read_log(tmp_path / "ab.parquet")
    joined, report = read_log([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert joined.equals(together)
    assert report.backward_timestamps == 0
    in_file_order, report = read_log([tmp_path / "a.parquet", tmp_path / "b.parquet"], order="file")
    assert report.backward_timestamps == 1
    assert not in_file_order.equals(together)


@pytest.mark.parametrize(
    ("requests", "chained"), [(REQUESTS, True), ([[1, 2], [3, 2]], False), ([[1, 1]], False)]
)
def test_whether_ids_are_chained_is_noted_and_changes_no_answer(
    tmp_path: Path, requests: list[list[int]], chained: bool
) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(requests))
    result = convert([str(log)], str(tmp_path / "t.parquet"))
    assert result.chained == chained
    trace = open_trace([str(tmp_path / "t.parquet")])
    assert trace.chained == chained
    trace.close()
    assert answers(tmp_path / "t.parquet") == answers(log)


def test_beyond_a_number_of_ids_chaining_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MAX_CHECK_ENTRIES", 100)
    log = write_log(tmp_path / "t.jsonl", *hash_lines([[1000 * n for n in range(2000)]]))
    assert not convert([str(log)], str(tmp_path / "t.parquet")).chained


@given(prefix_forests(), st.sampled_from([0, 2**32, 2**63 - 4]))
def test_anonymized_hash_ids_replay_to_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory, requests: list[list[int]], base: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("anonymize")
    lines = hash_lines([[base + item for item in request] for request in [*requests, [3]]])
    log = write_log(tmp_path / "t.jsonl", *lines)
    out = tmp_path / "t.parquet"
    convert([str(log)], str(out), ReadOptions(pool="tenant"), ConvertOptions(anonymize=True))
    table, _ = read_log(out)
    numbers = [item for ids in table["hash_ids"].to_pylist() for item in ids]
    assert list(dict.fromkeys(numbers)) == list(range(len(set(numbers))))
    before, after = answers(log, pool="tenant"), answers(out)
    assert after["requests"] == before["requests"]
    assert strip_pools(after["curve"]) == strip_pools(before["curve"])


def strip_pools(curve: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted([value for name, value in row.items() if name != "pool"] for row in curve)


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=8))
def test_anonymized_token_lists_replay_to_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]]
) -> None:
    tmp_path = tmp_path_factory.mktemp("anonymize")
    records = [{"token_ids": prompt} for prompt in prompts]
    log = write_log(tmp_path / "t.jsonl", *map(json.dumps, records))
    out = tmp_path / "t.parquet"
    result = convert([str(log)], str(out), ReadOptions(block_size=2), ConvertOptions(anonymize=True))
    assert result.kind == "hash_ids"
    assert result.chained
    assert answers(out) == answers(log, block_size=2)


def test_an_anonymized_trace_holds_no_names(tmp_path: Path) -> None:
    log = write_log(tmp_path / "private.jsonl", *hash_lines(REQUESTS))
    out = tmp_path / "t.parquet"
    convert([str(log)], str(out), ReadOptions(pool="tenant"), ConvertOptions(anonymize=True))
    table, _ = read_log(out)
    assert table["session_id"].null_count == table["model"].null_count == 6
    assert table["pool"].to_pylist() == ["0", "1", "2"] * 2
    content = out.read_bytes()
    assert not [word for word in (b"secret", b"user", b"tenant", b"private") if word in content]
    with pytest.raises(UsageError, match="--anonymize drops all kept columns"):
        convert(
            [str(log)], str(out), ReadOptions(keep=("tenant",)), ConvertOptions(anonymize=True, force=True)
        )


def test_mooncake_output_reads_back_and_replays_to_the_same_answers(tmp_path: Path) -> None:
    lines = hash_lines(REQUESTS)
    lines.append(
        '{"hash_ids": [18446744073709551615], "input_length": 3, "block_size": 4, "block_tokens": [3]}'
    )
    log = write_log(tmp_path / "t.jsonl", *lines)
    out = tmp_path / "out.jsonl"
    convert([str(log)], str(out), ReadOptions(keep=("tenant",)), ConvertOptions(target="mooncake"))
    first = json.loads(out.read_text().splitlines()[1])
    assert first == {
        "timestamp": 10, "session_id": "user 1", "model": "secret", "input_length": 15, "block_size": 4,
        "hash_ids": [1, 2, 3, 4], "block_tokens": [4, 4, 4, 3], "tenant": "t1",
        "namespace": "model=secret",
    }  # fmt: skip
    assert read_log(out)[0].equals(read_log(log)[0])
    assert answers(out) == answers(log)


def test_token_lists_become_mooncake_blocks(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", "[1, 2, 3, 4, 5]", "[1, 2, 9, 9]", "[3]")
    out = tmp_path / "out.jsonl"
    convert([str(log)], str(out), ReadOptions(block_size=2), ConvertOptions(target="mooncake"))
    assert [json.loads(line)["hash_ids"] for line in out.read_text().splitlines()] == [[0, 1], [0, 2], []]
    assert answers(out) == answers(log, block_size=2)


@pytest.mark.parametrize("options", [ConvertOptions(anonymize=True), ConvertOptions(target="mooncake")])
def test_text_is_converted_only_as_it_is(tmp_path: Path, options: ConvertOptions) -> None:
    log = write_log(tmp_path / "t.jsonl", '{"messages": [{"role": "user", "content": "hi"}]}')
    with pytest.raises(UsageError, match="this log holds text"):
        convert([str(log)], str(tmp_path / "out"), None, options)
    assert not (tmp_path / "out").exists()
    result = convert([str(log)], str(tmp_path / "t.parquet"))
    assert any("--tokenizer" in notice for notice in result.report.notices)
    assert read_log(tmp_path / "t.parquet")[0].equals(read_log(log)[0])


def test_provenance_says_how_a_trace_came_about(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS[:2]), "nonsense")
    convert([str(log)], str(tmp_path / "t.parquet"), ReadOptions(skip_bad=1))
    told = provenance(tmp_path / "t.parquet")
    assert told["report"]["sources"] == [str(log)]
    assert (told["report"]["records"], told["report"]["requests"], told["report"]["bad_records"]) == (3, 2, 1)
    assert told["read_options"]["skip_bad"] == 1
    assert told["chained"] is True


def test_an_existing_output_is_kept_without_force_and_by_a_run_that_fails(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS), "nonsense")
    out = tmp_path / "t.parquet"
    out.write_text("old")
    with pytest.raises(UsageError, match="exists; give --force to overwrite it"):
        convert([str(log)], str(out))
    with pytest.raises(RecordError):
        convert([str(log)], str(out), None, ConvertOptions(force=True))
    lines = tmp_path / "out.jsonl"
    lines.write_text("old")
    with pytest.raises(RecordError):
        convert([str(log)], str(lines), None, ConvertOptions(force=True, target="mooncake"))
    assert out.read_text() == lines.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "t.jsonl", "t.parquet"]
    convert([str(log)], str(out), ReadOptions(skip_bad=1), ConvertOptions(force=True))
    assert read_log(out)[0].num_rows == 6


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("t.csv", "parquet", "Parquet is written, expected a name such as t.parquet"),
        ("t.jsonl", "parquet", "Parquet is written, expected a name such as t.parquet"),
        ("-", "parquet", "Parquet is written to a file, expected a path such as x.parquet, not -"),
        ("t.parquet", "mooncake", "JSON Lines is written, expected a name such as t.jsonl"),
        ("t.jsonl.gz", "mooncake", "JSON Lines is written, expected a name such as t.jsonl"),
        ("-", "mooncake", "JSON Lines is written to a file, expected a path such as x.jsonl, not -"),
    ],
)
def test_a_name_that_says_another_format_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "log.jsonl", *hash_lines([[1, 2], [1, 3]]))
    with pytest.raises(UsageError, match=message):
        convert(["log.jsonl"], name, options=ConvertOptions(target=target))
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.formats.assemble.MAX_BATCH_IDS", 1)
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS))

    def interrupt(n_requests: int) -> None:
        if n_requests == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert([str(log)], str(tmp_path / "t.parquet"), progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def encodings(path: Path) -> tuple[str, ...]:
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return next(column.encodings for column in columns if column.path_in_schema.startswith("hash_ids"))


def test_the_encoding_of_ids_is_the_smallest_for_the_file(tmp_path: Path) -> None:
    counting = [list(range(1000 * i, 1000 * i + 500)) for i in range(20)]
    rng = np.random.default_rng(0)
    hashes = [rng.integers(0, 2**64, 500, dtype=np.uint64).tolist() for _ in range(20)]
    repeated = [rng.choice(np.array(hashes[0][:40], dtype=np.uint64), 500).tolist() for _ in range(20)]
    expected = (
        ("counting", counting, "DELTA_BINARY_PACKED"),
        ("hashes", hashes, "PLAIN"),
        ("repeated", repeated, "RLE_DICTIONARY"),
    )
    for name, requests, encoding in expected:
        log = write_log(tmp_path / f"{name}.jsonl", *hash_lines(requests))
        convert([str(log)], str(tmp_path / f"{name}.parquet"))
        found = encodings(tmp_path / f"{name}.parquet")
        assert encoding in found
        assert ("RLE_DICTIONARY" in found) == (encoding == "RLE_DICTIONARY")
        assert read_log(tmp_path / f"{name}.parquet")[0].equals(read_log(log)[0])


def test_row_groups_are_bounded_by_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.formats.assemble.MAX_BATCH_IDS", 1000)
    log = write_log(tmp_path / "t.jsonl", *hash_lines([list(range(90))] * 50))
    convert([str(log)], str(tmp_path / "t.parquet"))
    sizes = [pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(i).num_rows for i in range(5)]
    assert max(sizes) <= 12


def test_a_parquet_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS))
    out = tmp_path / "t.parquet"
    convert([str(log)], str(out))
    out.write_bytes(out.read_bytes()[:-30])
    with pytest.raises(SchemaError, match=r"t\.parquet: expected a Parquet file"):
        read_log(out)


def test_a_trace_of_a_newer_version_or_another_table_is_refused(tmp_path: Path) -> None:
    table = pa.table({"hash_ids": [[1]], "input_length": [1]})
    for name, message in (("trace/99", "version 99"), ("requests/1", "the table requests")):
        path = tmp_path / "t.parquet"
        pq.write_table(table.replace_schema_metadata({"kvcap.schema": name}), path)
        with pytest.raises(SchemaError, match=message):
            read_log(path)


def test_an_empty_sink_still_is_a_parquet_file(tmp_path: Path) -> None:
    schema = open_trace([str(write_log(tmp_path / "t.jsonl", "[1]"))]).schema
    with parquet_file(tmp_path / "t.parquet", schema):
        pass
    with pytest.raises(EmptyTraceError, match="holds no request"):
        read_log(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, b"kvcap: interrupted\n"), (signal.SIGTERM, 143, b"")]
)
def test_a_signal_while_waiting_for_standard_input_ends_at_once_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, said: bytes
) -> None:
    command = [sys.executable, "-m", "kvcap", "convert", "-", "-o", str(tmp_path / "t.parquet")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdin is not None
    # More than what is read without threads, so that one of them waits for the rest.
    line = json.dumps({"tokens": list(range(1000))}).encode() + b"\n"
    process.stdin.write(line * (9_000_000 // len(line)))
    process.stdin.flush()
    time.sleep(1.0)
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    assert process.stderr is not None
    assert process.stderr.read() == said
    process.stdin.close()
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_an_input_is_not_replaced_by_its_own_conversion(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t.jsonl", *hash_lines(REQUESTS))
    with pytest.raises(UsageError, match="would replace the input"):
        convert([str(log)], str(log), options=ConvertOptions(force=True))

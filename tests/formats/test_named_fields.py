"""Fields that the user names fill the columns of what logs say beside prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kvcap.errors import RecordError, UsageError
from kvcap.formats import ReadOptions, open_trace
from kvcap.formats.options import FieldOptions
from kvcap.schema import LOGGED_COLUMNS, SCHEMA_KEY

LOGGED = [field.name for field in LOGGED_COLUMNS]


def log(path: Path, *extra: dict[str, Any]) -> str:
    records = [
        {"hash_ids": [1, 2], "input_length": 1024, "block_size": 512, "timestamp": 10 + i, **more}
        for i, more in enumerate(extra)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def rows(path: str, **fields: Any) -> tuple[list[dict[str, Any]], Any]:
    trace = open_trace([path], ReadOptions(fields=FieldOptions(**fields), timestamp_unit="s"))
    found = [row for batch in trace.batches() for row in batch.to_pylist()]
    return found, trace.report


def test_what_a_log_does_not_say_is_null(tmp_path: Path) -> None:
    (row,), _ = rows(log(tmp_path / "a.jsonl", {}))
    assert [row[name] for name in LOGGED] == [None] * len(LOGGED)


def test_a_named_field_is_a_path_and_zero_is_not_null(tmp_path: Path) -> None:
    path = log(tmp_path / "a.jsonl", {"u": {"c": 0}, "by": 7}, {"u": {}, "by": "b"}, {"u": {"c": 512.0}})
    found, _ = rows(path, cached="u.c", instance="by")
    assert [row["observed_cached_tokens"] for row in found] == [0, None, 512]
    assert [row["instance"] for row in found] == ["7", "b", None]


def test_more_cached_tokens_than_the_prompt_has_are_clipped_and_counted(tmp_path: Path) -> None:
    found, report = rows(log(tmp_path / "a.jsonl", {"c": 1024}, {"c": 1025}), cached="c")
    assert [row["observed_cached_tokens"] for row in found] == [1024, 1024]
    assert report.clipped_cached_tokens == 1


@pytest.mark.parametrize(
    ("field", "value", "given", "expected_us"),
    [
        ("latency_ms", 1500, None, 1_500_000),
        ("latencyMs", 2, None, 2000),
        ("latency_seconds", 1500, None, 1_500_000_000),
        ("latency", 1.5, None, 1_500_000),
        ("latency", 1500, None, 1_500_000),
        ("latency_ms", 3, "s", 3_000_000),
        ("wait_ns", 5000, None, 5),
    ],
)
def test_unit_of_a_duration_is_what_was_said_else_its_name_else_its_size(
    tmp_path: Path, field: str, value: float, given: Any, expected_us: int
) -> None:
    (row,), report = rows(log(tmp_path / "a.jsonl", {field: value}), duration=field, duration_unit=given)
    assert row["duration_us"] == expected_us
    assert any(field in notice for notice in report.notices) == (given is None)


def test_a_log_stamped_at_the_end_is_put_in_order_of_arrival(tmp_path: Path) -> None:
    path = log(tmp_path / "a.jsonl", {"d": 1, "session_id": "late"}, {"d": 9, "session_id": "early"})
    found, _ = rows(path, duration="d", duration_unit="s", timestamp_is="end", session="session_id")
    assert [(row["session_id"], row["timestamp"].second) for row in found] == [("early", 2), ("late", 9)]


def test_a_log_stamped_at_the_end_needs_durations(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"a.jsonl:2: duration is missing"):
        rows(log(tmp_path / "a.jsonl", {"d": 1}, {}), duration="d", duration_unit="s", timestamp_is="end")


@pytest.mark.parametrize(
    ("fields", "value", "message"),
    [
        ({"cached": "c"}, -1, "c is -1, expected an integer from 0"),
        ({"cached": "c"}, 1.5, "c is 1.5, expected an integer from 0"),
        ({"duration": "c"}, "3s", "c is '3s', expected a duration from 0"),
        ({"instance": "c"}, [1], "c is a list, expected a string"),
    ],
)
def test_a_wrong_value_names_its_field(
    tmp_path: Path, fields: dict[str, str], value: Any, message: str
) -> None:
    with pytest.raises(RecordError, match=message):
        rows(log(tmp_path / "a.jsonl", {"c": value}), **fields)


@pytest.mark.parametrize("name", ["session", "time", "model", "output", "cached", "instance", "ttft"])
def test_a_field_that_no_record_has_names_its_option(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"--{name}-field nosuch: the first records of .* have no such"):
        rows(log(tmp_path / "a.jsonl", {}), **{name: "nosuch"})


def test_a_trace_of_version_1_reads_with_nulls_and_keeps_its_kept_columns(tmp_path: Path) -> None:
    trace = open_trace([log(tmp_path / "a.jsonl", {"instance": 3})], ReadOptions(keep=("instance",)))
    (batch,) = trace.batches()
    assert batch.column("source_instance").to_pylist() == [3]
    names = [name for name in batch.schema.names if name not in LOGGED]
    old = batch.select(names).rename_columns(
        ["instance" if name == "source_instance" else name for name in names]
    )
    metadata = {**trace.schema.metadata, SCHEMA_KEY: b"trace/1"}
    path = str(tmp_path / "v1.parquet")
    import pyarrow as pa

    pq.write_table(pa.Table.from_batches([old]).replace_schema_metadata(metadata), path)
    (row,), _ = rows(path)
    assert [row[name] for name in LOGGED] == [None] * len(LOGGED)
    assert (row["source_instance"], row["input_length"]) == (3, 1024)

"""A stored trace from elsewhere: what its schema allows and kvcap never writes is refused by its request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shared_data import shared_path

from kvcap.errors import RecordError, SchemaError, TraceError, UsageError
from kvcap.formats import ReadOptions, open_table, open_trace
from kvcap.schema import LATEST_US, trace_schema


def stored(kind: Any, n: int = 2, **columns: Any) -> pa.Table:
    """A trace with some columns, and usual ones for the others."""
    usual = {
        "request_id": range(n),
        "input_length": [32] * n,
        "block_size": [16] * n if kind == "hash_ids" else None,
        kind: [[1, 2]] * n,
    }
    arrays = []
    for field in trace_schema(kind):
        values = columns.get(field.name, usual.get(field.name))
        arrays.append(pa.nulls(n, field.type) if values is None else pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=trace_schema(kind))


def read(table: pa.Table, **options: Any) -> int:
    return sum(batch.num_rows for batch in open_table(table, ReadOptions(**options)).batches())


@pytest.mark.parametrize("kind", ["hash_ids", "token_ids"])
def test_what_kvcap_writes_is_read(kind: Any) -> None:
    assert read(stored(kind)) == 2
    assert read(stored(kind, output_length=[0, None], observed_cached_tokens=[None, 0])) == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"block_size": [16, 0]}, "block_size from 1 .* in request 1, found 0"),
        ({"block_size": [-16, 16]}, "block_size from 1 .* in request 0, found -16"),
        ({"input_length": [32, -1]}, "input_length from 0 .* in request 1, found -1"),
        ({"input_length": [32, 2**62]}, "--max-request-tokens.* in request 1"),
        ({"input_length": [None, 32]}, "input_length of request 0, found null"),
        ({"output_length": [1, -1]}, "output_length from 0 .* in request 1, found -1"),
        ({"observed_cached_tokens": [-3, 1]}, "observed_cached_tokens from 0 in request 0, found -3"),
        ({"duration_us": [-1, 1]}, "duration_us from 0 in request 0, found -1"),
        ({"timestamp": [0, LATEST_US + 1]}, "timestamp from .* in request 1"),
        ({"hash_ids": [[1], [2, None]]}, "ids alone in hash_ids of request 1, found a null inside"),
        ({"block_tokens": [[16, 16], [16]]}, "one per id of hash_ids in block_tokens of request 1"),
        ({"block_tokens": [[16, 16], [16, 0]]}, "integers from 1 in block_tokens of request 1"),
        ({"block_tokens": [[16, None], [16, 1]]}, "integers from 1 in block_tokens of request 0"),
        ({"pool": ["a", None]}, "a name in every request or in none.*request 1"),
        ({"pool": [None, "a"]}, "a name in every request or in none.*request 1"),
    ],
)
def test_a_value_that_kvcap_never_writes_names_its_request(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(stored("hash_ids", **columns))


def test_pools_that_stop_in_a_later_batch_are_refused_too() -> None:
    first, second = stored("hash_ids", pool=["a", "b"]), stored("hash_ids")
    with pytest.raises(SchemaError, match="a name in every request or in none"):
        read(pa.concat_tables([first, second]))


def test_more_ids_than_one_request_can_have_are_refused() -> None:
    with pytest.raises(SchemaError, match="--max-request-tokens"):
        read(stored("token_ids", token_ids=[[1] * 9, [2]]), max_request_tokens=8)


@pytest.mark.parametrize("field", ["input_length", "output_length"])
def test_a_log_that_says_more_than_a_request_can_have_names_its_line(tmp_path: Path, field: str) -> None:
    path = tmp_path / "a.jsonl"
    usual = {"input_length": 5} | {field: 2**63 - 1}
    path.write_text(str({"hash_ids": [1], "block_size": 16, **usual}).replace("'", '"') + "\n")
    with pytest.raises(RecordError, match=rf"a.jsonl:1: {field} is 9223372036854775807, expected at most"):
        list(open_trace([str(path)]).batches())
    trace = open_trace([str(path)], ReadOptions(max_request_tokens=2**63 - 1))
    assert sum(batch.num_rows for batch in trace.batches()) == 1


def test_a_row_of_more_values_than_a_request_can_have_is_refused_before_it_is_read(tmp_path: Path) -> None:
    n = 1 << 22
    lists = pa.ListArray.from_arrays([0, n], pa.array(np.zeros(n, np.int64)))
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"hash_ids": lists, "input_length": [5], "block_size": [16]}), path)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    with pytest.raises(SchemaError, match="at most 1,000 values a row"):
        list(open_trace([str(path)], ReadOptions(max_request_tokens=1000)).batches())
    assert pa.total_allocated_bytes() - before < n


@pytest.mark.parametrize(
    "kind",
    [pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ns"), pa.timestamp("s")],
)
def test_a_foreign_column_of_any_time_does_not_matter(kind: pa.DataType) -> None:
    width = 30 if kind.bit_width == 32 else 60
    far = pa.array([2**width], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    assert read(pa.table({"hash_ids": [[1]], "input_length": [5], "block_size": [16], "other": far})) == 1


def test_a_format_of_lines_does_not_read_columns() -> None:
    with pytest.raises(UsageError, match="--input-format vllm reads lines of text"):
        open_table(pa.table({"x": [1]}), ReadOptions(input_format="vllm"))


@pytest.mark.parametrize(
    "name",
    [
        "parquet_abort_crash-2-2005000.bin",
        "parquet_abort_crash-2-2010000.bin",
        "parquet_bad_utf8_name.parquet",
    ],
)
def test_a_damaged_file_is_an_error_and_not_the_end_of_the_process(name: str) -> None:
    with pytest.raises((SchemaError, TraceError)):
        list(open_trace([str(shared_path(f"cases/trust/{name}"))]).batches())

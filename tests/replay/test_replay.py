"""The main job through the library: results, pools, warm-up, kept results, tables in and out."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import oracles
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import prefix_forests

import kvcap
from kvcap.errors import EmptyTraceError, SchemaError, TraceError, UsageError
from kvcap.schema import SCHEMA_VERSION

BLOCK = 4


def hash_table(requests: list[list[int]], pools: list[str] | None = None) -> pa.Table:
    columns = {
        "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
        "input_length": pa.array([max(1, BLOCK * len(request) - 1) for request in requests], pa.int64()),
    }
    if pools is not None:
        columns["tenant"] = pa.array(pools, pa.string())
    return pa.table(columns)


def replayed(table: pa.Table, pool: str | None = None, **options: object) -> kvcap.Results:
    reading = kvcap.ReadOptions(block_size=BLOCK, pool=pool)
    return kvcap.replay(table, kvcap.ReplayOptions.of(block_size=BLOCK, **options), reading=reading)


@settings(max_examples=20)
@given(requests=prefix_forests().filter(bool), capacity=st.integers(1, 20))
def test_hit_tokens_weigh_each_hit_block_of_the_prefix(requests: list[list[int]], capacity: int) -> None:
    hits = oracles.lru_hits(oracles.chained(requests), capacity, "tail-first")
    weights = [oracles.block_weights(len(r), max(1, BLOCK * len(r) - 1), BLOCK) for r in requests]
    with replayed(hash_table(requests)) as results:
        row = results.query("hit_rate", capacity_blocks=capacity).to_pylist()[0]
        assert row["hit_blocks"] == sum(hits)
        assert row["hit_tokens"] == sum(sum(w[:h]) for w, h in zip(weights, hits, strict=True))
        from_curve = results.query("hit_rate_curve", capacities_blocks=[capacity]).to_pylist()[0]
        assert {key: from_curve[key] for key in row} == row


@settings(max_examples=20)
@given(requests=prefix_forests().filter(bool), data=st.data())
def test_pools_are_replayed_each_on_its_own_and_add_up(
    requests: list[list[int]], data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=len(requests), max_size=len(requests)))
    capacity = data.draw(st.integers(1, 12))
    expected = {}
    for pool in set(names):
        own = [request for request, name in zip(requests, names, strict=True) if name == pool]
        expected[pool] = sum(oracles.lru_hits(oracles.chained(own), capacity, "tail-first"))
    with replayed(hash_table(requests, names), pool="tenant") as results:
        rows = results.query("hit_rate_curve", capacities_blocks=[capacity]).to_pylist()
    found = {row["pool"]: row["hit_blocks"] for row in rows}
    assert found == {None: sum(expected.values()), **expected}


def test_sources_of_runs_are_requests_of_the_same_pool() -> None:
    table = hash_table([[1], [1], [1], [1]], ["a", "b", "b", "a"])
    with replayed(table, pool="tenant") as results:
        runs = results.sql("SELECT request_id, source_request_id FROM reuse_runs ORDER BY 1").to_pylist()
    assert [tuple(run.values()) for run in runs] == [(2, 1), (3, 0)]


def test_pools_that_a_log_names_itself_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "lookups.jsonl"
    row = '{"timestamp": 1.0, "model_name": "%s", "chunk_size": 4, "seq_len": 4, "chunk_hashes": ["0x1"]}'
    path.write_text("\n".join(row % name for name in ("m", "n", "m")))
    with kvcap.replay(path) as results:
        assert results.run.pool_column == "pool"
        assert [pool.pool for pool in kvcap.answer(results).pools] == ["m", "n"]


def test_a_request_without_a_pool_is_refused(tmp_path: Path) -> None:
    table = hash_table([[1], [1], [1]], ["a", None, "b"])
    with pytest.raises(TraceError, match="tenant is missing, expected a value, since it names the pool"):
        replayed(table, pool="tenant")
    reading = kvcap.ReadOptions(block_size=BLOCK, keep=("tenant",))
    kvcap.replay(table, reading=reading, out=tmp_path / "results").close()
    stored = tmp_path / "results" / "trace.parquet"
    with pytest.raises(TraceError, match="request 1: tenant is missing"):
        kvcap.replay(stored, reading=kvcap.ReadOptions(pool="tenant"))


@settings(max_examples=20)
@given(requests=prefix_forests().filter(bool), percent=st.integers(0, 100))
def test_warm_up_requests_fill_the_cache_and_are_not_measured(
    requests: list[list[int]], percent: int
) -> None:
    first = len(requests) * percent // 100
    hits = oracles.lru_hits(oracles.chained(requests), 5, "tail-first")
    with replayed(hash_table(requests), warm_up=Fraction(percent, 100)) as results:
        assert results.run.warm_up_requests == first
        totals = results.query("totals").to_pylist()[0]
        assert totals["requests"] == len(requests) - first
        assert totals["blocks"] == sum(len(request) for request in requests[first:])
        row = results.query("hit_rate", capacity_blocks=5).to_pylist()[0]
        assert row["hit_blocks"] == sum(hits[first:])


@settings(max_examples=20)
@given(requests=prefix_forests().filter(bool), share=st.sampled_from([1, 37, 50, 90, 99, 100]))
def test_capacity_for_a_share_of_the_ceiling_is_the_smallest_one(
    requests: list[list[int]], share: int
) -> None:
    chained = oracles.chained(requests)
    for order in ("tail-first", "head-first"):
        with replayed(hash_table(requests), touch_order=order) as results:
            row = results.query("capacity_for_hit_rate", percents=[share]).to_pylist()[0]
        needed = -(-sum(oracles.lru_hits(chained, 1000, order)) * share // 100)
        smallest = next(c for c in range(1000) if c >= 0 and hits_at(chained, c, order) >= needed)
        assert row["capacity_blocks"] == smallest


def hits_at(chained: list[list[int]], capacity: int, order: str) -> int:
    return sum(oracles.lru_hits(chained, capacity, order)) if capacity else 0


@settings(max_examples=20)
@given(requests=prefix_forests().filter(bool), target=st.integers(1, 100))
def test_percentiles_of_required_capacity_are_nearest_rank(requests: list[list[int]], target: int) -> None:
    depths = oracles.depths(oracles.chained(requests), "tail-first")
    required = [oracles.required_blocks(d, Fraction(target, 100)) for d in depths]
    reusing = [r for r, d in zip(required, depths, strict=True) if d and d[0] != oracles.COLD]
    with replayed(hash_table(requests), target=Fraction(target, 100)) as results:
        rows = results.query("capacity_percentiles", percents=[0.1, 50, 99.9]).to_pylist()
    for sample, values in (("samples", required), ("reusing", reusing)):
        found = [row["required_blocks"] for row in rows if row["sample"] == sample]
        assert found == [oracles.nearest_rank(values, Fraction(p)) for p in ("0.1", "50", "99.9") if values]


def test_results_on_disk_answer_as_those_in_memory(tmp_path: Path) -> None:
    table = hash_table([[1, 2, 3], [1, 2], [4], [1, 2, 3]])
    options = kvcap.ReplayOptions.of(block_size=BLOCK, kv_bytes_per_token=Fraction("10.5"))
    out = tmp_path / "results"
    with kvcap.replay(table, options, out=out) as kept, kvcap.replay(table, options) as memory:
        assert kvcap.answer(kept).together == kvcap.answer(memory).together
    with kvcap.open_results(out) as opened:
        assert opened.run == kept.run
        assert opened.table_names == ("requests", "reuse_runs", "curve", "trace")
        assert opened.sql("SELECT hash_ids FROM trace WHERE request_id = 1")["hash_ids"].to_pylist() == [
            [1, 2]
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


def test_a_replayed_parquet_trace_answers_as_its_source(tmp_path: Path) -> None:
    table = hash_table([[1, 2, 3], [1, 2], [4], [1, 2, 3]])
    with kvcap.replay(table, kvcap.ReplayOptions.of(block_size=BLOCK), out=tmp_path / "results") as first:
        answer = kvcap.answer(first)
    with kvcap.replay(tmp_path / "results" / "trace.parquet") as second:
        assert kvcap.answer(second, "1blocks,2blocks").together.totals == answer.together.totals


def test_existing_results_are_kept_unless_forced_and_whole_if_the_new_run_dies(tmp_path: Path) -> None:
    out = tmp_path / "results"
    kvcap.replay(hash_table([[1], [1]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=out).close()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UsageError, match="--force"):
        kvcap.replay(hash_table([[2]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=out)
    with pytest.raises(EmptyTraceError):
        kvcap.replay(hash_table([]), kvcap.ReplayOptions.of(block_size=BLOCK), out=out, force=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    kvcap.replay(hash_table([[2]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=out, force=True).close()
    with kvcap.open_results(out) as results:
        assert results.run.requests == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_directory_that_is_no_results_directory_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(UsageError, match="no results directory"):
        kvcap.replay(hash_table([[1]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=tmp_path, force=True)
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_opening_what_is_no_results_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no run\.json"):
        kvcap.open_results(tmp_path)
    with pytest.raises(FileNotFoundError):
        kvcap.open_results(tmp_path / "absent")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(SchemaError, match="metadata of a kvcap replay"):
        kvcap.open_results(tmp_path)


def test_results_keep_the_options_themselves(tmp_path: Path) -> None:
    options = kvcap.ReplayOptions.of(
        "mooncake", block_size=BLOCK, target=Fraction(1, 3), capacities="2blocks", request_hits=True
    )
    with kvcap.replay(hash_table([[1], [1]]), options, out=tmp_path / "r") as results:
        assert results.run.options == options
    with kvcap.open_results(tmp_path / "r") as results:
        assert results.run.options == options


def test_results_of_an_older_version_ask_for_another_replay(tmp_path: Path) -> None:
    kvcap.replay(hash_table([[1]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=tmp_path / "r").close()
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    old = {**run, "kvcap_version": "0.1.0", "rules": run.pop("options")["rules"]}
    del old["options"]
    (tmp_path / "r" / "run.json").write_text(json.dumps(old))
    with pytest.raises(SchemaError, match=r"replay the trace again, found results of kvcap 0\.1\.0"):
        kvcap.open_results(tmp_path / "r")


def test_polars_frames_of_token_ids_go_in_and_arrow_comes_out() -> None:
    frame = pl.DataFrame({"token_ids": [[1, 2, 3, 4, 5], [1, 2, 3, 4, 9]]})
    with kvcap.replay(frame, kvcap.ReplayOptions.of(block_size=2)) as results:
        requests = results.table("requests")
    assert requests["ceiling_blocks"].to_pylist() == [0, 2]
    assert requests["input_length"].to_pylist() == [5, 5]
    assert isinstance(pl.from_arrow(requests), pl.DataFrame)


def test_every_table_carries_its_schema_and_version(tmp_path: Path) -> None:
    kvcap.replay(hash_table([[1], [1]]), kvcap.ReplayOptions.of(block_size=BLOCK), out=tmp_path / "r").close()
    for name in ("requests", "reuse_runs", "curve", "trace"):
        metadata = pq.read_schema(tmp_path / "r" / f"{name}.parquet").metadata
        assert metadata[b"kvcap.schema"] == f"{name}/{SCHEMA_VERSION}".encode()
    assert json.loads((tmp_path / "r" / "run.json").read_text())["blocks"] == 2


def test_a_model_that_is_not_linear_says_what_other_lengths_would_cost() -> None:
    from kvcap.models import model_bytes, resolve_model

    gemma = next(
        model_bytes(resolve_model(name))
        for name in ("deepseek-v4-flash",)
        if not model_bytes(resolve_model(name)).is_linear
    )
    table = hash_table([[1, 2, 3], [1, 2]])
    with kvcap.replay(table, kvcap.ReplayOptions.of(block_size=BLOCK, model_bytes=gemma)) as results:
        sizing = results.run.sizing
    assert sizing is not None
    assert sizing.estimate_tokens == 9
    assert [cost.percent for cost in sizing.length_costs] == [10, 50, 90]
    assert [cost.tokens for cost in sizing.length_costs] == [7, 7, 11]
    for cost in sizing.length_costs:
        assert Fraction(cost.kv_bytes_per_token) == gemma.bytes_per_token(cost.tokens)

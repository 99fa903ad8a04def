"""Real traces against values taken without kvcap's code: equal as integers."""

from __future__ import annotations

import gzip
import json
import lzma
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pytest
from shared_data import shared_path

import kvcap
from kvcap.convert import convert

TRACES = {"mooncake_conversation": 512, "mooncake_synthetic": 512}
ORDERS = ["tail_first", "head_first"]


def replayed(name: str, order: str, target: Fraction, warm_up: Fraction = Fraction(0)) -> kvcap.Results:
    options = kvcap.ReplayOptions.of(
        block_size=TRACES[name], touch_order=order.replace("_", "-"), target=target, warm_up=warm_up
    )
    return kvcap.replay(shared_path(f"traces/{name}.jsonl.gz"), options)


def expected(name: str) -> dict:
    return json.loads(shared_path(f"golden/{name}.json").read_text())


def at_capacities(results: kvcap.Results, capacities: list[int]) -> list[dict]:
    return results.query("hit_rate_curve", capacities_blocks=capacities).to_pylist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TRACES)
def test_hits_at_every_capacity_are_those_of_a_block_level_simulation(name: str, order: str) -> None:
    golden = expected(name)
    truth = golden["touch_order"][order]
    with replayed(name, order, Fraction(99, 100)) as results:
        assert results.run.requests == golden["requests"]
        assert results.run.blocks == golden["accesses"]
        assert results.run.distinct_blocks == golden["unique_blocks"]
        assert results.run.input_tokens == golden["input_tokens"]
        totals = results.query("totals").to_pylist()[0]
        assert totals["ceiling_blocks"] == truth["infinite_block_hits"]
        assert totals["ceiling_tokens"] == truth["infinite_token_hits"]
        rows = at_capacities(results, [int(capacity) for capacity in truth["block_hits"]])
        assert {str(row["capacity_blocks"]): row["hit_blocks"] for row in rows} == truth["block_hits"]
        assert {str(row["capacity_blocks"]): row["hit_tokens"] for row in rows} == truth["token_hits"]
        for capacity in (1000, 30000):
            row = results.query("hit_rate", capacity_blocks=capacity).to_pylist()[0]
            assert row["hit_blocks"] == truth["block_hits"][str(capacity)]
            assert row["hit_tokens"] == truth["token_hits"][str(capacity)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TRACES)
def test_a_warm_up_of_half_the_requests_only_fills_the_cache(name: str, order: str) -> None:
    golden = expected(name)
    half = golden["touch_order"][order]["second_half"]
    with replayed(name, order, Fraction(1), warm_up=Fraction(1, 2)) as results:
        assert results.run.warm_up_requests == half["first_request"]
        totals = results.query("totals").to_pylist()[0]
        assert (totals["blocks"], totals["input_tokens"]) == (half["accesses"], half["tokens"])
        assert totals["ceiling_blocks"] == half["infinite_block_hits"]
        rows = at_capacities(results, [int(capacity) for capacity in half["block_hits"]])
        assert {str(row["capacity_blocks"]): row["hit_blocks"] for row in rows} == half["block_hits"]
        assert {str(row["capacity_blocks"]): row["hit_tokens"] for row in rows} == half["token_hits"]


@pytest.mark.parametrize("target", ["0.5", "0.9", "0.99", "1"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TRACES)
def test_required_capacities_and_their_percentiles(name: str, order: str, target: str) -> None:
    truth = expected(name)["touch_order"][order]["required_blocks"][target]
    with replayed(name, order, Fraction(target)) as results:
        required = results.table("requests")["required_blocks"].to_numpy()
        assert required.sum() == truth["sum"]
        for sample, values in (("samples", truth), ("reusing", truth["reusing"])):
            rows = [
                row for row in results.query("capacity_percentiles").to_pylist() if row["sample"] == sample
            ]
            assert {row["requests"] for row in rows} == {values["samples"]}
            found = {f"p{row['percent']:g}".replace(".", ""): row["required_blocks"] for row in rows}
            assert found == {key: value for key, value in values.items() if key.startswith("p")}
        other = results.query("capacity_percentiles", target_percent=Fraction(target) * 100)
        assert other.equals(results.query("capacity_percentiles"))


@pytest.mark.parametrize("name", TRACES)
def test_every_request_has_its_expected_blocks_and_required_capacity(name: str) -> None:
    golden = np.load(shared_path(f"golden/{name}.npz"))
    for order in ORDERS:
        with replayed(name, order, Fraction(99, 100)) as results:
            table = results.table("requests")
            np.testing.assert_array_equal(table["blocks"], golden["requests_blocks"])
            np.testing.assert_array_equal(table["ceiling_blocks"], golden["infinite_hit_blocks"])
            np.testing.assert_array_equal(table["required_blocks"], golden[f"required_blocks_99_{order}"])


def test_the_conversation_curve_equals_a_direct_lru_of_plain_python() -> None:
    path = shared_path("traces/mooncake_conversation.jsonl.gz")
    with gzip.open(path, "rt") as lines:
        requests = oracles.chained([json.loads(line)["hash_ids"] for line in lines])
    with replayed("mooncake_conversation", "tail_first", Fraction(1)) as results:
        rows = at_capacities(results, [777, 20000])
    for row in rows:
        hits = oracles.lru_hits(requests, row["capacity_blocks"], "tail-first")
        assert row["hit_blocks"] == sum(hits)


def agentic_coding(directory: Path) -> Path:
    """Unpack the trace, which holds six models."""
    unpacked = directory / "agentic_coding.jsonl"
    with lzma.open(shared_path("traces/agentic_coding.jsonl.xz")) as packed, unpacked.open("wb") as plain:
        while chunk := packed.read(1 << 24):
            plain.write(chunk)
    return unpacked


@pytest.mark.slow
def test_agentic_coding_with_its_six_models_apart(tmp_path: Path) -> None:
    log, trace = agentic_coding(tmp_path), tmp_path / "trace.parquet"
    assert convert([str(log)], str(trace)).chained
    for source in (log, trace):
        with kvcap.replay(source) as results:
            assert sum(results.table("requests")["ceiling_blocks"].to_pylist()) == 90_856_686
            assert any(notice.startswith("6 models in one cache") for notice in results.run.reading.notices)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_agentic_coding_totals(tmp_path: Path, order: str) -> None:
    golden = expected("agentic_coding")
    truth = golden["touch_order"][order]
    options = kvcap.ReplayOptions.of(touch_order=order.replace("_", "-"))
    one_world = kvcap.ReadOptions(namespace=())
    with kvcap.replay(agentic_coding(tmp_path), options, reading=one_world) as results:
        assert results.run.blocks == golden["accesses"]
        assert results.run.distinct_blocks == golden["unique_blocks"]
        assert results.run.input_tokens == golden["input_tokens"]
        assert results.run.largest_request_blocks == golden["largest_request_blocks"]
        rows = at_capacities(results, [int(capacity) for capacity in truth["block_hits"]])
        assert {str(row["capacity_blocks"]): row["hit_blocks"] for row in rows} == truth["block_hits"]
        for target, values in truth["required_blocks"].items():
            table = results.query("capacity_percentiles", target_percent=Fraction(target) * 100)
            found = {
                f"p{row['percent']:g}".replace(".", ""): row["required_blocks"]
                for row in table.to_pylist()
                if row["sample"] == "samples"
            }
            assert found == {key: value for key, value in values.items() if key.startswith("p")}

"""The queries on a real trace, against direct simulation in plain Python."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction

import oracles
import oracles_queries as oracle
import pytest
from oracles_queries import Logged
from shared_data import shared_path

import kvcap

WARM_UP = Fraction(1, 10)
BLOCK_SIZE = 512


@pytest.fixture(scope="module")
def logged() -> Sequence[Logged]:
    with gzip.open(shared_path("traces/mooncake_conversation.jsonl.gz"), "rt") as lines:
        records = [json.loads(line) for line in lines]
    paths = oracles.chained([record["hash_ids"] for record in records])
    return [
        Logged(
            path=path,
            weights=oracles.block_weights(len(path), record["input_length"], BLOCK_SIZE),
            input_tokens=record["input_length"],
            timestamp_us=1000 * record["timestamp"],
            pool=None,
            session_id=None,
            model=None,
            measured=i >= int(len(records) * WARM_UP),
        )
        for i, (record, path) in enumerate(zip(records, paths, strict=True))
    ]


@pytest.fixture(scope="module")
def results() -> Iterator[kvcap.Results]:
    options = kvcap.ReplayOptions.of(block_size=BLOCK_SIZE, warm_up=WARM_UP)
    with kvcap.replay(shared_path("traces/mooncake_conversation.jsonl.gz"), options) as opened:
        yield opened


@pytest.mark.parametrize(
    ("ttl_seconds", "capacity"), [(30, 20_000), (300, 5_000), (300, 50_000), (1200, 200_000)]
)
def test_ttl_and_capacity(
    results: kvcap.Results, logged: Sequence[Logged], ttl_seconds: int, capacity: int
) -> None:
    hits = oracle.hit_positions(logged, "tail-first", capacity, ttl_seconds * 1_000_000)
    row = results.query("ttl_surface", ttls_seconds=[ttl_seconds], capacities_blocks=[capacity]).to_pylist()[
        0
    ]
    assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(logged, hits)


@pytest.mark.parametrize("exclusive", [True, False])
def test_tiers(results: kvcap.Results, logged: Sequence[Logged], exclusive: bool) -> None:
    sizes = [3_000, 20_000, 60_000]
    mode = "exclusive" if exclusive else "inclusive"
    served = oracle.tier_hits(logged, "tail-first", sizes, exclusive=exclusive)
    found = results.query("tiers", tiers=sizes, mode=mode, window_seconds=10).to_pylist()
    measured = [r for r, request in enumerate(logged) if request.measured]
    for t, row in enumerate(found):
        here = [{i for i, tier in of.items() if tier == t} for of in served]
        assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(logged, here)
        counts = oracle.counts_per_window(
            [logged[r].timestamp_us for r in measured], [len(here[r]) for r in measured], 10_000_000
        )
        assert row["read_blocks_per_second_p50"] == oracle.nearest_rank(counts, 50) / 10
        assert row["read_blocks_per_second_p99"] == oracle.nearest_rank(counts, 99) / 10
    plain = results.query("hit_rate", capacity_blocks=sum(sizes) if exclusive else max(sizes)).to_pylist()[0]
    assert sum(row["hit_tokens"] for row in found) == plain["hit_tokens"]


@pytest.mark.parametrize("ttl_seconds", [None, 60, 600])
def test_miss_reasons(results: kvcap.Results, logged: Sequence[Logged], ttl_seconds: int | None) -> None:
    ttl_us = None if ttl_seconds is None else ttl_seconds * 1_000_000
    found = results.query("miss_reasons", capacity_blocks=15_000, ttl_seconds=str(ttl_seconds).lower())
    mine = {row["reason"]: (row["missed_blocks"], row["missed_tokens"]) for row in found.to_pylist()}
    truth = oracle.miss_reasons(logged, "tail-first", 15_000, ttl_us, None)
    assert mine == {**truth, "last token": (0, 0)}


def test_prefixes(results: kvcap.Results, logged: Sequence[Logged]) -> None:
    truth = sorted(
        (
            (blocks * reuses, -first, -end)
            for (_, first, end), (blocks, reuses) in oracle.segments(logged).items()
        ),
        reverse=True,
    )
    found = results.query("prefix_hotness", rows=200).to_pylist()
    assert [(r["reused_blocks"], -r["first_request_id"], -r["prefix_blocks"]) for r in found] == truth[:200]


@pytest.mark.parametrize("factor", [2, 5])
def test_larger_blocks(results: kvcap.Results, logged: Sequence[Logged], factor: int) -> None:
    coarse = oracle.coarse(logged, factor)
    hits = oracle.hit_positions(coarse, "tail-first", 20_000 // factor)
    row = results.query("block_size_sensitivity", factors=[factor], capacity_blocks=20_000).to_pylist()[0]
    assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(coarse, hits)


def test_working_sets(results: kvcap.Results, logged: Sequence[Logged]) -> None:
    touched: dict[int, set[int]] = {}
    for request in logged:
        if request.measured:
            touched.setdefault(request.timestamp_us // 600_000_000, set()).update(request.path)
    found = results.query("by_hour", window_seconds=600)["working_set_blocks"].to_pylist()
    assert found == [len(touched[window]) for window in sorted(touched)]

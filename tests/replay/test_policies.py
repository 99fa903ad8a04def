"""Policies and engine rules through the library: tables, pools, warm-up, answers, kept results."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_policies import fifo_hits, optimal_hits
from strategies import prefix_forests

import kvcap
from kvcap.errors import UsageError
from kvcap.schema import SCHEMA_VERSION

BLOCK = 4
BELADY = [[1], [2], [3], [4], [1], [2], [5], [1], [2], [3], [4], [5]]


def replayed(
    requests: list[list[int]], *, tail: int = 0, pools: list[str] | None = None, **options: object
) -> kvcap.Results:
    """Replay block ids whose last block holds ``tail`` tokens, or is full."""
    table = {
        "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
        "input_length": pa.array(
            [BLOCK * len(ids) - (BLOCK - tail if tail and ids else 0) for ids in requests]
        ),
    }
    if pools is not None:
        table["tenant"] = pa.array(pools)
    reading = kvcap.ReadOptions(block_size=BLOCK, pool=None if pools is None else "tenant")
    return kvcap.replay(pa.table(table), kvcap.ReplayOptions.of(block_size=BLOCK, **options), reading=reading)


def expected_hits(policy: str, requests: list[list[int]], capacity: int) -> list[int]:
    prompts = [tuple(request) for request in requests]
    if policy == "lru":
        return oracles.lru_hits(oracles.chained(requests), capacity, "tail-first")
    return {"fifo": fifo_hits, "optimal": optimal_hits}[policy](prompts, capacity)


@given(requests=prefix_forests().filter(bool), capacity=st.integers(1, 9), percent=st.integers(0, 100))
def test_policies_count_hits_and_tokens_of_the_measured_requests(
    requests: list[list[int]], capacity: int, percent: int
) -> None:
    policies = ("lru", "fifo", "optimal")
    first = len(requests) * percent // 100
    with replayed(
        requests, tail=3, policies=policies, capacities=f"{capacity}blocks", warm_up=Fraction(percent, 100)
    ) as results:
        rows = results.table("policies").to_pylist()
    assert [row["policy"] for row in rows] == list(policies)
    for row in rows:
        hits = expected_hits(row["policy"], requests, capacity)[first:]
        tokens = [
            BLOCK * hit - (hit == len(request) > 0)
            for hit, request in zip(hits, requests[first:], strict=True)
        ]
        assert (row["hit_blocks"], row["hit_tokens"]) == (sum(hits), sum(tokens))


@given(requests=prefix_forests().filter(bool), data=st.data())
def test_each_pool_is_simulated_on_its_own_and_all_together_are_their_sum(
    requests: list[list[int]], data: st.DataObject
) -> None:
    pools = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=len(requests), max_size=len(requests)))
    with replayed(
        requests, pools=pools, policies=("fifo", "optimal"), capacities="5blocks", request_hits=True
    ) as results:
        rows = results.table("policies").to_pylist()
        by_request = results.sql("FROM policy_requests WHERE policy = 'fifo' ORDER BY request_id")
    found = {(row["policy"], row["pool"]): row["hit_blocks"] for row in rows}
    assert len(found) == len(rows)
    fifo = dict.fromkeys(range(len(requests)), 0)
    for policy in ("fifo", "optimal"):
        expected = {}
        for pool in set(pools):
            ids = [index for index, name in enumerate(pools) if name == pool]
            hits = expected_hits(policy, [requests[index] for index in ids], 5)
            expected[pool] = sum(hits)
            if policy == "fifo":
                fifo |= dict(zip(ids, hits, strict=True))
        for pool, hits in {**expected, None: sum(expected.values())}.items():
            assert found[policy, pool] == hits
    assert by_request["hit_blocks"].to_pylist() == list(fifo.values())


def test_fifo_that_falls_with_more_capacity_is_reported() -> None:
    with replayed(BELADY, policies=("fifo",), capacities="4blocks,3blocks,5blocks") as results:
        together = kvcap.answer(results).together
    assert [row.hit_blocks for row in together.policies] == [2, 3, 7]
    (fall,) = together.fifo_falls
    assert (fall.smaller, fall.larger, fall.lost_hit_tokens) == ("3 blocks", "4 blocks", BLOCK)


def test_headroom_is_what_optimal_hits_beyond_lru_in_points() -> None:
    with replayed(BELADY, policies=("optimal", "lru"), capacities="3blocks") as results:
        together = kvcap.answer(results).together
    optimal, lru = together.policies
    assert (optimal.hit_blocks, lru.hit_blocks) == (5, 2)
    assert [room.points for room in together.headroom] == pytest.approx([100 * (5 - 2) / 12])


def test_speed_up_is_over_computing_all_tokens_and_never_above_a_thousand() -> None:
    with replayed([[1, 2], [1, 2]], policies=("lru",), capacities="2blocks") as half:
        assert half.query("policy_hit_rates")["ideal_prefill_speedup"].to_pylist() == [2.0]
    with replayed([[1, 2], [1, 2]], policies=("lru",), capacities="2blocks", warm_up=Fraction(1, 2)) as full:
        assert full.query("policy_hit_rates")["ideal_prefill_speedup"].to_pylist() == [1000.0]
    with replayed([[1, 2]], policies=("lru",), capacities="2blocks", warm_up=Fraction(1)) as nothing:
        row = nothing.query("policy_hit_rates").to_pylist()[0]
        assert (row["token_hit_rate"], row["ideal_prefill_speedup"]) == (None, None)


@pytest.mark.parametrize(("warm_up", "largest_filled"), [(Fraction(0), 4), (Fraction(1, 2), 2)])
def test_a_capacity_is_filled_by_the_warm_up_or_without_one_by_the_trace(
    warm_up: Fraction, largest_filled: int
) -> None:
    requests = [[1, 2], [1], [1, 3], [4]]
    capacities = ",".join(f"{blocks}blocks" for blocks in range(1, 7))
    with replayed(requests, policies=("lru",), capacities=capacities, warm_up=warm_up) as results:
        marked = [row.filled for row in kvcap.answer(results).together.policies]
        kept = kvcap.answer(results, omit_underfilled=True).together
    assert marked == [blocks <= largest_filled for blocks in range(1, 7)]
    assert [row.capacity_blocks for row in kept.policies] == list(range(1, largest_filled + 1))
    assert len(kept.capacities) == 7


def test_all_pools_together_are_full_when_each_of_them_is() -> None:
    with replayed(
        [[1, 2], [1, 2, 3]], pools=["a", "b"], policies=("lru",), capacities="2blocks,3blocks"
    ) as results:
        answer = kvcap.answer(results)
    assert [row.filled for row in answer.together.policies] == [True, False]
    assert [[row.filled for row in pool.policies] for pool in answer.pools] == [[True, False], [True, True]]


def test_hits_without_the_reserve_are_the_bound() -> None:
    with replayed([[1, 2], [1, 2]], policies=("lru",), capacities="2blocks", reserve_blocks=1) as results:
        (row,) = kvcap.answer(results).together.policies
        data_blocks = results.sql("SELECT data_blocks FROM policies ORDER BY reserved_blocks")
    assert (row.hit_blocks, row.unreserved_hit_blocks) == (1, 2)
    assert (row.token_hit_rate, row.unreserved_token_hit_rate) == (0.25, 0.5)
    assert data_blocks["data_blocks"].to_pylist() == [2, 1]


def test_dropped_requests_are_counted_where_they_are_measured() -> None:
    requests = [[1, 2, 3], [1, 2, 3], [9]]
    with replayed(
        requests, policies=("lru",), capacities="2blocks,3blocks", oversize="drop", warm_up=Fraction(1, 3)
    ) as results:
        rows = results.table("policies").to_pylist()
    assert [(row["dropped_requests"], row["hit_blocks"]) for row in rows] == [(1, 0), (0, 3)]


def test_vllm_leaves_requests_larger_than_its_cache_out_by_itself() -> None:
    with replayed([[1, 2, 3], [1, 2], [1, 2]], policies=("vllm-lru",), capacities="2blocks") as results:
        (row,) = kvcap.answer(results).together.policies
    assert (row.dropped_requests, row.hit_blocks) == (1, 2)


@given(requests=prefix_forests().filter(bool), capacity=st.integers(1, 9))
def test_one_computed_token_limits_hits_after_depths_everywhere(
    requests: list[list[int]], capacity: int
) -> None:
    options = {"policies": ("lru",), "capacities": f"{capacity}blocks", "partial_block": "drop"}
    hits = oracles.lru_hits(oracles.chained(requests), capacity, "tail-first")
    limits = [max(0, len(request) - 1) for request in requests]
    expected = sum(min(hit, limit) for hit, limit in zip(hits, limits, strict=True))
    with replayed(requests, compute_last_token=True, **options) as results:
        assert results.table("policies")["hit_blocks"].to_pylist() == [expected]
        curve = results.query("hit_rate_curve", capacities_blocks=[capacity]).to_pylist()[0]
        assert curve["hit_blocks"] == expected
        table = results.table("requests")
        assert np.all(table["ceiling_blocks"].to_numpy() <= limits)
        assert sum(table["cold_blocks"].to_pylist()) == results.run.distinct_blocks
    with replayed(requests, **options) as plain:
        assert plain.run.distinct_blocks == results.run.distinct_blocks


def test_a_later_turn_hits_the_answer_that_it_repeats() -> None:
    first, answer = list(range(6)), [50, 51, 52, 53, 54, 55, 56]
    second = [*first, *answer[:6], 7, 8, 9]
    table = pa.table(
        {
            "token_ids": pa.array([first, second], pa.list_(pa.uint32())),
            "output_ids": pa.array([answer, None], pa.list_(pa.uint32())),
            "output_length": pa.array([7, 5], pa.int64()),
        }
    )
    for output_blocks, hits, distinct in ((True, 3, 4), (False, 1, 3)):
        options = kvcap.ReplayOptions.of(block_size=BLOCK, output_blocks=output_blocks)
        with kvcap.replay(table, options) as results:
            assert results.table("requests")["ceiling_blocks"].to_pylist() == [0, hits]
            assert results.table("requests")["blocks"].to_pylist() == [1, 3]
            assert results.run.distinct_blocks == distinct


def test_generated_tokens_whose_ids_are_unknown_make_blocks_that_no_one_hits() -> None:
    table = pa.table(
        {
            "hash_ids": pa.array([[1], [2], [1]], pa.list_(pa.uint64())),
            "input_length": [BLOCK] * 3,
            "output_length": pa.array([9, None, 2], pa.int64()),
        }
    )
    options = kvcap.ReplayOptions.of(block_size=BLOCK, partial_block="drop", output_blocks=True)
    with kvcap.replay(table, options, reading=kvcap.ReadOptions(block_size=BLOCK)) as results:
        requests = results.table("requests")
        assert requests["cold_blocks"].to_pylist() == [3, 1, 0]
        assert requests["blocks"].to_pylist() == [1, 1, 1]
        assert results.table("reuse_runs")["depth"].to_pylist() == [1]
        assert results.run.requests_without_output == 1


def test_generated_tokens_cannot_go_behind_a_partial_block() -> None:
    with pytest.raises(UsageError, match="--output-blocks on needs --partial-block drop"):
        replayed([[1]], output_blocks=True)


@pytest.mark.parametrize("chunk_tokens", [8, 4])
def test_chunks_are_blocks_of_that_many_tokens(chunk_tokens: int) -> None:
    with replayed([[1, 2, 3], [1, 2, 3]], chunk_tokens=chunk_tokens, partial_block="drop") as results:
        assert (results.run.block_size, results.run.coarsen) == (chunk_tokens, chunk_tokens // BLOCK)
        assert results.run.blocks == 2 * (3 * BLOCK // chunk_tokens)


def test_chunks_that_blocks_do_not_make_are_refused() -> None:
    with pytest.raises(UsageError, match="blocks of 4 tokens do not make chunks of 6 tokens"):
        replayed([[1, 2, 3]], chunk_tokens=6)


def test_an_engine_sets_options_and_each_can_be_overridden() -> None:
    assert kvcap.engine_options("vllm").rules.reserve_blocks == 0
    options = kvcap.engine_options("vllm", reserve_blocks=8, output_blocks=False)
    assert (options.rules.engine, options.blocks.partial_block, options.rules.policies) == (
        "vllm",
        "drop",
        ("vllm-lru",),
    )
    assert (options.rules.reserve_blocks, options.blocks.output_blocks) == (8, False)
    assert kvcap.engine_options("mooncake").rules.capacity_factor == Fraction("0.875")
    assert kvcap.engine_options("lmcache").blocks.chunk_tokens == 256
    with pytest.raises(UsageError, match="engine is 'tgi', expected one of vllm, sglang, lmcache, mooncake"):
        kvcap.engine_options("tgi")


def test_engines_cut_token_traces_into_their_own_blocks() -> None:
    table = pa.table({"token_ids": pa.array([list(range(300))], pa.list_(pa.uint32()))})
    sizes = {}
    for engine in ("vllm", "sglang", "lmcache", "mooncake"):
        with kvcap.replay(table, kvcap.engine_options(engine, capacities="9blocks")) as results:
            sizes[engine] = results.run.block_size
    assert sizes == {"vllm": 16, "sglang": 1, "lmcache": 256, "mooncake": 64}
    with kvcap.replay(table, kvcap.engine_options("vllm", block_size=32, capacities="9blocks")) as results:
        assert results.run.block_size == 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"policies": ("mru",)},
            "policy is 'mru', expected one of lru, fifo, optimal, vllm-lru, sglang-lru, ",
        ),
        ({"policies": ("lru",), "capacity_factor": Fraction(3, 2)}, "capacity factor is 3/2, expected"),
        ({"reserve_blocks": 1}, "expected policies with them"),
        ({"request_hits": True}, "expected policies with them"),
        ({"chunk_tokens": 8, "coarsen": 2}, "expected no coarsening"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kvcap.ReplayOptions.of(**options)


def test_kept_results_answer_by_policy_as_those_in_memory(tmp_path: Path) -> None:
    options = {"policies": ("lru", "fifo"), "capacities": "2blocks,3blocks"}
    with replayed(BELADY, **options) as results:
        memory = kvcap.answer(results).together
    table = pa.table({"hash_ids": pa.array(BELADY, pa.list_(pa.uint64())), "input_length": [BLOCK] * 12})
    kvcap.replay(
        table,
        kvcap.ReplayOptions.of(block_size=BLOCK, request_hits=True, **options),
        reading=kvcap.ReadOptions(block_size=BLOCK),
        out=tmp_path / "results",
    ).close()
    with kvcap.open_results(tmp_path / "results") as opened:
        assert kvcap.answer(opened).together == memory
        assert opened.run.rules.policies == ("lru", "fifo")
        assert opened.sql("SELECT policies FROM run")["policies"].to_pylist() == ["lru,fifo"]
    for name, rows in (("policies", 4), ("policy_requests", 4 * 12)):
        file = pq.ParquetFile(tmp_path / "results" / f"{name}.parquet")
        assert file.metadata.num_rows == rows
        assert file.schema_arrow.metadata[b"kvcap.schema"] == f"{name}/{SCHEMA_VERSION}".encode()

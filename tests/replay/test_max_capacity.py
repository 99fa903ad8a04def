"""``--max-capacity``: exact up to the bound, what lies beyond it counted apart, memory bounded."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

import kvcap
from kvcap.cli import main
from kvcap.errors import UsageError
from kvcap.kernels.reuse_runs import ReuseRunScanner

BLOCK = 4
ORDERS = ["tail-first", "head-first"]


def hash_table(requests: list[list[int]], pools: list[str] | None = None) -> pa.Table:
    columns = {
        "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
        "input_length": pa.array([BLOCK * len(request) for request in requests], pa.int64()),
    }
    if pools is not None:
        columns["tenant"] = pa.array(pools, pa.string())
    return pa.table(columns)


def replayed(
    table: pa.Table, bound: int | None, order: str = "tail-first", **options: object
) -> kvcap.Results:
    pool = "tenant" if "tenant" in table.column_names else None
    return kvcap.replay(
        table,
        kvcap.ReplayOptions.of(
            block_size=BLOCK,
            touch_order=order,
            max_capacity=None if bound is None else f"{bound}blocks",
            **options,
        ),
        reading=kvcap.ReadOptions(block_size=BLOCK, pool=pool),
    )


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests().filter(bool), bound=st.integers(1, 20), data=st.data())
def test_every_capacity_up_to_the_bound_answers_as_without_one(
    order: str, requests: list[list[int]], bound: int, data: st.DataObject
) -> None:
    names = st.lists(st.sampled_from(["a", "b"]), min_size=len(requests), max_size=len(requests))
    table = hash_table(requests, data.draw(names))
    capacities = list(range(bound + 1))
    with replayed(table, None, order) as free, replayed(table, bound, order) as bounded:
        rows = [r.query("hit_rate_curve", capacities_blocks=capacities).to_pylist() for r in (free, bounded)]
        for row in (*rows[0], *rows[1]):
            del row["reuse_hit_rate"]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests().filter(bool), bound=st.integers(1, 20))
def test_what_is_not_served_at_the_bound_is_new_or_deeper(
    order: str, requests: list[list[int]], bound: int
) -> None:
    depths = [d for request in oracles.depths(oracles.chained(requests), order) for d in request]
    deeper = sum(depth >= bound for depth in depths)
    with replayed(hash_table(requests), bound, order) as bounded:
        run = bounded.run
        totals = bounded.query("totals").to_pylist()[0]
    assert totals["ceiling_blocks"] == sum(0 <= depth < bound for depth in depths)
    assert run.distinct_blocks == depths.count(oracles.COLD) + deeper
    assert run.beyond_blocks <= deeper <= run.beyond_blocks + run.forgotten_blocks


@given(requests=prefix_forests().filter(bool))
def test_a_bound_that_is_never_reached_changes_nothing(requests: list[list[int]]) -> None:
    table = hash_table(requests)
    with replayed(table, None) as free, replayed(table, 1000) as bounded:
        assert bounded.run.bound_blocks is None
        for name in ("requests", "reuse_runs", "curve"):
            assert bounded.table(name) == free.table(name)
        assert kvcap.answer(bounded).together == kvcap.answer(free).together


def test_memory_of_a_bounded_stream_stays_flat() -> None:
    scanner = ReuseRunScanner(max_depth=500)
    held = []
    for chunk in range(400):
        keys = np.arange(chunk * 1000, (chunk + 1) * 1000, dtype=np.uint64)
        scanner.feed(keys, np.arange(0, 1001, 10, dtype=np.int64))
        held.append(scanner.memory_bytes)
    assert max(held[200:]) <= max(held[:20])


def test_the_answer_ends_at_the_bound_and_refuses_what_is_above() -> None:
    table = hash_table([[1, 2], [3, 4], [5, 6], [1, 2]])
    with replayed(table, 3, kv_bytes_per_token=Fraction(256)) as results:
        assert results.run.bound_blocks == 3
        rows = kvcap.answer(results, "1blocks,2blocks").together.capacities
        assert [(row.label, row.capacity_blocks) for row in rows] == [
            ("1 blocks", 1),
            ("2 blocks", 2),
            ("3 KiB", 3),
        ]
        with pytest.raises(UsageError, match=r"10 blocks is above the --max-capacity of this run, 3 KiB"):
            kvcap.answer(results, "1blocks,10blocks")
        assert [row.label for row in kvcap.answer(results).together.capacities] == ["3 KiB"]


def test_each_pool_has_the_bound_to_itself() -> None:
    requests = [[1, 2], [1, 2], [1, 2], [1, 2]]
    with replayed(hash_table(requests, ["a", "b", "b", "a"]), 2) as results:
        assert results.run.bound_blocks is None
        assert results.query("totals").to_pylist()[0]["ceiling_blocks"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_capacity": "1GiB"}, "--max-capacity in bytes needs --kv-bytes-per-token"),
        ({"max_capacity": "lots"}, "--max-capacity is 'lots'"),
        ({"max_capacity": "5blocks", "policies": ("fifo",)}, "expected no other policy"),
        ({"max_capacity": "5blocks", "policies": ("lru",), "oversize": "drop"}, "no oversize drop"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kvcap.replay(hash_table([[1]]), kvcap.ReplayOptions.of(block_size=BLOCK, **options))


def test_a_model_that_is_not_linear_needs_a_length_for_a_bound_in_bytes() -> None:
    from kvcap.models import model_bytes, resolve_model

    cost = model_bytes(resolve_model("deepseek-v4-flash"))
    options = {"block_size": BLOCK, "model_bytes": cost, "max_capacity": "1MiB"}
    with pytest.raises(UsageError, match="is not linear in tokens, expected --estimate-tokens"):
        kvcap.replay(hash_table([[1]]), kvcap.ReplayOptions.of(**options))
    with kvcap.replay(hash_table([[1]]), kvcap.ReplayOptions.of(**options, estimate_tokens=1000)) as results:
        assert results.run.max_capacity_blocks == 2**20 // results.run.block_bytes


def test_the_command_says_what_the_bound_hides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    paths = [[1, 2], [3, 4], [5, 6], [1, 2]]
    lines = [
        {"timestamp": r, "input_length": 8, "output_length": 1, "hash_ids": p} for r, p in enumerate(paths)
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    argv = ["replay", str(log), "--block-size", "4", "--max-capacity", "3blocks", "--capacities", "2blocks"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "exact up to 3 blocks" in text
    assert "unlimited" not in text
    assert main([*argv[:-1], "4blocks"]) == 2
    assert "4 blocks is above the --max-capacity of this run, 3 blocks" in capsys.readouterr().err

"""``kvcap route`` and its library call, against a plain simulation of every instance."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import oracles_routing as plain
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

import kvcap
from kvcap.analysis.routing.answer import RoutingAnswer, route
from kvcap.analysis.routing.options import RouteOptions
from kvcap.cli import main
from kvcap.errors import UsageError

BLOCK = 4


def table(requests: list[list[int]], sessions: list[str | None], times: list[int] | None = None) -> pa.Table:
    columns = {
        "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
        "input_length": pa.array([max(1, BLOCK * len(request) - 1) for request in requests], pa.int64()),
        "session_id": pa.array(sessions, pa.string()),
    }
    if times is not None:
        columns["timestamp"] = pa.array([10**15 + 10**6 * time for time in times], pa.timestamp("us"))
    return pa.table(columns)


def routed(
    source: pa.Table, capacity: int, n: int, order: str = "tail-first", **options: object
) -> RoutingAnswer:
    return route(
        source,
        RouteOptions(f"{capacity}blocks", (n,), **options),
        kvcap.ReplayOptions.of(block_size=BLOCK, touch_order=order),
    )


def sticky(sessions: list[str | None], n: int) -> list[int]:
    known: dict[object, int] = {}
    return [known.setdefault(r if name is None else name, len(known)) % n for r, name in enumerate(sessions)]


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
@given(
    requests=prefix_forests().filter(bool), capacity=st.integers(1, 9), n=st.integers(1, 3), data=st.data()
)
def test_every_policy_hits_what_instances_simulated_one_by_one_hit(
    order: str, requests: list[list[int]], capacity: int, n: int, data: st.DataObject
) -> None:
    names = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=len(requests), max_size=len(requests))
    sessions = ["a", *data.draw(names)[1:]]
    times = sorted(data.draw(st.lists(st.integers(0, 20), min_size=len(requests), max_size=len(requests))))
    answer = routed(table(requests, sessions, times), capacity, n, order, load_window_seconds=Fraction(5))
    chained = oracles.chained(requests)
    weights = [max(1, BLOCK * len(request) - 1) for request in requests]
    dealt = {
        None: [0] * len(requests),
        "round-robin": [r % n for r in range(len(requests))],
        "random": np.random.default_rng(0).integers(n, size=len(requests), dtype=np.int32).tolist(),
        "session": sticky(sessions, n),
        "least-loaded": plain.least_loaded(weights, times, 5, n),
        "ideal-prefix": plain.longest_prefix(chained, weights, times, 5, n, capacity, 125, order)[0],
    }
    assert [row.policy for row in answer.rows] == list(dealt)
    for row in answer.rows:
        instances = dealt[row.policy]
        size = n * capacity if row.policy is None else capacity
        caches = [plain.LruCache(size) for _ in range(n)]
        hits = [caches[i].serve(r, order) for r, i in zip(chained, instances, strict=True)]
        block_weights = [
            oracles.block_weights(len(r), w, BLOCK) for r, w in zip(requests, weights, strict=True)
        ]
        hit_tokens = [sum(w[:h]) for w, h in zip(block_weights, hits, strict=True)]
        assert (row.capacity_blocks, row.hit_blocks, row.hit_tokens) == (size, sum(hits), sum(hit_tokens))
        assert (row.held_blocks, row.different_held_blocks) == plain.held(chained, instances, size, order)
        copies = {(i, block) for r, i in zip(chained, instances, strict=True) for block in r}
        assert row.distinct_blocks == len(copies)
        looked_up = sum(map(len, requests))
        assert row.block_hit_rate == (sum(hits) / looked_up if looked_up else None)
        assert row.token_hit_rate == sum(hit_tokens) / sum(weights)
        assert row.ceiling_block_hit_rate == ((looked_up - len(copies)) / looked_up if looked_up else None)
        for peak, values in (
            (row.requests_peak, [instance.requests for instance in row.per_instance]),
            (row.input_tokens_peak, [instance.input_tokens for instance in row.per_instance]),
            (row.computed_tokens_peak, [instance.computed_tokens for instance in row.per_instance]),
        ):
            assert peak == (max(values) * n / sum(values) if sum(values) else None)
        for i, instance in enumerate(row.per_instance):
            own = [r for r in range(len(requests)) if instances[r] == i]
            assert instance.requests == len(own)
            assert instance.hit_blocks == sum(hits[r] for r in own)
            assert instance.input_tokens == sum(weights[r] for r in own)
            assert instance.computed_tokens == sum(weights[r] - hit_tokens[r] for r in own)


@given(requests=prefix_forests().filter(bool), capacity=st.integers(1, 9))
def test_the_matching_capacity_is_the_smallest_per_instance_that_hits_as_much_as_the_shared_pool(
    requests: list[list[int]], capacity: int
) -> None:
    answer = routed(table(requests, [None] * len(requests)), capacity, 2, policies=("round-robin",))
    shared, dealt = answer.rows
    chained = oracles.chained(requests)

    def hits(size: int) -> int:
        caches = [plain.LruCache(size) for _ in range(2)]
        return sum(caches[r % 2].serve(request, "tail-first") for r, request in enumerate(chained))

    enough = (size for size in range(100) if (hits(size) if size else 0) >= shared.hit_blocks)
    assert dealt.matching_capacity_blocks == next(enough, None)


def test_one_instance_is_the_shared_pool_whatever_the_policy() -> None:
    answer = routed(table([[1, 2], [1, 2, 3], [4], [1, 2]], ["a", "b", "a", "b"]), 3, 1)
    assert {row.hit_blocks for row in answer.rows} == {answer.rows[0].hit_blocks}
    assert {row.held_blocks for row in answer.rows} == {3}
    assert {row.requests_peak for row in answer.rows} == {None, 1.0}


def test_copies_are_what_several_caches_hold_of_the_same_block() -> None:
    answer = routed(table([[1, 2], [1, 2], [3], [4]], [None] * 4), 10, 2, policies=("round-robin",))
    dealt = answer.rows[1]
    assert (dealt.held_blocks, dealt.different_held_blocks) == (6, 4)
    assert (dealt.hit_blocks, answer.rows[0].hit_blocks) == (0, 2)
    assert dealt.matching_capacity_blocks is None


def test_warm_up_requests_are_dealt_and_not_measured() -> None:
    source = table([[1], [1], [1], [1]], [None] * 4)
    options = kvcap.ReplayOptions.of(block_size=BLOCK, warm_up=Fraction(1, 2))
    answer = route(source, RouteOptions("5blocks", (2,), ("round-robin",)), options)
    assert (answer.requests, answer.measured_requests, answer.blocks) == (4, 2, 2)
    assert [row.hit_blocks for row in answer.rows] == [2, 2]
    assert [instance.requests for instance in answer.rows[1].per_instance] == [1, 1]


def test_a_burst_outside_the_load_window_is_forgotten() -> None:
    source = table([[1] * 9, [2], [3]], [None] * 3, [0, 1, 100])
    first = routed(source, 5, 2, policies=("least-loaded",))
    assert [instance.requests for instance in first.rows[1].per_instance] == [2, 1]
    for_ever = routed(source, 5, 2, policies=("least-loaded",), load_window_seconds=None)
    assert [instance.requests for instance in for_ever.rows[1].per_instance] == [1, 2]


def test_a_log_without_sessions_is_dealt_in_all_other_ways() -> None:
    source = table([[1], [1]], [None, None])
    assert "session" not in [row.policy for row in routed(source, 5, 2).rows]
    with pytest.raises(UsageError, match="no session_id"):
        routed(source, 5, 2, policies=("session",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": ("magic",)}, "'magic', expected some of round-robin"),
        ({"policies": ()}, "missing, expected some of"),
        ({"instances": (0,)}, "expected whole numbers from 1"),
        ({"max_load_percent": 99}, "expected at least 100"),
        ({"load_window_seconds": Fraction(0)}, "expected more than 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RouteOptions("5blocks", **options)


def write_log(path: Path) -> Path:
    lines = [
        {"timestamp": 1000 * r, "input_length": 12, "output_length": 1, "hash_ids": [1, 2, 3 + r % 2]}
        for r in range(8)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_command_prints_a_row_per_policy_and_number_of_instances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log.jsonl")
    argv = [
        "route",
        str(log),
        "--block-size",
        "4",
        "--instances",
        "2,4",
        "--capacity-per-instance",
        "3blocks",
    ]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert text.count("round-robin") == 2
    assert "shared pool, 12 blocks" in text
    assert main([*argv, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kvcap.route/1"
    assert [row["instances"] for row in document["rows"]] == [2] * 5 + [4] * 5
    assert main([*argv, "--format", "csv", "--policy", "prefix"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["policy"] for row in rows] == ["", "ideal-prefix", "", "ideal-prefix"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--instances", "few"], "--instances is 'few'"),
        (["--capacity-per-instance", "1GiB"], "--capacity-per-instance in bytes needs --kv-bytes-per-token"),
        (["--pool", "model"], "expected no --pool"),
    ],
)
def test_the_command_refuses_what_it_cannot_use(
    option: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log.jsonl")
    argv = ["route", str(log), "--block-size", "4", "--capacity-per-instance", "3blocks", *option]
    assert main(argv) == 2
    assert message in capsys.readouterr().err

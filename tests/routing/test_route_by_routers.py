"""``kvcap route`` with real routers: decisions of plain models, times, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import oracles
import oracles_routers as routers
import oracles_routing as plain
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

import kvcap
from kvcap.analysis.routing.answer import route
from kvcap.analysis.routing.notices import router_notices
from kvcap.analysis.routing.options import RouteOptions, policy_of
from kvcap.analysis.routing.routed import Routed
from kvcap.analysis.routing.rows import RoutingAnswer
from kvcap.cli import main
from kvcap.errors import UsageError
from kvcap.formats import ReadOptions
from kvcap.formats.options import FieldOptions
from kvcap.routers.catalog import ROUTERS

BLOCK = 4
MS = {"prefill_ms_per_token": Fraction(100), "decode_ms_per_token": Fraction(1000)}


def table(requests: list[list[int]], times: list[int], outputs: list[int], **columns: list[int]) -> pa.Table:
    return pa.table(
        {
            "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
            "input_length": pa.array([max(1, BLOCK * len(request)) for request in requests], pa.int64()),
            "output_length": pa.array(outputs, pa.int64()),
            "timestamp": pa.array([10**15 + 10**6 * time for time in times], pa.timestamp("us")),
            **{name: pa.array(values, pa.int64()) for name, values in columns.items()},
        }
    )


def routed(source: pa.Table, capacity: int, n: int, *policies: str, **options: object) -> RoutingAnswer:
    return route(
        source,
        RouteOptions(f"{capacity}blocks", (n,), policies, **options),
        kvcap.ReplayOptions.of(block_size=BLOCK),
    )


@given(
    requests=prefix_forests().filter(lambda requests: bool(requests) and len(requests[0]) > 0),
    capacity=st.integers(1, 9),
    n=st.integers(1, 3),
    speedup=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_requests_go_where_plain_models_of_the_routers_send_their_texts(
    requests: list[list[int]], capacity: int, n: int, speedup: int, data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(0, 5), min_size=len(requests), max_size=len(requests))
    times, outputs = sorted(data.draw(numbers)), data.draw(numbers)
    source = table(requests, times, outputs)
    thresholds = "balance-abs-threshold=1,balance-rel-threshold=1.1"
    answer = routed(
        source,
        capacity,
        n,
        f"sglang-cache-aware:{thresholds}",
        f"vllm-router-cache-aware:{thresholds}",
        "production-stack-prefix:prefix-min-match-length=100000",
        arrival_speedup=Fraction(speedup),
        **MS,
    )
    tokens = source["input_length"].to_pylist()
    # A block of 4 tokens is 16 characters, and no two begin with the same one.
    texts = [
        "".join(chr(0x10000 + block) * 16 for block in request)[: 4 * length]
        for request, length in zip(requests, tokens, strict=True)
    ]
    chained = oracles.chained(requests)
    rules = [
        routers.CacheAware("sglang", n, 0.3, 1, 1.1),
        routers.CacheAware("vllm", n, 0.3, 1, 1.1),
        routers.Stack(n, 100_000, 128),
    ]
    for row, rule in zip(answer.rows[1:], rules, strict=True):
        went: list[int] = []
        for request, text in enumerate(texts):
            now = Fraction(times[request] - times[0], speedup)
            loads = [0] * n
            for earlier, instance in enumerate(went):
                begin = Fraction(times[earlier] - times[0], speedup)
                loads[instance] += begin + Fraction(tokens[earlier], 10) + outputs[earlier] > now
            (instance,) = rule.options(text, loads)
            rule.take(text, instance)
            went.append(instance)
        caches = [plain.LruCache(capacity) for _ in range(n)]
        hits = [caches[i].serve(r, "tail-first") for r, i in zip(chained, went, strict=True)]
        assert [instance.requests for instance in row.per_instance] == [went.count(i) for i in range(n)]
        assert row.hit_blocks == sum(hits)
        assert (row.draws, row.drawn_share) == (1, 0)


def test_durations_of_the_log_are_taken_where_no_others_are_given() -> None:
    requests = [[1, 2], [1, 2, 3], [1, 2, 4], [5], [1, 2, 6]]
    outputs = [3, 0, 4, 1, 2]
    tokens = [BLOCK * len(request) for request in requests]
    durations = [100_000 * n + 1_000_000 * out for n, out in zip(tokens, outputs, strict=True)]
    firsts = [100_000 * n for n in tokens]
    source = table(requests, [0, 0, 1, 2, 3], outputs, duration_us=durations, ttft_us=firsts)
    names = list(ROUTERS)
    fields = FieldOptions(duration="duration_us", ttft="ttft_us", duration_unit="us")
    from_log = route(
        source,
        RouteOptions("9blocks", (2,), tuple(names)),
        kvcap.ReplayOptions.of(block_size=BLOCK),
        reading=ReadOptions(block_size=BLOCK, fields=fields),
    )
    assert from_log == routed(source, 9, 2, *names, **MS)
    assert max(row.in_flight_peak or 0 for row in from_log.rows) > 1


@pytest.mark.parametrize("name", ["sglang-cache-aware", "ray-prefix", "dynamo-kv"])
def test_a_router_that_looks_at_loads_is_refused_where_nothing_says_them(name: str) -> None:
    source = table([[1], [1]], [0, 1], [1, 1])
    with pytest.raises(UsageError, match=rf"{name} .* 2 of 2 requests have no duration_us.*--prefill-ms-per"):
        routed(source, 5, 2, name)
    without_times = source.drop_columns(["timestamp"])
    with pytest.raises(UsageError, match=f"{name} .* no timestamp"):
        routed(without_times, 5, 2, name, **MS)
    without_outputs = source.drop_columns(["output_length"])
    with pytest.raises(UsageError, match=f"{name} .* no output_length"):
        routed(without_outputs, 5, 2, name, **MS)
    assert routed(without_outputs, 5, 2, name, prefill_ms_per_token=Fraction(1)).rows[1].checked_against


def test_a_router_that_looks_at_no_loads_needs_no_times() -> None:
    source = table([[1], [1]], [0, 1], [1, 1]).drop_columns(["timestamp", "output_length"])
    assert routed(source, 5, 2, "production-stack-prefix").rows[1].in_flight_peak is None


def test_a_shared_system_prompt_on_one_instance_is_said_by_its_name() -> None:
    requests = [[*range(40), 100 + r] for r in range(9)]
    source = table(requests, list(range(9)), [0] * 9)
    answer = routed(source, 900, 3, "production-stack-prefix", "round-robin", draws=3)
    stack = answer.rows[1]
    assert f"instance {stack.busiest_instance} takes 100% of the requests" in answer.notices[-1]
    assert stack.requests_peak == 3
    assert (stack.draws, stack.drawn_share) == (3, 1 / 9)
    assert "approximate" in answer.notices[0]
    assert not [notice for notice in routed(source, 900, 2, "round-robin").notices if "takes" in notice]


def test_traffic_that_outgrows_the_table_of_a_router_is_said() -> None:
    source = table([[1], [2], [3]], [0, 0, 0], [1, 1, 1])
    row = routed(source, 9, 2, "smg-cache-aware", **MS).rows[1]
    policy = policy_of("smg-cache-aware")
    assert policy.router is not None
    small = replace(policy, router=replace(policy.router, table_length=35))
    (notice,) = router_notices(row, small, Routed((), 36))
    assert "keeps 35 characters of all instances together, and this traffic has 36" in notice
    assert router_notices(row, small, Routed((), 35)) == []


def test_every_draw_has_its_seed_and_the_first_makes_the_row() -> None:
    requests = [[r % 7, 10 + r] for r in range(40)]
    source = table(requests, list(range(40)), [0] * 40)
    more = routed(source, 6, 3, "ray-prefix", seed=3, draws=4, **MS).rows[1]
    alone = [routed(source, 6, 3, "ray-prefix", seed=3 + k, draws=1, **MS).rows[1] for k in range(4)]
    assert more.hit_blocks == alone[0].hit_blocks
    rates = [row.token_hit_rate for row in alone]
    assert (more.token_hit_rate_low, more.token_hit_rate_high) == (min(rates), max(rates))
    peaks = [row.requests_peak for row in alone]
    assert (more.requests_peak_low, more.requests_peak_high) == (min(peaks), max(peaks))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sglang", "is 'sglang', expected some of round-robin, .*, dynamo-kv"),
        ("ray-prefix:cache-threshold=1", "ray-prefix has no 'cache-threshold'"),
        ("ray-prefix:match_rate_threshold", "expected NAME=VALUE"),
        ("ray-prefix:", "expected NAME=VALUE"),
        ("random:seed=1", "random has no parameters"),
    ],
)
def test_a_policy_that_nobody_has_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RouteOptions("5blocks", policies=(text,))


def test_the_command_tells_parameters_from_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    line = {"timestamp": 0, "input_length": 8, "output_length": 1, "hash_ids": [1, 2]}
    log.write_text(3 * (json.dumps(line) + "\n"))
    argv = ["route", str(log), "--block-size", "4", "--capacity-per-instance", "3blocks", "--instances", "2"]
    argv += ["--prefill-ms-per-token", "0.1", "--decode-ms-per-token", "10", "--quiet"]
    said = "sglang-cache-aware:cache-threshold=0.2,balance-abs-threshold=1"
    assert main([*argv, "--policy", f"{said},prefix", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in document["rows"]] == [None, said, "ideal-prefix"]
    assert document["rows"][1]["parameters"] == {
        "cache-threshold": "0.2",
        "balance-abs-threshold": "1",
        "balance-rel-threshold": "1.5",
    }
    assert document["rows"][1]["in_flight_peak"] == 2
    assert main([*argv, "--policy", said]) == 0
    assert "checked against sglang-router 0.3.2; cache-threshold=0.2" in capsys.readouterr().out

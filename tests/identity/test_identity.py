"""What makes two prefixes the same, by every way in: all agree with the plain definition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pyarrow as pa
import pytest
from fleet_logs import comparable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import prefix_forests

import kvcap
from kvcap.analysis.routing.answer import route
from kvcap.analysis.routing.options import RouteOptions
from kvcap.blocks import BlockOptions
from kvcap.convert import ConvertOptions, convert
from kvcap.fleet import FleetJob, FleetResults, fleet_files, plan_pools, read_file, replay_pool
from kvcap.online import Estimator, EstimatorOptions, RequestBatch

BLOCK = 4


@dataclass(frozen=True)
class Traffic:
    """Requests of full blocks, and what keeps them apart."""

    requests: list[list[int]]
    models: list[str | None]
    salts: list[str | None]
    media: list[list[tuple[int, int | None]]]

    @property
    def namespaces(self) -> list[str | None]:
        return [f"{model}\0{salt}" for model, salt in zip(self.models, self.salts, strict=True)]

    def chained(self, *, media: bool = True, namespaces: bool = True) -> list[list[int]]:
        """Return the requests as the definition has them: dense numbers of prefixes."""
        return oracles.chained(
            oracles.identified(
                self.requests,
                self.namespaces if namespaces else [None] * len(self.requests),
                self.media if media else [[]] * len(self.requests),
                BLOCK,
            )
        )

    def records(self, kind: str) -> list[dict[str, object]]:
        """Return what a log has of them."""
        records = []
        for request, model, salt, media in zip(
            self.requests, self.models, self.salts, self.media, strict=True
        ):
            record: dict[str, object] = {"timestamp": 1000 * len(records), "model": model, "cache_salt": salt}
            if kind == "token_ids":
                record["token_ids"] = [block for block in request for _ in range(BLOCK)]
            else:
                record |= {"hash_ids": request, "input_length": BLOCK * len(request), "block_size": BLOCK}
            if media:
                record["mm_hashes"] = [f"image {digest}" for digest, _ in media]
                if all(offset is not None for _, offset in media):
                    record["mm_positions"] = [{"offset": offset, "length": 2} for _, offset in media]
            records.append(record)
        return records


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    requests = draw(prefix_forests(10).filter(lambda requests: any(requests)))
    n = len(requests)

    def names(*choices: str | None) -> list[str | None]:
        return draw(st.lists(st.sampled_from(choices), min_size=n, max_size=n))

    media: list[list[tuple[int, int | None]]] = []
    for _ in requests:
        digests = draw(st.lists(st.integers(0, 1), max_size=2))
        known = draw(st.booleans())
        media.append([(digest, draw(st.integers(0, 14)) if known else None) for digest in digests])
    return Traffic(
        requests, names("a", "b", None), names("x", None), media if draw(st.booleans()) else [[]] * n
    )


def found(results: kvcap.Results) -> list[tuple[int, int, int]]:
    table = results.table("requests")
    columns = [table[name].to_pylist() for name in ("blocks", "ceiling_blocks", "required_blocks")]
    return list(zip(*columns, strict=True))


def expected(chained: Sequence[Sequence[int]], order: str = "tail-first") -> list[tuple[int, int, int]]:
    target = Fraction(99, 100)
    return [
        (len(depths), sum(depth >= 0 for depth in depths), oracles.required_blocks(depths, target))
        for depths in oracles.depths(chained, order)
    ]


def write(path: Path, records: Sequence[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def replay_log(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    return kvcap.replay(log, options, reading=reading)


def replay_parquet(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    out = str(directory / "trace.parquet")
    convert([log], out, reading, ConvertOptions(force=True))
    return kvcap.replay(out, options)


def replay_anonymous(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    out = str(directory / "anonymous.parquet")
    convert([log], out, reading, ConvertOptions(anonymize=True, force=True))
    return kvcap.replay(out, options)


def replay_mooncake(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    out = str(directory / "out.jsonl")
    convert([log], out, reading, ConvertOptions(target="mooncake", force=True))
    return kvcap.replay(out, options)


def replay_table(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    records = [json.loads(line) for line in Path(log).read_text().splitlines()]
    columns = list(dict.fromkeys(name for record in records for name in record))
    table = pa.table({name: [record.get(name) for record in records] for name in columns})
    return kvcap.replay(table, options, reading=reading)


def replay_fleet(
    log: str, directory: Path, options: kvcap.ReplayOptions, reading: kvcap.ReadOptions
) -> kvcap.Results:
    job = FleetJob(reading, options)
    parts = [list(read_file(job, name)) for name in fleet_files([log])]
    heads = [part[0] for part in parts]
    plan = plan_pools(job, heads)
    with FleetResults(job, heads, plan, directory / "fleet", force=True) as results:
        for pool in plan.pools:
            pieces = [parts[file][1 + piece] for file, piece in pool.pieces]
            results.add(replay_pool(job, plan.facts, pool, *pieces))
        return results.commit()


ROUTES: list[Callable[..., kvcap.Results]] = [
    replay_log,
    replay_parquet,
    replay_anonymous,
    replay_mooncake,
    replay_table,
    replay_fleet,
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


slow_files = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", ["hash_ids", "token_ids"])
@pytest.mark.parametrize("way", ROUTES, ids=lambda way: way.__name__)
@slow_files
@given(traffic=traffics(), order=st.sampled_from(["tail-first", "head-first"]))
def test_every_way_in_keeps_models_salts_and_media_apart(
    directory: Path, kind: str, way: Callable[..., kvcap.Results], traffic: Traffic, order: str
) -> None:
    log = write(directory / "log.jsonl", traffic.records(kind))
    options = kvcap.ReplayOptions.of(block_size=BLOCK, touch_order=order)
    with way(log, directory, options, kvcap.ReadOptions(block_size=BLOCK)) as results:
        assert found(results) == expected(traffic.chained(), order)


@pytest.mark.parametrize("kind", ["hash_ids", "token_ids"])
@pytest.mark.parametrize("way", ROUTES, ids=lambda way: way.__name__)
@slow_files
@given(traffic=traffics())
def test_one_world_shares_across_models_and_salts_by_every_way_in(
    directory: Path, kind: str, way: Callable[..., kvcap.Results], traffic: Traffic
) -> None:
    log = write(directory / "log.jsonl", traffic.records(kind))
    reading = kvcap.ReadOptions(block_size=BLOCK, namespace=())
    with way(log, directory, kvcap.ReplayOptions.of(block_size=BLOCK), reading) as results:
        assert found(results) == expected(traffic.chained(namespaces=False))
        assert not any("nothing is shared" in notice for notice in results.run.reading.notices)


@slow_files
@given(traffic=traffics())
def test_a_trace_that_was_converted_with_namespaces_still_replays_as_one_world(
    directory: Path, traffic: Traffic
) -> None:
    for kind in ("hash_ids", "token_ids"):
        log = write(directory / "log.jsonl", traffic.records(kind))
        out = str(directory / "trace.parquet")
        for options in (ConvertOptions(force=True), ConvertOptions(anonymize=True, force=True)):
            convert([log], out, kvcap.ReadOptions(block_size=BLOCK), options)
            replay_options = kvcap.ReplayOptions.of(block_size=BLOCK)
            with kvcap.replay(out, replay_options, reading=kvcap.ReadOptions(namespace=())) as results:
                assert found(results) == expected(traffic.chained(namespaces=False))


@slow_files
@given(traffic=traffics(), coarsen=st.integers(2, 3))
def test_coarser_blocks_are_kept_apart_alike(directory: Path, traffic: Traffic, coarsen: int) -> None:
    log = write(directory / "log.jsonl", traffic.records("hash_ids"))
    options = kvcap.ReplayOptions.of(block_size=BLOCK, coarsen=coarsen)
    coarse = [
        [request[min(i + coarsen, len(request)) - 1] for i in range(0, len(request), coarsen)]
        for request in traffic.chained()
    ]
    with kvcap.replay(log, options) as results:
        assert found(results) == expected(coarse)


@slow_files
@given(traffic=traffics(), bound=st.integers(1, 12))
def test_bounded_replays_hit_as_unbounded_ones_up_to_their_bound(
    directory: Path, traffic: Traffic, bound: int
) -> None:
    log = write(directory / "log.jsonl", traffic.records("token_ids"))
    capacities = ",".join(f"{blocks}blocks" for blocks in range(1, bound + 1))
    options = kvcap.ReplayOptions.of(block_size=BLOCK, max_capacity=f"{bound}blocks")
    with kvcap.replay(log, options) as results:
        rows = kvcap.answer(results, capacities).together.capacities
    hits = [sum(oracles.lru_hits(traffic.chained(), blocks, "tail-first")) for blocks in range(1, bound + 1)]
    assert [row.hit_blocks for row in rows][:bound] == hits


@slow_files
@given(traffic=traffics())
def test_pools_and_namespaces_combine(directory: Path, traffic: Traffic) -> None:
    records = traffic.records("hash_ids")
    pools = ["p", "q"]
    for number, record in enumerate(records):
        record["instance"] = pools[number % 2]
    log = write(directory / "log.jsonl", records)
    chained = traffic.chained()
    with kvcap.replay(log, reading=kvcap.ReadOptions(pool="instance")) as results:
        for parity in (0, 1):
            assert found(results)[parity::2] == expected(chained[parity::2])


@slow_files
@given(traffic=traffics(), cut=st.integers(0, 10), kind=st.sampled_from(["hash_ids", "token_ids"]))
def test_the_live_estimator_keeps_namespaces_apart(traffic: Traffic, cut: int, kind: str) -> None:
    estimator = Estimator(EstimatorOptions((1, 4), 1000, BlockOptions(BLOCK)))
    rows = []
    for part in (slice(0, cut), slice(cut, None)):
        requests = traffic.requests[part]
        lengths = [len(request) * (BLOCK if kind == "token_ids" else 1) for request in requests]
        ids = [
            id_
            for request in requests
            for block in request
            for id_ in [block] * (BLOCK if kind == "token_ids" else 1)
        ]
        batch = RequestBatch(
            kind,
            np.array(ids, np.uint32 if kind == "token_ids" else np.uint64),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))]).astype(np.int64),
            namespaces=traffic.namespaces[part],
        )
        rows += list(estimator.observe_many(batch))
    measured = [(row.blocks, row.ceiling_blocks, row.required_blocks) for row in rows]
    assert measured == expected(traffic.chained(media=False))


@slow_files
@given(traffic=traffics(), capacity=st.integers(1, 10))
def test_routing_deals_requests_that_are_kept_apart(directory: Path, traffic: Traffic, capacity: int) -> None:
    log = write(directory / "log.jsonl", traffic.records("hash_ids"))
    answer = route(log, RouteOptions(f"{capacity}blocks", instances=(1,), policies=("round-robin",)))
    hits = sum(oracles.lru_hits(traffic.chained(), capacity, "tail-first"))
    assert [row.hit_blocks for row in answer.rows] == [hits, hits]


def test_a_fleet_says_what_one_replay_says(directory: Path) -> None:
    traffic = Traffic([[1, 2], [1, 2]], ["a", "b"], ["x", None], [[], [(0, None)]])
    log = write(directory / "log.jsonl", traffic.records("hash_ids"))
    options, reading = kvcap.ReplayOptions(), kvcap.ReadOptions()
    with (
        replay_log(log, directory, options, reading) as one,
        replay_fleet(log, directory, options, reading) as many,
    ):
        assert comparable(one.run) == comparable(many.run)
        assert len([n for n in one.run.reading.notices if "share" in n]) == 2

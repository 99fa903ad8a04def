"""The online estimator against the definitions, and against itself in other chunks."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import chunkings, prefix_forests

from kvcap.blocks import BlockOptions
from kvcap.errors import SchemaError, UsageError
from kvcap.online import Estimator, EstimatorOptions, Observation, RequestBatch
from kvcap.online.estimator import state as state_module

ORDERS = ["tail-first", "head-first"]
CAPACITIES = (0, 1, 3, 7, 20)
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": Fraction(999, 10)}


def options(**changes: object) -> EstimatorOptions:
    blocks = BlockOptions(changes.pop("block_size", 4), partial_block=changes.pop("partial_block", None))  # type: ignore[arg-type]
    defaults = {"capacities_blocks": CAPACITIES, "max_capacity_blocks": 1000, "blocks": blocks}
    return EstimatorOptions(**{**defaults, **changes})  # type: ignore[arg-type]


def batch(requests: list[list[int]], first: int = 0, end: int | None = None) -> RequestBatch:
    part = requests[first:end]
    offsets = np.concatenate([[0], np.cumsum([len(request) for request in part])]).astype(np.int64)
    ids = np.array([block for request in part for block in request], np.uint64)
    return RequestBatch("hash_ids", ids, offsets)


def as_tokens(request: list[int], block_size: int = 4) -> list[int]:
    """One token per block says which it is; the others are the same everywhere."""
    return [token for block in request for token in [7] * (block_size - 1) + [block]]


def known_leading(depths: list[int]) -> int:
    return next((i for i, depth in enumerate(depths) if depth == oracles.COLD), len(depths))


@pytest.mark.parametrize("order", ORDERS)
@given(requests=prefix_forests(), target=st.fractions(Fraction(1, 50), 1, max_denominator=100))
def test_every_observation_is_what_direct_lru_caches_say(
    order: str, requests: list[list[int]], target: Fraction
) -> None:
    estimator = Estimator(options(touch_order=order, target=target))
    paths = oracles.chained(requests)
    depths = oracles.depths(paths, order)
    hits = [oracles.lru_hits(paths, capacity, order) for capacity in CAPACITIES]
    for r, request in enumerate(requests):
        assert estimator.observe(hash_ids=request) == Observation(
            request_number=r,
            input_tokens=4 * len(request),
            blocks=len(request),
            ceiling_blocks=known_leading(depths[r]),
            beyond_bound_blocks=0,
            required_blocks=oracles.required_blocks(depths[r], target),
            hit_blocks=tuple(at_capacity[r] for at_capacity in hits),
        )


@given(data=st.data())
def test_chunks_make_no_difference(data: st.DataObject) -> None:
    requests = data.draw(prefix_forests())
    cuts = data.draw(chunkings(len(requests)))
    bound = data.draw(st.integers(20, 40))
    chunked, single = (Estimator(options(max_capacity_blocks=bound)) for _ in range(2))
    found = [list(chunked.observe_many(batch(requests, a, b))) for a, b in itertools.pairwise(cuts)]
    assert list(itertools.chain(*found)) == [single.observe(hash_ids=request) for request in requests]
    one, other = chunked.snapshot(), single.snapshot()
    assert (one.totals, one.window, one.samples) == (other.totals, other.window, other.samples)
    assert (one.tracked_blocks, one.forgotten_blocks) == (other.tracked_blocks, other.forgotten_blocks)


@given(requests=prefix_forests())
def test_token_ids_find_what_their_blocks_as_hash_ids_find(requests: list[list[int]]) -> None:
    by_tokens, by_hashes = Estimator(options()), Estimator(options())
    for request in requests:
        assert by_tokens.observe(as_tokens(request)) == by_hashes.observe(hash_ids=request)


@given(requests=prefix_forests(), spare=st.integers(0, 5))
def test_hit_tokens_are_the_tokens_of_the_leading_hit_blocks(requests: list[list[int]], spare: int) -> None:
    estimator = Estimator(options())
    lengths = [max(1, 4 * len(request) - spare) for request in requests]
    for request, length in zip(requests, lengths, strict=True):
        estimator.observe(hash_ids=request, input_tokens=length)
    totals = estimator.snapshot().totals
    paths = oracles.chained(requests)
    weights = [oracles.block_weights(len(r), n, 4) for r, n in zip(requests, lengths, strict=True)]
    for row in totals.capacities:
        hits = oracles.lru_hits(paths, row.capacity_blocks, "tail-first")
        assert row.hit_blocks == sum(hits)
        assert row.hit_tokens == sum(sum(w[:n]) for w, n in zip(weights, hits, strict=True))
    known = [known_leading(depths) for depths in oracles.depths(paths, "tail-first")]
    assert totals.ceiling_tokens == sum(sum(w[:n]) for w, n in zip(weights, known, strict=True))
    assert totals.input_tokens == sum(lengths)


@given(requests=prefix_forests(), size=st.integers(1, 6))
def test_the_window_holds_the_latest_requests_and_their_percentiles(
    requests: list[list[int]], size: int
) -> None:
    estimator = Estimator(options(window_requests=size, target=Fraction(1)))
    observations = list(estimator.observe_many(batch(requests)))
    latest = observations[-size:]
    snapshot = estimator.snapshot()
    assert snapshot.window.requests == len(latest)
    assert snapshot.window.blocks == sum(o.blocks for o in latest)
    assert [row.hit_blocks for row in snapshot.window.capacities] == [
        sum(o.hit_blocks[c] for o in latest) for c in range(len(CAPACITIES))
    ]
    for sample, kept in (
        (snapshot.samples, latest),
        (snapshot.reusing, [o for o in latest if o.ceiling_blocks]),
    ):
        required = [o.required_blocks for o in kept]
        named = PERCENTILES.items() if kept else ()
        expected = {name: oracles.nearest_rank(required, Fraction(percent)) for name, percent in named}
        assert sample.required_blocks == expected


@given(data=st.data(), bound=st.integers(1, 10))
def test_state_goes_on_as_if_nothing_had_happened(data: st.DataObject, bound: int) -> None:
    requests = data.draw(prefix_forests())
    cut = data.draw(st.integers(0, len(requests)))
    pools = data.draw(st.lists(st.sampled_from(["a", None]), min_size=len(requests), max_size=len(requests)))
    chosen = options(capacities_blocks=(1,), max_capacity_blocks=bound, window_requests=4)
    whole, half = Estimator(chosen), Estimator(chosen)
    for request, pool in zip(requests[:cut], pools[:cut], strict=True):
        whole.observe(hash_ids=request, pool=pool)
        half.observe(hash_ids=request, pool=pool)
    restored = Estimator.restore(chosen, half.state())
    for request, pool in zip(requests[cut:], pools[cut:], strict=True):
        assert restored.observe(hash_ids=request, pool=pool) == whole.observe(hash_ids=request, pool=pool)
    one, other = restored.snapshot(), whole.snapshot()
    assert (one.totals, one.window, one.pools) == (other.totals, other.window, other.pools)
    assert (one.tracked_blocks, one.forgotten_blocks) == (other.tracked_blocks, other.forgotten_blocks)


@given(requests=prefix_forests(), bound=st.integers(1, 12))
def test_a_bound_keeps_every_capacity_up_to_it_exact(requests: list[list[int]], bound: int) -> None:
    estimator = Estimator(options(capacities_blocks=(bound,), max_capacity_blocks=bound))
    paths = oracles.chained(requests)
    depths = oracles.depths(paths, "tail-first")
    found = [estimator.observe(hash_ids=request) for request in requests]
    assert [o.hit_blocks[0] for o in found] == oracles.lru_hits(paths, bound, "tail-first")
    for o, own in zip(found, depths, strict=True):
        just_beyond = sum(bound <= depth < 2 * bound for depth in own)
        all_beyond = sum(depth >= bound for depth in own)
        assert just_beyond <= o.beyond_bound_blocks <= all_beyond


@given(requests=prefix_forests(), data=st.data())
def test_each_pool_has_a_cache_of_its_own(requests: list[list[int]], data: st.DataObject) -> None:
    names = ["a", "b", None]
    pools = data.draw(st.lists(st.sampled_from(names), min_size=len(requests), max_size=len(requests)))
    together = Estimator(options())
    whole = batch(requests)
    observed = together.observe_many(RequestBatch("hash_ids", whole.ids, whole.offsets, pools=pools))
    alone = {name: Estimator(options()) for name in names}
    for request, pool, found in zip(requests, pools, observed, strict=True):
        expected = alone[pool].observe(hash_ids=request)
        assert (found.hit_blocks, found.required_blocks) == (expected.hit_blocks, expected.required_blocks)


def test_a_window_in_seconds_forgets_old_requests_only_in_its_own_sums() -> None:
    estimator = Estimator(options(window_seconds=10))
    for second in (0, 5, 12):
        estimator.observe([1] * 8, timestamp_us=second * 1_000_000)
    assert estimator.snapshot().window.requests == 2
    assert estimator.snapshot(now_us=22_000_001).window.requests == 0
    assert estimator.snapshot(now_us=22_000_001).totals.requests == 3


def test_the_tail_of_tokens_counts_as_a_block_only_when_kept() -> None:
    dropped, kept = Estimator(options()), Estimator(options(partial_block="keep"))
    for estimator in (dropped, kept):
        estimator.observe([1, 2, 3, 4, 5])
    assert dropped.observe([1, 2, 3, 4, 5]).ceiling_blocks == 1
    again = kept.observe([1, 2, 3, 4, 5])
    assert (again.blocks, again.ceiling_blocks) == (2, 2)
    assert kept.observe([1, 2, 3, 4, 5, 0]).ceiling_blocks == 1
    assert kept.snapshot().totals.ceiling_tokens == 9


def test_an_incomplete_block_is_never_taken_for_full_ones() -> None:
    estimator = Estimator(options(block_size=2, partial_block="keep"))
    estimator.observe([1, 2, 9])
    assert estimator.observe([1, 2, 9, 0, 1, 0]).ceiling_blocks == 1


def test_bytes_are_whole_blocks() -> None:
    estimator = Estimator(options(block_bytes=1000, capacities_blocks=(3,), target=Fraction(1)))
    for _ in range(2):
        estimator.observe(hash_ids=[1, 2])
    snapshot = estimator.snapshot()
    assert snapshot.totals.capacities[0].capacity_bytes == 3000
    assert snapshot.samples.required_bytes == {"p50": 0, "p90": 2000, "p95": 2000, "p99": 2000, "p999": 2000}


def test_signed_hash_ids_keep_their_bits() -> None:
    estimator = Estimator(options())
    estimator.observe(hash_ids=[-1])
    assert estimator.observe(hash_ids=[2**64 - 1]).ceiling_blocks == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({}, "either token_ids or hash_ids"),
        ({"token_ids": [1], "hash_ids": [1]}, "either token_ids or hash_ids"),
        ({"token_ids": [1.5]}, "float64"),
        ({"token_ids": [-1]}, "outside"),
        ({"token_ids": [2**32]}, "outside"),
        ({"token_ids": [[1]]}, "flat list"),
        ({"token_ids": [1], "pool": "c"}, "2 pools"),
    ],
)
def test_what_cannot_be_observed_is_refused_and_counts_nothing(call: dict[str, object], message: str) -> None:
    estimator = Estimator(options(max_pools=2))
    estimator.observe([1], pool="a")
    estimator.observe([1], pool="b")
    with pytest.raises(UsageError, match=message):
        estimator.observe(**call)  # type: ignore[arg-type]
    assert estimator.snapshot().totals.requests == 2


def test_one_estimator_takes_one_kind_of_ids() -> None:
    estimator = Estimator(options())
    estimator.observe([1])
    with pytest.raises(UsageError, match="hash_ids"):
        estimator.observe(hash_ids=[1])


def test_a_window_in_seconds_needs_timestamps() -> None:
    with pytest.raises(UsageError, match="timestamps"):
        Estimator(options(window_seconds=1)).observe([1])


@pytest.mark.parametrize(
    "changes",
    [
        {"capacities_blocks": (2000,)},
        {"block_size": 0},
        {"target": Fraction(0)},
        {"window_seconds": 0},
        {"window_requests": 0},
    ],
)
def test_options_out_of_range_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        options(**changes)


def test_a_state_of_other_options_is_refused() -> None:
    state = Estimator(options()).state()
    with pytest.raises(SchemaError, match="block_size"):
        Estimator.restore(options(block_size=8), state)
    with pytest.raises(SchemaError):
        Estimator.restore(options(), state.replace_schema_metadata(None))


@pytest.mark.parametrize(
    "offsets", [[1, 2], [0, 1], [0, 2, 1, 2], []], ids=["not from 0", "short", "descending", "none"]
)
def test_offsets_must_span_the_ids(offsets: list[int]) -> None:
    with pytest.raises(UsageError, match="offsets"):
        RequestBatch("token_ids", np.zeros(2, np.uint32), np.array(offsets, np.int64))


def changed_state(seed: int, forge: bool) -> tuple[Estimator, Any]:
    """A state in which something is not as an estimator left it; forged ones have a right checksum."""
    rng = random.Random(seed)
    made = Estimator(options())
    for _ in range(rng.randrange(1, 30)):
        made.observe([rng.randrange(3) for _ in range(rng.randrange(20))], timestamp_us=rng.randrange(99))
    state = made.state()
    rows = state.to_pylist()
    row = rng.choice([row for row in rows if row["values"]])
    values = bytearray(row["values"])
    values[rng.randrange(len(values))] ^= 1 << rng.randrange(8)
    row["values"] = bytes(values)
    changed = pa.Table.from_pylist(rows, state.schema)
    if forge:
        key = b"kvcap.estimator_state"
        metadata = {**json.loads(state.schema.metadata[key]), "checksum": state_module._checksum(changed)}
        changed = changed.replace_schema_metadata({key: json.dumps(metadata).encode()})
    return made, changed


@given(st.integers(0, 1 << 30))
def test_a_damaged_state_is_refused(seed: int) -> None:
    made, changed = changed_state(seed, forge=False)
    with pytest.raises(SchemaError, match=r"damaged.*checksum"):
        Estimator.restore(made.options, changed)


@given(st.integers(0, 1 << 30))
def test_a_forged_state_is_refused_or_does_no_harm(seed: int) -> None:
    made, changed = changed_state(seed, forge=True)
    try:
        restored = Estimator.restore(made.options, changed)
    except SchemaError:
        return
    restored.observe([1, 2, 0, 1, 2, 0, 1, 2, 0], timestamp_us=5)
    restored.snapshot()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "words"),
        ("latest_us", 1.5),
        ("latest_us", 2**63),
        ("pools", "a"),
        ("pools", [1]),
        ("pools", [None, None]),
        ("n_requests", 7),
        ("options", {}),
        ("version", 2),
    ],
)
def test_wrong_metadata_is_refused(name: str, value: Any) -> None:
    made = Estimator(options())
    made.observe([1, 2, 3, 4], timestamp_us=1)
    state, key = made.state(), b"kvcap.estimator_state"
    metadata = {**json.loads(state.schema.metadata[key]), name: value}
    for text in (json.dumps(metadata), "{", "[]", "nonsense"):
        with pytest.raises(SchemaError):
            Estimator.restore(made.options, state.replace_schema_metadata({key: text.encode()}))

"""Every named query against direct simulation of what its header says, on random small logs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import oracles_queries as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_results import BLOCK_BYTES, BLOCK_SIZE, ORDERS, SmallLog, small_logs

import kvcap

few = settings(max_examples=12)
more = settings(max_examples=20)
orders = st.sampled_from(ORDERS)
capacities = st.sampled_from([4, 0, 2, 6, 9, 30])
warm_ups = st.sampled_from([Fraction(2, 5), Fraction(0)])
ttls = st.sampled_from([0, 1_000_000, 2_500_000, 3_000_000, 5_500_000])


def rows(results: kvcap.Results, name: str, **parameters: object) -> list[dict[str, Any]]:
    return results.query(name, **parameters).to_pylist()


def seconds(microseconds: int) -> Decimal:
    return Decimal(microseconds) / 1_000_000


def ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@few
@given(small_logs(), orders, warm_ups)
def test_totals_and_curves_are_those_of_the_measured_requests_of_each_pool(
    log: SmallLog, order: str, warm_up: Fraction
) -> None:
    logged = log.logged(warm_up)
    known = oracle.hit_positions(logged, order)
    sizes = [0, 1, 5, 9]
    served = {size: oracle.hit_positions(logged, order, size) for size in sizes}
    with log.replayed(order, warm_up) as results:
        found = {row["pool"]: row for row in rows(results, "totals")}
        curve = rows(results, "hit_rate_curve", capacities_blocks=sizes)
        single = [rows(results, "hit_rate", capacity_blocks=size)[0] for size in sizes]
    assert list(found) == oracle.pools_of(logged)
    for pool, row in found.items():
        chosen = [request for _, request in oracle.in_pool(logged, pool)]
        assert row["requests"] == len(chosen)
        assert row["blocks"] == sum(len(request.path) for request in chosen)
        assert row["input_tokens"] == sum(request.input_tokens for request in chosen)
        assert (row["ceiling_blocks"], row["ceiling_tokens"]) == oracle.summed_hits(logged, known, pool)
    assert [(row["pool"], row["capacity_blocks"]) for row in curve] == [(p, c) for p in found for c in sizes]
    for row in curve:
        hits, tokens = oracle.summed_hits(logged, served[row["capacity_blocks"]], row["pool"])
        totals = found[row["pool"]]
        assert (row["hit_blocks"], row["hit_tokens"]) == (hits, tokens)
        assert row["block_hit_rate"] == row["prefix_hit_rate"] == ratio(hits, totals["blocks"])
        assert row["reuse_hit_rate"] == ratio(hits, totals["ceiling_blocks"])
        assert row["token_hit_rate"] == ratio(tokens, totals["input_tokens"])
    together = [{k: v for k, v in row.items() if k != "pool"} for row in curve if row["pool"] is None]
    assert single == together


@more
@given(small_logs(), orders, warm_ups)
def test_the_smallest_capacity_for_a_share_of_the_ceiling(
    log: SmallLog, order: str, warm_up: Fraction
) -> None:
    logged = log.logged(warm_up)
    most = sum(len(request.path) for request in logged) + 1
    hits = [oracle.hit_positions(logged, order, capacity) for capacity in range(most + 1)]
    percents = list(range(5, 101, 5))
    with log.replayed(order, warm_up) as results:
        found = rows(results, "capacity_for_hit_rate", percents=percents)
    assert [(row["pool"], row["percent"]) for row in found] == [
        (pool, percent) for pool in oracle.pools_of(logged) for percent in percents
    ]
    for row in found:
        per_capacity = [oracle.summed_hits(logged, positions, row["pool"])[0] for positions in hits]
        needed = Fraction(int(row["percent"]), 100) * per_capacity[-1]
        smallest = next(capacity for capacity, count in enumerate(per_capacity) if count >= needed)
        assert row["capacity_blocks"] == smallest
        assert row["capacity_bytes"] == smallest * BLOCK_BYTES
        assert row["hit_blocks"] == per_capacity[smallest]


@few
@given(small_logs(), orders, capacities, warm_ups, ttls)
def test_a_ttl_and_a_capacity_together(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction, ttl_us: int
) -> None:
    logged = log.logged(warm_up)
    with log.replayed(order, warm_up) as results:
        found = rows(
            results,
            "ttl_surface",
            ttls_seconds=f"{seconds(ttl_us)}, none",
            capacities_blocks=f"{capacity}, unlimited",
        )
        distinct = results.run.distinct_blocks
    sizes = sorted({capacity, distinct})
    keys = [(pool, ttl, size) for pool in oracle.pools_of(logged) for ttl in (ttl_us, None) for size in sizes]
    assert [
        (
            row["pool"],
            None if row["ttl_seconds"] is None else round(row["ttl_seconds"] * 1e6),
            row["capacity_blocks"],
        )
        for row in found
    ] == keys
    for row, (pool, ttl, size) in zip(found, keys, strict=True):
        hits = oracle.hit_positions(logged, order, size, ttl)
        assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(logged, hits, pool)
        assert row["unknown_age_blocks"] == 0
        assert row["capacity_bytes"] == size * BLOCK_BYTES


@more
@given(small_logs(), orders, capacities, warm_ups, ttls | st.none())
def test_every_missed_token_has_one_reason(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction, ttl_us: int | None
) -> None:
    logged = log.logged(warm_up)
    ttl = "none" if ttl_us is None else str(seconds(ttl_us))
    with log.replayed(order, warm_up) as results:
        found = rows(results, "miss_reasons", capacity_blocks=capacity, ttl_seconds=ttl)
    both = oracle.hit_positions(logged, order, capacity, ttl_us)
    for pool in oracle.pools_of(logged):
        truth = {**oracle.miss_reasons(logged, order, capacity, ttl_us, pool), "last token": (0, 0)}
        mine = {row["reason"]: row for row in found if row["pool"] == pool}
        assert {name: (row["missed_blocks"], row["missed_tokens"]) for name, row in mine.items()} == truth
        _, hit_tokens = oracle.summed_hits(logged, both, pool)
        input_tokens = sum(request.input_tokens for _, request in oracle.in_pool(logged, pool))
        missed = sum(row["missed_tokens"] for row in mine.values())
        assert missed == input_tokens - hit_tokens
        for row in mine.values():
            assert row["share_of_missed_tokens"] == ratio(row["missed_tokens"], missed)
            assert row["share_of_input_tokens"] == ratio(row["missed_tokens"], input_tokens)


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
@few
@given(small_logs(), orders, st.lists(st.integers(0, 6), min_size=2, max_size=3), warm_ups)
def test_tiers_serve_what_caches_stacked_that_way_serve(
    mode: str, log: SmallLog, order: str, sizes: list[int], warm_up: Fraction
) -> None:
    exclusive = mode == "exclusive"
    logged = log.logged(warm_up)
    served = oracle.tier_hits(logged, order, sizes, exclusive=exclusive)
    window_us = 2_500_000
    tiers = ", ".join([f"hbm={sizes[0]}", *(f"{size}blocks" for size in sizes[1:])])
    with log.replayed(order, warm_up) as results:
        found = rows(results, "tiers", tiers=tiers, mode=mode, window_seconds="2.5")
        reach = sum(sizes) if exclusive else max(sizes)
        plain = {row["pool"]: row for row in rows(results, "hit_rate_curve", capacities_blocks=reach)}
    measured_times = [request.timestamp_us for request in logged if request.measured]
    for pool in oracle.pools_of(logged):
        mine = [row for row in found if row["pool"] == pool]
        assert [row["tier"] for row in mine] == list(range(1, len(sizes) + 1))
        assert mine[0]["tier_name"] == "hbm"
        assert [row["tier_name"] for row in mine[1:]] == [f"tier {row['tier']}" for row in mine[1:]]
        assert sum(row["hit_blocks"] for row in mine) == plain[pool]["hit_blocks"]
        assert sum(row["hit_tokens"] for row in mine) == plain[pool]["hit_tokens"]
        for t, row in enumerate(mine):
            here = [{i for i, tier in of.items() if tier == t} for of in served]
            assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(logged, here, pool)
            assert row["read_bytes"] == row["hit_blocks"] * BLOCK_BYTES
            reads = {r: len(here[r]) for r, _ in oracle.in_pool(logged, pool)}
            counts = oracle.counts_per_window(
                measured_times, [reads.get(r, 0) for r, q in enumerate(logged) if q.measured], window_us
            )
            for percent in (50, 99):
                rank = oracle.nearest_rank(counts, percent)
                assert row[f"read_blocks_per_second_p{percent}"] == rank * 1_000_000 / window_us
                assert row[f"read_bytes_per_second_p{percent}"] == rank * 1_000_000 / window_us * BLOCK_BYTES


def required(results: kvcap.Results) -> list[int]:
    """What each request required, as the replay says (tested beside the kernels)."""
    return results.table("requests")["required_blocks"].to_pylist()


def check_group(
    row: dict[str, Any],
    logged: Sequence[oracle.Logged],
    members: list[int],
    hits: list[set[int]],
    needs: list[int],
    known: list[set[int]],
) -> None:
    """Compare the columns that queries by group have in common."""
    blocks = sum(len(logged[r].path) for r in members)
    hit_blocks = sum(len(hits[r]) for r in members)
    hit_tokens = sum(oracle.tokens_at(logged[r], hits[r]) for r in members)
    all_tokens = oracle.summed_hits(logged, hits)[1]
    assert row["requests"] == len(members)
    assert row["blocks"] == blocks
    assert row["input_tokens"] == sum(logged[r].input_tokens for r in members)
    assert (row["hit_blocks_in_pool"], row["hit_tokens_in_pool"]) == (hit_blocks, hit_tokens)
    assert row["share_of_all_hits"] == ratio(hit_tokens, all_tokens)
    assert row["block_hit_rate_in_pool"] == ratio(hit_blocks, blocks)
    assert row["token_hit_rate_in_pool"] == ratio(hit_tokens, row["input_tokens"])
    assert row["ceiling_block_hit_rate_in_pool"] == ratio(sum(len(known[r]) for r in members), blocks)
    for percent in (50, 99):
        rank = oracle.nearest_rank([needs[r] for r in members], percent)
        assert row[f"required_p{percent}_blocks_in_pool"] == rank


@few
@given(small_logs(), orders, capacities, warm_ups, st.sampled_from(["session_id", "model", "pool"]))
def test_a_group_gets_its_share_of_the_pools_hits(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction, column: str
) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    known = oracle.hit_positions(logged, order)
    with log.replayed(order, warm_up) as results:
        found = rows(results, "by_group", column_name=column, capacity_blocks=capacity)
        needs = required(results)
    members: dict[str | None, list[int]] = defaultdict(list)
    for r, request in oracle.in_pool(logged, None):
        members[getattr(request, column)].append(r)
    pairs = {(getattr(request, column), request.pool) for request in logged}
    assert {row["group_value"] for row in found} == set(members)
    assert [row["input_tokens"] for row in found] == sorted((r["input_tokens"] for r in found), reverse=True)
    for row in found:
        check_group(row, logged, members[row["group_value"]], hits, needs, known)
        of_group = [pair for pair in pairs if pair[0] == row["group_value"]]
        of_pool = [pair for pair in pairs if pair[1] == of_group[0][1]]
        assert row["is_own_pool"] == (len(of_group) == len(of_pool) == 1)


@few
@given(small_logs(), orders, capacities, warm_ups)
def test_prompts_of_a_length_get_their_share_of_the_pools_hits(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction
) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    known = oracle.hit_positions(logged, order)
    with log.replayed(order, warm_up) as results:
        found = rows(results, "length_buckets", bounds_tokens=[20, 8], capacity_blocks=capacity)
        needs = required(results)
    members: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for r, request in oracle.in_pool(logged, None):
        length = request.input_tokens
        members[(0, 8) if length < 8 else (8, 20) if length < 20 else (20, None)].append(r)
    assert [(row["from_tokens"], row["below_tokens"]) for row in found] == sorted(members, key=lambda b: b[0])
    for row in found:
        check_group(row, logged, members[row["from_tokens"], row["below_tokens"]], hits, needs, known)


@few
@given(small_logs(), orders, capacities, warm_ups)
def test_windows_count_traffic_hits_and_distinct_blocks(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction
) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    known = oracle.hit_positions(logged, order)
    window_us = 7_000_000
    with log.replayed(order, warm_up) as results:
        found = rows(results, "by_hour", window_seconds=7, capacity_blocks=capacity)
        needs = required(results)
    for pool in oracle.pools_of(logged):
        windows: dict[int, list[int]] = defaultdict(list)
        for r, request in oracle.in_pool(logged, pool):
            windows[request.timestamp_us // window_us].append(r)
        mine = [row for row in found if row["pool"] == pool]
        assert [row["window_start"] for row in mine] == [
            datetime(1970, 1, 1) + timedelta(microseconds=window * window_us) for window in sorted(windows)
        ]
        for row, window in zip(mine, sorted(windows), strict=True):
            members = windows[window]
            blocks = sum(len(logged[r].path) for r in members)
            touched = {(logged[r].pool, block) for r in members for block in logged[r].path}
            assert row["requests"] == len(members)
            assert row["blocks"] == blocks
            assert row["working_set_blocks"] == len(touched)
            assert row["hit_blocks"] == sum(len(hits[r]) for r in members)
            assert row["hit_tokens"] == sum(oracle.tokens_at(logged[r], hits[r]) for r in members)
            assert row["block_hit_rate"] == ratio(row["hit_blocks"], blocks)
            assert row["ceiling_block_hit_rate"] == ratio(sum(len(known[r]) for r in members), blocks)
            for percent in (50, 99):
                rank = oracle.nearest_rank([needs[r] for r in members], percent)
                assert row[f"required_p{percent}_blocks"] == rank


@few
@given(small_logs(), orders, capacities, warm_ups)
def test_hits_by_the_age_of_the_block(log: SmallLog, order: str, capacity: int, warm_up: Fraction) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    users = oracle.last_users(logged)
    ends = [2_500_000, 5_500_000]
    with log.replayed(order, warm_up) as results:
        found = rows(results, "reuse_time", ages_seconds="2.5, 5.5", capacity_blocks=capacity)
    for pool in oracle.pools_of(logged):
        blocks: Counter[int] = Counter()
        tokens: Counter[int] = Counter()
        for r, request in oracle.in_pool(logged, pool):
            for i in hits[r]:
                age = request.timestamp_us - logged[users[r][i]].timestamp_us
                place = sum(age > end for end in ends)
                blocks[place] += 1
                tokens[place] += request.weights[i]
        mine = [row for row in found if row["pool"] == pool]
        assert [(row["over_seconds"], row["to_seconds"]) for row in mine] == [
            (None, 2.5),
            (2.5, 5.5),
            (5.5, None),
        ]
        assert [row["hit_blocks"] for row in mine] == [blocks[place] for place in range(3)]
        assert [row["hit_tokens"] for row in mine] == [tokens[place] for place in range(3)]
        total = blocks.total()
        assert [row["share_so_far"] for row in mine] == [
            ratio(sum(blocks[j] for j in range(place + 1)), total) for place in range(3)
        ]


@few
@given(small_logs(), orders, capacities, warm_ups)
def test_hits_by_who_used_the_block_last(log: SmallLog, order: str, capacity: int, warm_up: Fraction) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    users = oracle.last_users(logged)
    with log.replayed(order, warm_up) as results:
        found = rows(results, "session_vs_cross", capacity_blocks=capacity)
    for pool in oracle.pools_of(logged):
        blocks: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for r, request in oracle.in_pool(logged, pool):
            for i in hits[r]:
                both = (request.session_id, logged[users[r][i]].session_id)
                kind = (
                    "no session" if None in both else f"{'same' if both[0] == both[1] else 'other'} session"
                )
                blocks[kind] += 1
                tokens[kind] += request.weights[i]
        mine = {row["last_used_by"]: row for row in found if row["pool"] == pool}
        assert set(mine) == {"same session", "other session", "no session"}
        for kind, row in mine.items():
            assert (row["hit_blocks"], row["hit_tokens"]) == (blocks[kind], tokens[kind])
            assert row["share_of_hits"] == ratio(tokens[kind], tokens.total())


@few
@given(small_logs(), orders, capacities, warm_ups, st.integers(1, 4))
def test_sessions_hold_what_the_caches_hold_of_theirs(
    log: SmallLog, order: str, capacity: int, warm_up: Fraction, n_moments: int
) -> None:
    logged = log.logged(warm_up)
    hits = oracle.hit_positions(logged, order, capacity)
    n_warm = sum(not request.measured for request in logged)
    n = len(logged) - n_warm
    moments = {n_warm + -(-n * step // n_moments) - 1 for step in range(1, n_moments + 1)}
    held = oracle.held_blocks(logged, order, capacity, sorted(moments))
    with log.replayed(order, warm_up) as results:
        found = {
            row["session_id"]: row
            for row in rows(
                results, "top_sessions", capacity_blocks=capacity, moments=n_moments, order_by="held"
            )
        }
        needs = required(results)
    p99 = max(1, oracle.nearest_rank([needs[r] for r, _ in oracle.in_pool(logged, None)], 99))
    assert set(found) == {request.session_id for request in logged}
    for session_id, row in found.items():
        members = [r for r, request in oracle.in_pool(logged, None) if request.session_id == session_id]
        assert row["requests"] == len(members)
        assert row["input_tokens"] == sum(logged[r].input_tokens for r in members)
        assert row["hit_blocks_in_pool"] == sum(len(hits[r]) for r in members)
        assert row["hit_tokens_in_pool"] == sum(oracle.tokens_at(logged[r], hits[r]) for r in members)
        assert row["p99_requests"] == sum(needs[r] >= p99 for r in members)
        assert row["max_required_blocks"] == max((needs[r] for r in members), default=0)
        assert row["held_blocks"] == held[session_id] / len(moments)
        assert row["share_of_held"] == ratio(held[session_id], held.total())
    order_of_rows = [row["held_blocks"] for row in found.values()]
    assert order_of_rows == sorted(order_of_rows, reverse=True)


@more
@given(small_logs(), orders, warm_ups)
def test_shared_prefixes_are_cut_where_paths_part_and_add_up_to_the_ceiling(
    log: SmallLog, order: str, warm_up: Fraction
) -> None:
    logged = log.logged(warm_up)
    truth = {key: value for key, value in oracle.segments(logged).items() if value[1] > 0}
    with log.replayed(order, warm_up) as results:
        found = rows(results, "prefix_hotness", rows=1000)
        ceiling = rows(results, "totals")[0]["ceiling_blocks"]
    assert {
        (row["pool"], row["first_request_id"], row["prefix_blocks"]): (row["segment_blocks"], row["reuses"])
        for row in found
    } == truth
    assert sum(row["reused_blocks"] for row in found) == ceiling
    assert all(row["reused_blocks"] == row["segment_blocks"] * row["reuses"] for row in found)
    assert [row["reused_blocks"] for row in found] == sorted(
        (row["reused_blocks"] for row in found), reverse=True
    )


@more
@given(small_logs(), orders, capacities, warm_ups)
def test_larger_blocks_from_the_same_run(log: SmallLog, order: str, capacity: int, warm_up: Fraction) -> None:
    factors = [1, 2, 3]
    with log.replayed(order, warm_up) as results:
        found = rows(results, "block_size_sensitivity", factors=factors, capacity_blocks=capacity)
    assert [row["factor"] for row in found] == factors
    for row in found:
        factor = row["factor"]
        logged = oracle.coarse(log.logged(warm_up), factor)
        known = oracle.hit_positions(logged, order)
        hits = oracle.hit_positions(logged, order, capacity // factor)
        assert row["block_size"] == factor * BLOCK_SIZE
        assert row["capacity_blocks"] == capacity // factor
        assert row["blocks"] == sum(len(request.path) for _, request in oracle.in_pool(logged, None))
        assert row["distinct_blocks"] == len({(q.pool, block) for q in logged for block in q.path})
        assert (row["ceiling_blocks"], row["ceiling_tokens"]) == oracle.summed_hits(logged, known)
        assert (row["hit_blocks"], row["hit_tokens"]) == oracle.summed_hits(logged, hits)


@pytest.mark.parametrize("order_by", ["hits", "p99"])
def test_sessions_are_ranked_by_what_is_asked(order_by: str) -> None:
    log = SmallLog(
        requests=[[1, 2, 3, 4], [5], [5], [5], [1, 2], [6, 7, 8, 9], [1, 2, 3, 4]],
        input_lengths=[16, 4, 4, 4, 8, 16, 16],
        timestamps_us=[0] * 7,
        pools=[None] * 7,
        session_ids=["late", "often", "often", "often", "often", "cold", "late"],
        models=["m"] * 7,
    )
    with log.replayed() as results:
        found = rows(results, "top_sessions", order_by=order_by, capacity_blocks="unlimited", rows=2)
    first = {"hits": ("late", "often"), "p99": ("late", "often")}[order_by]
    assert tuple(row["session_id"] for row in found) == first

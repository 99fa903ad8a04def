"""Named queries where an engine's rules or a bound leave something out of the reuse runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import oracles_queries as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_results import BLOCK_SIZE, EXAMPLE, ORDERS, SmallLog, small_logs

import kvcap
from kvcap.errors import QueryError

RULES = {"compute_last_token": True, "partial_block": "drop"}
BOUND = 15


@pytest.fixture(scope="module", params=["rules", "output", "bound"])
def partial(request: pytest.FixtureRequest) -> Iterator[kvcap.Results]:
    """The example, replayed so that some reuse is left out."""
    options = {
        "rules": RULES,
        "output": {"output_blocks": True, "partial_block": "drop"},
        "bound": {"max_capacity": f"{BOUND}blocks"},
    }
    with EXAMPLE.replayed(**options[request.param]) as opened:
        yield opened


@settings(max_examples=10)
@given(small_logs(), st.sampled_from(ORDERS), st.integers(0, 14))
def test_a_last_token_that_is_computed_is_a_reason_of_its_own(
    log: SmallLog, order: str, capacity: int
) -> None:
    full = replace(log, input_lengths=[BLOCK_SIZE * len(request) for request in log.requests])
    logged = full.logged()
    within = oracle.hit_positions(logged, order, capacity)
    known = oracle.hit_positions(logged, order)
    with full.replayed(order, **RULES) as results:
        found = {
            row["reason"]: row["missed_blocks"]
            for row in results.query("miss_reasons", capacity_blocks=capacity).to_pylist()
            if row["pool"] is None
        }
        missed_tokens = results.query("miss_reasons", capacity_blocks=capacity)["missed_tokens"].to_pylist()
        hit_tokens = results.query("hit_rate", capacity_blocks=capacity)["hit_tokens"][0].as_py()
    last = [len(request.path) - 1 for request in logged]
    assert found["first seen"] == sum(len(q.path) - len(known[r]) for r, q in enumerate(logged))
    assert found["last token"] == sum(last[r] in known[r] for r in range(len(logged)))
    assert found["capacity"] == sum(
        len([i for i in known[r] - within[r] if i != last[r]]) for r in range(len(logged))
    )
    assert sum(missed_tokens[: len(found)]) == sum(full.input_lengths) - hit_tokens


@pytest.mark.parametrize("query", ["prefix_hotness", "block_size_sensitivity"])
def test_what_takes_every_reuse_refuses_to_answer_without(partial: kvcap.Results, query: str) -> None:
    with pytest.raises(
        QueryError, match="takes every reuse: replay without engine rules and without --max-cap"
    ):
        partial.query(query)


def test_a_working_set_is_unknown_without_every_reuse(partial: kvcap.Results) -> None:
    assert set(partial.query("by_hour")["working_set_blocks"].to_pylist()) == {None}


def test_what_sessions_hold_is_known_up_to_a_bound_but_not_under_rules(partial: kvcap.Results) -> None:
    held = partial.query("top_sessions", capacity_blocks=BOUND).to_pylist()
    if partial.run.max_capacity_blocks is None:
        assert {row["held_blocks"] for row in held} == {None}
        return
    counted = oracle.held_blocks(EXAMPLE.logged(), "tail-first", BOUND, range(len(EXAMPLE.requests)))
    found = partial.query("top_sessions", capacity_blocks=BOUND, moments=len(EXAMPLE.requests)).to_pylist()
    assert {row["session_id"]: row["held_blocks"] for row in found} == {
        session_id: blocks / len(EXAMPLE.requests) for session_id, blocks in counted.items()
    }


def test_capacities_beyond_a_bound_are_refused() -> None:
    with EXAMPLE.replayed(max_capacity=f"{BOUND}blocks") as results, EXAMPLE.replayed() as complete:
        message = f"a capacity of {BOUND + 1} blocks is above the --max-capacity of this run"
        for query, parameters in (
            ("hit_rate", {"capacity_blocks": BOUND + 1}),
            ("hit_rate_curve", {"capacities_blocks": [1, BOUND + 1]}),
            ("ttl_surface", {"capacities_blocks": [1, BOUND + 1]}),
            ("tiers", {"tiers": [1, BOUND]}),
        ):
            with pytest.raises(QueryError, match=message):
                results.query(query, **parameters)
        unlimited = results.query("hit_rate", capacity_blocks="unlimited")
        assert unlimited["capacity_blocks"].to_pylist() == [BOUND]
        at_bound = complete.query("hit_rate", capacity_blocks=BOUND)
        assert unlimited["hit_tokens"].equals(at_bound["hit_tokens"])
        assert results.query("tiers", tiers=[1, BOUND], mode="inclusive")["hit_tokens"].equals(
            complete.query("tiers", tiers=[1, BOUND], mode="inclusive")["hit_tokens"]
        )


def test_reuse_beyond_a_bound_counts_as_first_seen() -> None:
    with EXAMPLE.replayed(max_capacity=f"{BOUND}blocks") as results, EXAMPLE.replayed() as complete:
        bounded = _missed(results)
        exact = _missed(complete)
    assert bounded["first seen"] == exact["first seen"] + exact["capacity"]
    assert bounded["capacity"] == 0 < exact["capacity"]
    assert sum(bounded.values()) == sum(exact.values())


def _missed(results: kvcap.Results) -> dict[str, int]:
    table = results.query("miss_reasons", capacity_blocks=BOUND)
    return dict(zip(table["reason"].to_pylist(), table["missed_tokens"].to_pylist(), strict=True))


def test_an_example_for_which_rules_matter() -> None:
    with EXAMPLE.replayed() as plain, EXAMPLE.replayed(warm_up=Fraction(0), **RULES) as ruled:
        assert (
            ruled.query("totals")["ceiling_blocks"][0].as_py()
            < plain.query("totals")["ceiling_blocks"][0].as_py()
        )

"""Growth against its plain oracle and the golden files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.errors import UsageError
from kvcap.growth import (
    SessionSample,
    faster,
    grow,
    joined,
    longer,
    more_turns,
    sampled_sessions,
    with_sessions_of_paths,
)
from kvcap.kernels.growth.tree import _product_is_less
from tests import oracles_growth as oracle
from tests.growth_traces import BLOCK_SIZE, path_trace, read_golden, read_log, requests_of
from tests.shared_data import shared_path

FACTORS = (1_500_000, 2_000_000, 3_000_000, 4_000_000)
GOLDEN = [
    *((name, f"grow{factor}") for name in ("rag", "chat") for factor in FACTORS),
    *((name, f"grow{factor}") for name in ("median", "few") for factor in FACTORS if factor != 3_000_000),
    *((name, what) for name in ("rag", "chat") for what in ("longer3_2", "turns2", "faster2")),
]
TRANSFORMATIONS = {
    **{f"grow{factor}": (lambda trace, factor=factor: grow(trace, factor)) for factor in FACTORS},
    "longer3_2": lambda trace: longer(trace, Fraction(3, 2)),
    "turns2": lambda trace: more_turns(trace, Fraction(2)),
    "faster2": lambda trace: faster(trace, Fraction(2)),
}


@pytest.mark.parametrize(("name", "what"), GOLDEN)
def test_golden_transformation_is_equal_to_the_byte(name: str, what: str) -> None:
    folder = shared_path("golden/growth")
    grown = TRANSFORMATIONS[what](path_trace(read_log(folder / f"{name}.jsonl")))
    assert requests_of(grown) == read_golden(folder / f"{name}_{what}.jsonl")


def test_golden_merge_of_two_logs_is_equal_to_the_byte() -> None:
    folder = shared_path("golden/growth")
    logs = [path_trace(read_log(folder / f"{name}.jsonl")) for name in ("rag", "chat")]
    assert requests_of(joined(*logs)) == read_golden(folder / "rag_join_chat.jsonl")


@st.composite
def logs(draw: st.DrawFn) -> list[oracle.Request]:
    """Sessions that continue, branch off and share, in order of time or not."""
    requests: list[oracle.Request] = []
    for _ in range(draw(st.integers(1, 30))):
        time, session = draw(st.integers(0, 60)), draw(st.integers(0, 12))
        earlier = draw(st.sampled_from([(), *(path for _, _, path in requests)]))
        kept = earlier[: draw(st.integers(0, len(earlier)))]
        requests.append((time, session, (*kept, *draw(st.lists(st.integers(0, 3), max_size=5)))))
    return sorted(requests, key=lambda request: request[0]) if draw(st.booleans()) else requests


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1_000_000, 4_500_000), st.integers(0, 2**64 - 1))
def test_copies_are_those_of_the_oracle(log: list[oracle.Request], factor: int, seed: int) -> None:
    assert requests_of(grow(path_trace(log), factor, seed)) == oracle.grow(log, factor, seed)


@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**64 - 1))
def test_other_transformations_are_those_of_the_oracle(
    log: list[oracle.Request], numerator: int, denominator: int, seed: int
) -> None:
    trace, factor = path_trace(log), Fraction(numerator, denominator)
    exact = factor.numerator, factor.denominator
    assert requests_of(longer(trace, factor)) == oracle.longer(log, *exact)
    assert requests_of(faster(trace, factor)) == oracle.faster(log, *exact)
    if factor >= 1:
        assert requests_of(more_turns(trace, factor, seed)) == oracle.more_turns(log, *exact, seed)


@settings(max_examples=40, deadline=None)
@given(logs(), st.integers(1000, 1024 * 10**6))
def test_pauses_of_years_are_divided_exactly(log: list[oracle.Request], millionths: int) -> None:
    years = [(time * 10**14 + 7, session, path) for time, session, path in log]
    factor = Fraction(millionths, 10**6)
    if factor >= 1:
        expected = oracle.faster(years, factor.numerator, factor.denominator)
        assert requests_of(faster(path_trace(years), factor)) == expected


@settings(max_examples=60, deadline=None)
@given(logs(), logs())
def test_two_logs_in_one_share_nothing(log: list[oracle.Request], other: list[oracle.Request]) -> None:
    assert requests_of(joined(path_trace(log), path_trace(other))) == oracle.joined(log, other)


@settings(max_examples=60, deadline=None)
@given(logs())
def test_sessions_are_found_in_paths(log: list[oracle.Request]) -> None:
    trace = path_trace(log)
    found = with_sessions_of_paths(trace, np.zeros(trace.n_requests, np.bool_))
    assert found.session.tolist() == oracle.derived_sessions(log)


@settings(max_examples=50, deadline=None)
@given(logs())
def test_sessions_that_a_log_names_stay(log: list[oracle.Request]) -> None:
    trace = path_trace(log)
    known = trace.session % 2 == 0
    found = with_sessions_of_paths(trace, known)
    pairs = set(zip(found.session[known].tolist(), trace.session[known].tolist(), strict=True))
    assert len(pairs) == len(set(trace.session[known].tolist()))
    assert not set(found.session[known].tolist()) & set(found.session[~known].tolist())


@given(logs(), st.integers(1, 4), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_sample_takes_sessions_whole_by_their_draw(
    log: list[oracle.Request], parts: int, number: int
) -> None:
    chosen = [r for r in oracle.canonical(log) if oracle.draw(3, number, 9, r[1]) % parts == 0]
    assert requests_of(sampled_sessions(path_trace(log), parts, 3, number)) == oracle.canonical(chosen)


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(0, 2**63 - 1),
)
@settings(max_examples=50, deadline=None)
def test_a_sample_in_one_pass_is_the_smallest_draws_of_all(
    batches: list[list[int]], size: int, seed: int
) -> None:
    sample = SessionSample(size, seed)
    held = [sample.add(np.array(batch, np.uint64)).tolist() for batch in batches]
    names = {name for batch in batches for name in batch}
    expected = set(sorted(names, key=lambda name: oracle.draw(seed, 0, 9, name))[:size])
    assert sample.sessions_seen == len(names)
    for batch, before in zip(batches, held, strict=True):
        at_last = sample.holds(np.array(batch, np.uint64)).tolist() if names else []
        assert at_last == [name in expected for name in batch]
        # What is held in the end was never left out.
        assert all(early for early, late in zip(before, at_last, strict=True) if late)


@given(st.integers(0, 2**53 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_products_beyond_64_bits_compare_exactly(a: int, b: int, c: int) -> None:
    near = (a * b) >> 53
    for third in {c, min(near, 2**63 - 1), min(near + 1, 2**63 - 1)}:
        assert _product_is_less(np.uint64(a), np.uint64(b), np.uint64(third)) == (a * b < third << 53)


def test_transformed_requests_weigh_their_blocks_as_the_originals_did() -> None:
    log = [(0, "a", (1, 2)), (5, "b", (1, 2, 3)), (9, "a", (1, 2, 4, 5)), (9, "c", ())]
    trace = path_trace(log, last_weight=40, rest=7)
    grown = [longer(trace, Fraction(2)), more_turns(trace, Fraction(2)), grow(trace, 4_000_000)]
    for one in grown:
        blocks = np.diff(one.offsets)
        assert one.covered_tokens.tolist() == np.where(blocks, (blocks - 1) * BLOCK_SIZE + 40, 0).tolist()
        assert one.input_tokens.tolist() == (one.covered_tokens + 7).tolist()
    assert grown[0].nodes.size > trace.nodes.size


def test_logs_with_blocks_of_two_sizes_are_refused() -> None:
    trace = path_trace([(0, "a", (1,))])
    with pytest.raises(UsageError, match="blocks of 128 and 64 tokens"):
        joined(trace, replace(trace, block_size=64))

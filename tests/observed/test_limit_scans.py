"""Scans for limits find what trying every capacity and lifetime finds."""

from __future__ import annotations

import random

import numpy as np
import oracles_observed as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.kernels.observed.limits import (
    best_capacities,
    best_joint_limits,
    best_lifetime,
    capacity_ends,
    capacity_ranges,
    lifetime_states,
    split_errors,
    wrong_tokens,
)
from kvcap.kernels.observed.pieces import NO_LIMIT, ObservedPieces
from kvcap.kernels.observed.restarts import best_restart


@st.composite
def labelled(draw, most_groups=1):
    """Pieces by group: hits that end anywhere, some with blocks between that the log leaves open."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    groups = [[] for _ in range(most_groups)]
    capacity, lifetime = rng.randint(1, 30), rng.randint(0, 20)
    for _ in range(rng.randint(1, 14)):
        depth, age, blocks = rng.randint(0, 30), rng.randint(0, 20), rng.randint(1, 8)
        hit = max(0, min(blocks, capacity - depth)) if age <= lifetime else 0
        if rng.random() < 0.3:
            hit = rng.randint(0, blocks)
        missed_from = min(blocks, hit + rng.choice((0, 0, 1, 2)))
        piece = oracle.Piece(depth, age, blocks, hit, missed_from, rng.choice((1, 1, 5)))
        rng.choice(groups).append(piece)
    return groups


def arrays(groups):
    pieces = [piece for group in groups for piece in group]
    column = {
        name: np.array([getattr(piece, name) for piece in pieces], np.int64)
        for name in oracle.Piece.__dataclass_fields__
    }
    zeros = np.zeros(len(pieces), np.int64)
    observed = ObservedPieces(
        request=np.arange(len(pieces)),
        source_request=zeros,
        first_token=zeros,
        tokens_per_block=column["weight"],
        blocks=column["blocks"],
        depth=column["depth"],
        age_us=column["age"],
        running=zeros.astype(np.bool_),
        hit_blocks=column["hit"],
        missed_from=column["missed_from"],
    )
    numbers = [number for number, group in enumerate(groups) for _ in group]
    return observed, np.array(numbers, np.int32)


@given(labelled(most_groups=3), st.integers(-1, 21))
def test_the_best_capacities_of_all_groups_come_from_one_pass(groups, lifetime):
    pieces, numbers = arrays(groups)
    found = best_capacities(
        pieces, capacity_ends(pieces), numbers, len(groups), lifetime_states(pieces, lifetime)
    )
    for group, low, high, error in zip(groups, found.low, found.high, found.error, strict=True):
        expected = oracle.best_capacity(group, lifetime)
        assert (error, low, None if high == NO_LIMIT else high) == expected


@given(labelled(most_groups=2), st.integers(-1, 21), st.integers(0, 60))
def test_a_range_holds_all_capacities_that_get_few_enough_wrong(groups, lifetime, slack):
    pieces, numbers = arrays(groups)
    errors = [[oracle.wrong_tokens(group, capacity, lifetime) for capacity in range(45)] for group in groups]
    most = np.array([min(row) + slack for row in errors])
    states = lifetime_states(pieces, lifetime)
    found = capacity_ranges(pieces, capacity_ends(pieces), numbers, most, states)
    for row, low, high, bound in zip(errors, *found, most, strict=True):
        good = [capacity for capacity, error in enumerate(row) if error <= bound]
        assert (low, 44 if high == NO_LIMIT else high) == (good[0], good[-1])


@given(labelled(), st.integers(0, 40), st.integers(-1, 21))
def test_the_error_of_limits_counts_every_block_on_the_wrong_side(groups, capacity, lifetime):
    pieces, _ = arrays(groups)
    wrong = wrong_tokens(pieces, np.full(len(groups[0]), capacity, np.int64), lifetime)
    assert wrong.sum() == oracle.wrong_tokens(groups[0], capacity, lifetime)


@given(labelled(), st.integers(0, 40))
def test_the_best_lifetime_lies_between_an_age_that_it_keeps_and_one_that_it_does_not(groups, capacity):
    pieces, _ = arrays(groups)
    found = best_lifetime(pieces, np.full(len(groups[0]), capacity, np.int64))
    errors = {age: oracle.wrong_tokens(groups[0], capacity, age) for age in range(-1, 22)}
    assert found.error == min(errors.values())
    inside = [age for age, error in errors.items() if error == found.error]
    assert (found.low is None) == (inside[0] == -1)
    assert (found.high is None) == (inside[-1] == 21)
    assert found.low is None or found.low == inside[0]
    assert found.high is None or found.high == inside[-1] + 1


@settings(max_examples=60)
@given(labelled(most_groups=2))
def test_no_pair_of_capacity_and_lifetime_is_better_than_the_joint_one(groups):
    pieces, numbers = arrays(groups)
    found = best_joint_limits(pieces, capacity_ends(pieces), numbers, len(groups))
    assert found.error == found.proven_error == oracle.least_joint_error(groups)
    capacity = np.where(found.capacities.high == NO_LIMIT, NO_LIMIT, found.capacities.low)[numbers]
    lifetime = found.lifetime.low if found.lifetime.low is not None else -1
    assert wrong_tokens(pieces, capacity, lifetime).sum() == found.error


def test_a_search_that_is_cut_short_says_what_it_has_proven():
    rng = np.random.default_rng(1)
    n = 3000
    blocks = np.full(n, 4)
    hit = rng.integers(0, 5, n)
    pieces = ObservedPieces(
        np.arange(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.ones(n, np.int64),
        blocks,
        rng.integers(0, 1000, n),
        rng.permutation(n),
        np.zeros(n, np.bool_),
        hit,
        hit,
    )
    ends, groups = capacity_ends(pieces), np.zeros(n, np.int32)
    short, whole = (best_joint_limits(pieces, ends, groups, 1, most_scans=most) for most in (70, 1 << 30))
    assert whole.proven_error == whole.error
    assert short.proven_error <= whole.error <= short.error
    assert short.proven_error < short.error


@given(st.integers(0, 1 << 30))
def test_the_best_restart_explains_most_of_what_spans_it(seed):
    rng = random.Random(seed)
    n_requests = rng.randint(1, 12)
    spans = []
    for _ in range(rng.randint(0, 12)):
        source, request = sorted((rng.randrange(n_requests), rng.randrange(n_requests)))
        if source < request:
            spans.append((source, request, rng.choice((0, 10, 100)), rng.choice((0, 0, 0, 4))))
    columns = np.array(spans, np.int64).reshape(-1, 4).T
    found = best_restart(*(np.ascontiguousarray(column) for column in columns), n_requests)
    expected = oracle.best_restart(spans, n_requests)
    if found is None:
        assert expected <= 0
        return
    assert found.missed_tokens - oracle.HIT_ACROSS * found.hit_tokens == expected
    for gap in range(found.first, found.last + 1):
        spanning = [span for span in spans if span[0] <= gap < span[1]]
        assert sum(span[2] for span in spanning) == found.missed_tokens
        assert sum(span[3] for span in spanning) == found.hit_tokens


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (299.2, 304.1, 300),
        (234.7, 242.5, 240),
        (3590, 3700, 3600),
        (397.6, 402.6, 400),
        (86_000, 90_000, 86_400),
        (0.2, 0.7, 0.2),
        (61, 62, 61),
    ],
)
def test_a_lifetime_is_shown_as_the_number_that_people_configure(low, high, expected):
    from kvcap.analysis.explain.fits import roundest

    assert roundest(round(low * 1e6), round(high * 1e6)) == round(expected * 1e6)


@given(labelled(), st.integers(-1, 21), st.data())
def test_two_capacities_before_and_after_a_split_get_least_wrong_each_on_its_own(groups, lifetime, data):
    pieces, _ = arrays(groups)
    n = len(groups[0])
    begin, end = sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))
    splits = list(range(begin, end + 1))
    found = split_errors(
        pieces, capacity_ends(pieces), lifetime_states(pieces, lifetime), begin, np.array(splits), end
    )
    assert found.tolist() == [
        sum(oracle.best_capacity(groups[0][i:j], lifetime)[0] for i, j in ((begin, split), (split, end)))
        for split in splits
    ]

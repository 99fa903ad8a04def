"""Numbering of ids, and whether they are keys of whole prefixes, against the definitions in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

from kvcap.kernels.chain_check import ChainCheck
from kvcap.kernels.id_table import IdTable

BASES = [0, 60, 2**32, 2**63, 2**64 - 8]


def numbered(table: IdTable, ids: Sequence[int]) -> list[int]:
    return table.add(np.array(ids, dtype=np.uint64)).tolist()


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)), st.sampled_from(BASES))
def test_ids_are_numbered_by_first_appearance_over_all_calls(
    first: list[int], second: list[int], base: int
) -> None:
    table = IdTable()
    shifted = [(base + item) % 2**64 for item in first + second]
    numbers = numbered(table, shifted[: len(first)]) + numbered(table, shifted[len(first) :])
    known: dict[int, int] = {}
    assert numbers == [known.setdefault(item, len(known)) for item in shifted]
    assert table.count == len(known)


@pytest.mark.parametrize("step", [1, 8, 256, 2**20, 2**50, 0x9E3779B97F4A7C15])
def test_the_table_grows_and_keeps_all_numbers(step: int) -> None:
    table = IdTable()
    ids = [item * step % 2**64 for item in range(30_000)]
    expected: dict[int, int] = {}
    numbers = [expected.setdefault(item, len(expected)) for item in ids]
    assert numbered(table, ids[:10]) + numbered(table, ids[10:]) == numbers
    assert numbered(table, ids) == numbers


def check(chain: ChainCheck, requests: Sequence[Sequence[int]]) -> bool:
    ids = np.array([item for request in requests for item in request], dtype=np.uint64)
    chain.add(ids, np.cumsum([0, *map(len, requests)]))
    return chain.is_chained


def is_chained(requests: Sequence[Sequence[int]]) -> bool:
    before: dict[int, int | None] = {}
    for request in requests:
        previous = None
        for item in request:
            if before.setdefault(item, previous) != previous:
                return False
            previous = item
    return True


@given(prefix_forests(), st.integers(0, 14), st.sampled_from(BASES), st.sampled_from([1, 1, 63, 2**40]))
def test_chaining_is_found_out_over_all_calls(
    requests: list[list[int]], cut: int, base: int, step: int
) -> None:
    shifted = [[(base + step * item) % 2**64 for item in request] for request in requests]
    chain = ChainCheck(1000)
    assert check(chain, shifted[:cut]) == is_chained(shifted[:cut])
    assert check(chain, shifted[cut:]) == is_chained(shifted)


@pytest.mark.parametrize(
    ("requests", "chained"),
    [
        ([[1, 2, 3], [1, 2, 4], [5]], True),
        ([[1, 2], [2]], False),
        ([[2], [1, 2]], False),
        ([[1, 2, 3], [4, 2]], False),
        ([[4, 2], [1, 2, 3]], False),
        ([[9, 2], [8, 2]], False),
        ([[1, 1]], False),
        ([[], [0]], True),
        ([[2**64 - 1, 0], [0]], False),
        ([[2**64 - 1, 0], [2**64 - 1, 0, 1]], True),
    ],
)
def test_an_id_that_follows_two_different_ones_is_no_key(requests: list[list[int]], chained: bool) -> None:
    assert check(ChainCheck(1000), requests) == chained


@pytest.mark.parametrize("step", [1, 64, 2**40])
def test_many_ids_stay_chained_and_one_wrong_one_is_found(step: int) -> None:
    request = [item * step for item in range(20_000)]
    chain = ChainCheck(10**6)
    assert check(chain, [request[:10], request])
    assert check(chain, [request, [*request[:500], 2**62 + 1]])
    assert not check(chain, [[request[70]]])


def test_with_more_to_remember_than_allowed_the_answer_is_no() -> None:
    assert not check(ChainCheck(1000), [[item * 1000 for item in range(20_000)]])
    assert check(ChainCheck(1000), [list(range(20_000))])

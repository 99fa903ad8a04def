"""Numbering of ids, and whether they are keys of whole prefixes, against the definitions in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import prefix_forests

from kvcap.kernels.id_table import IdTable


def add(table: IdTable, requests: Sequence[Sequence[int]]) -> list[int]:
    ids = np.array([item for request in requests for item in request], dtype=np.uint64)
    offsets = np.cumsum([0, *map(len, requests)])
    return table.add(ids, offsets).tolist()


def is_chained(requests: Sequence[Sequence[int]]) -> bool:
    before: dict[int, int | None] = {}
    for request in requests:
        previous = None
        for item in request:
            if before.setdefault(item, previous) != previous:
                return False
            previous = item
    return True


@given(prefix_forests(), st.integers(0, 14), st.sampled_from([0, 2**32, 2**63, 2**64 - 8]))
def test_ids_are_numbered_by_first_appearance_over_all_calls(
    requests: list[list[int]], cut: int, base: int
) -> None:
    shifted = [[base + item for item in request] for request in requests]
    table = IdTable()
    numbers = add(table, shifted[:cut]) + add(table, shifted[cut:])
    known: dict[int, int] = {}
    assert numbers == [known.setdefault(item, len(known)) for request in shifted for item in request]
    assert table.count == len(known)
    assert table.is_chained == is_chained(shifted)


@pytest.mark.parametrize(
    ("requests", "chained"),
    [
        ([[1, 2, 3], [1, 2, 4], [5]], True),
        ([[1, 2], [2]], False),
        ([[1, 2, 3], [4, 2]], False),
        ([[1, 1]], False),
        ([[], [0]], True),
    ],
)
def test_an_id_that_follows_two_different_ones_is_no_key(requests: list[list[int]], chained: bool) -> None:
    table = IdTable()
    add(table, requests)
    assert table.is_chained == chained


@pytest.mark.parametrize("step", [1, 8, 256, 2**20, 2**50, 0x9E3779B97F4A7C15])
def test_the_table_grows_and_keeps_all_numbers(step: int) -> None:
    table = IdTable()
    ids = [item * step % 2**64 for item in range(30_000)]
    expected: dict[int, int] = {}
    numbers = [expected.setdefault(item, len(expected)) for item in ids]
    assert add(table, [ids[:10], ids[10:20_000], ids[20_000:]]) == numbers
    assert add(table, [ids]) == numbers

"""Lists of integers become one column, whatever arrays they are cut from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kvcap.formats.columns import list_array
from kvcap.formats.rows import Ids
from kvcap.schema import HASH_IDS, TOKEN_IDS

SOURCES = [
    np.arange(100, 120, dtype=np.uint64),
    np.arange(-5, 15, dtype=np.int64),
    np.arange(300, 320, dtype=np.uint64),
]


@st.composite
def cut_parts(draw: st.DrawFn) -> list[Ids | None]:
    """Draw parts: side by side, apart, overlapping, empty, of their own, or none."""
    parts: list[Ids | None] = []
    end = 0
    for _ in range(draw(st.integers(0, 8))):
        source = SOURCES[draw(st.integers(0, len(SOURCES) - 1))]
        begin = draw(st.sampled_from([end, draw(st.integers(0, source.size))]))
        end = draw(st.integers(begin, source.size))
        values = source.view(np.uint64)[begin:end]
        kind = draw(st.sampled_from(["view", "view", "view", "own", "none"]))
        if kind == "view":
            parts.append(Ids(values, begin=begin))
        else:
            parts.append(Ids(values.copy()) if kind == "own" else None)
    return parts


def as_lists(parts: list[Ids | None]) -> list[Any]:
    return [None if part is None else part.values.tolist() for part in parts]


@given(cut_parts())
def test_a_list_column_holds_every_part_in_its_place(parts: list[Ids | None]) -> None:
    column = list_array(parts, HASH_IDS)
    assert column.type == HASH_IDS
    assert column.to_pylist() == as_lists(parts)


def test_token_ids_become_32_bits() -> None:
    values = np.array([1, 2, 3, 2**32 - 1], dtype=np.uint64)
    parts = [Ids(values[:1], begin=0), Ids(values[1:3], begin=1), None, Ids(values[3:], begin=3)]
    assert list_array(parts, TOKEN_IDS).equals(pa.array([[1], [2, 3], None, [2**32 - 1]], TOKEN_IDS))

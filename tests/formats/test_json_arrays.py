"""The kernel that cuts integer arrays out of JSON lines agrees with the standard library."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcap.kernels.json_arrays import find_integer_arrays
from kvcap.kernels.json_flags import ABOVE_INT64, ABOVE_UINT32, NEGATIVE


def cut(text: str) -> tuple[list[list[int]], list[int], list[bool]]:
    """Return arrays, flags and irregular lines of a text."""
    found = find_integer_arrays(text.encode(), text.count("\n"))
    bounds = found.offsets.tolist()
    arrays = [found.values[a:b].view(np.int64).tolist() for a, b in pairwise(bounds)]
    return arrays, found.flags.tolist(), found.irregular.tolist()


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("[1,2,3]\n", [[1, 2, 3]]),
        ("[ 1 ,\t2 ]\n", [[1, 2]]),
        ("[-0]\n", [[0]]),
        ("[]\n", []),
        ('["1"]\n', []),
        ("[[1],[2,3]]\n", [[1], [2, 3]]),
        ('{"a":"[1]\\"[2]","b":[3]}\n', [[3]]),
        ('{"a":"\\\\","b":[3]}\n', [[3]]),
        ('"open [1]\n[2]\n', [[2]]),
        ('"open \\\n[2]\n', [[2]]),
        ("[-9223372036854775808]\n", [[-(2**63)]]),
        ("[9007199254740993]\n", [[2**53 + 1]]),
    ],
)
def test_integer_arrays_outside_strings_are_found(text: str, arrays: list[list[int]]) -> None:
    assert cut(text)[0] == arrays


@pytest.mark.parametrize(
    ("number", "flags"),
    [
        (2**32 - 1, 0),
        (2**32, ABOVE_UINT32),
        (2**63 - 1, ABOVE_UINT32),
        (2**63, ABOVE_UINT32 | ABOVE_INT64),
        (2**63 + 5, ABOVE_UINT32 | ABOVE_INT64),
        (2**64 - 1, ABOVE_UINT32 | ABOVE_INT64),
        (-1, NEGATIVE),
        (-(2**63), NEGATIVE),
    ],
)
def test_integers_are_exact_to_64_bits_and_flagged(number: int, flags: int) -> None:
    found = find_integer_arrays(f"[0,{number}]\n".encode(), 1)
    assert found.values.tolist() == [0, number % 2**64]
    assert found.flags.tolist() == [flags]


@pytest.mark.parametrize(
    "text",
    ["[1.0]", "[1e3]", "[1,true]", "[1,[2]]", "[01]", "[1,]", "[1,-]", "[1", "[18446744073709551616]",
     "[-9223372036854775809]", "[99999999999999999999]", "[100000000000000000000]", "[1,null]", "[1 2]"],
)  # fmt: skip
def test_what_only_begins_as_an_integer_array_marks_its_line(text: str) -> None:
    arrays, _, irregular = cut(f"{text}\n[7]\n")
    assert irregular == [True, False]
    assert arrays[-1] == [7]


ids = st.integers(-(2**63), 2**64 - 1)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text()
documents = st.recursive(
    scalars | st.lists(ids, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(documents, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_cutting_arrays_out_loses_nothing(values: list[object], spaced: bool, escaped: bool) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    lines = [json.dumps(value, separators=separators, ensure_ascii=escaped) for value in values]
    data = "".join(f"{line}\n" for line in lines).encode()
    found = find_integer_arrays(data, data.count(b"\n"))
    assert found.line_starts.size == len(lines) + 1
    bounds = found.offsets.tolist()
    for index, value in enumerate(values):
        if found.irregular[index]:
            continue
        begin, end = found.line_starts[index], found.line_starts[index + 1]
        pieces, position = [], begin
        for k in range(found.line_arrays[index], found.line_arrays[index + 1]):
            original = found.values[bounds[k] : bounds[k + 1]].tolist()
            if found.flags[k] & NEGATIVE:
                original = found.values[bounds[k] : bounds[k + 1]].view(np.int64).tolist()
            pieces += [data[position : found.starts[k]], json.dumps(original).encode()]
            position = found.ends[k]
        pieces.append(data[position:end])
        restored = json.loads(b"".join(pieces))
        mixed = any(
            found.flags[k] & NEGATIVE and found.flags[k] & ABOVE_INT64
            for k in range(found.line_arrays[index], found.line_arrays[index + 1])
        )
        assert mixed or restored == json.loads(json.dumps(value))

"""Find the integer arrays of JSON Lines, and read them without building a Python object per integer.

In a log of ids nearly every byte belongs to a few long integer arrays. The kernel cuts those out, so that
a general JSON parser has only what is left to read. A cut array is a valid JSON value, and is
replaced by another one, so the line is valid JSON afterwards exactly if it was before.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcap.kernels._jit import jit
from kvcap.kernels.json_flags import ABOVE_INT64, ABOVE_UINT32, NEGATIVE

ZERO: Final = np.uint8(48)
TEN: Final = np.uint8(10)


class IntegerArrays(NamedTuple):
    """Lines of a text and the integer arrays in them.

    Attributes
    ----------
    line_starts : int64 (n_lines + 1,)
        Line l is ``data[line_starts[l]:line_starts[l + 1]]``, its line feed included.
    line_arrays : int64 (n_lines + 1,)
        Line l holds the arrays ``line_arrays[l]`` to ``line_arrays[l + 1] - 1``.
    irregular : bool (n_lines,)
        Lines with an array that began with an integer and went on otherwise (a float, more than 64
        bits, a text that ends): they must be read by other means.
    starts, ends : int64 (n_arrays,)
        Array a is ``data[starts[a]:ends[a]]``, brackets included.
    offsets : int64 (n_arrays + 1,)
        Array a holds ``values[offsets[a]:offsets[a + 1]]``.
    flags : uint8 (n_arrays,)
        As :mod:`kvcap.kernels.json_flags` names them.
    values : uint64 (n_values,)
        The integers, negative ones as two's complement.
    """

    line_starts: NDArray[np.int64]
    line_arrays: NDArray[np.int64]
    irregular: NDArray[np.bool_]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    flags: NDArray[np.uint8]
    values: NDArray[np.uint64]


class _Scratch(threading.local):
    """Room for the largest text that a thread has read, kept so that its pages are faulted in once."""

    size = -1

    def fit(self, size: int) -> None:
        """Make room for a text of ``size`` bytes."""
        if size > self.size:
            self.size = size
            self.starts = np.empty(size // 3 + 1, dtype=np.int64)
            self.ends = np.empty(size // 3 + 1, dtype=np.int64)
            self.offsets = np.zeros(size // 3 + 2, dtype=np.int64)
            self.flags = np.empty(size // 3 + 1, dtype=np.uint8)
            self.values = np.empty(size // 2 + 1, dtype=np.uint64)


_scratch = _Scratch()


def find_integer_arrays(data: bytes, n_lines: int) -> IntegerArrays:
    """Return every non-empty array of integers alone in ``data``: so many lines, each with its line feed."""
    text = np.frombuffer(data, dtype=np.uint8)
    line_starts = np.zeros(n_lines + 1, dtype=np.int64)
    line_arrays = np.zeros(n_lines + 1, dtype=np.int64)
    irregular = np.zeros(n_lines, dtype=np.bool_)
    room = _scratch
    room.fit(len(data))
    n_arrays = _find(
        text,
        line_starts,
        line_arrays,
        irregular,
        room.starts,
        room.ends,
        room.offsets,
        room.flags,
        room.values,
    )
    return IntegerArrays(
        line_starts,
        line_arrays,
        irregular,
        room.starts[:n_arrays].copy(),
        room.ends[:n_arrays].copy(),
        room.offsets[: n_arrays + 1].copy(),
        room.flags[:n_arrays].copy(),
        room.values[: room.offsets[n_arrays]].copy(),
    )


@jit
def _find(text, line_starts, line_arrays, irregular, starts, ends, offsets, flags, values):
    line = 0
    n_arrays = 0
    in_string = False
    i = 0
    while i < text.size:
        c = text[i]
        if c == 10:
            line += 1
            line_starts[line] = i + 1
            line_arrays[line] = n_arrays
            in_string = False
        elif in_string:
            if c == 92 and text[i + 1] != 10:
                i += 1
            elif c == 34:
                in_string = False
        elif c == 34:
            in_string = True
        elif c == 91:
            end, n_values, flag = _integers(text, i + 1, values, offsets[n_arrays])
            if end > 0:
                starts[n_arrays] = i
                ends[n_arrays] = end
                flags[n_arrays] = flag
                n_arrays += 1
                offsets[n_arrays] = n_values
                i = end - 1
            elif n_values > offsets[n_arrays] or flag:
                irregular[line] = True
        i += 1
    return n_arrays


@jit
def _integers(text, i, values, n_values):
    """Return (end, n_values, flags) of the integers from ``i`` to a bracket; end is 0 if it is no such array.

    The line feed at the end of ``text`` stops every loop. A flag without an end marks a number that
    does not fit.
    """
    flags = 0
    while True:
        while text[i] == 32 or text[i] == 9 or text[i] == 13:
            i += 1
        negative = text[i] == 45
        if negative:
            i += 1
        first = i
        value = np.uint64(0)
        digit = np.uint8(text[i] - ZERO)
        while digit < TEN:
            value = value * np.uint64(10) + np.uint64(digit)
            i += 1
            digit = np.uint8(text[i] - ZERO)
        length = i - first
        if length == 0:
            return 0, n_values, 0
        # 20 digits fit if they begin with 1 and did not wrap around, which would leave less than 10**19.
        if length > 19 and (length > 20 or text[first] != 49 or value < np.uint64(10**19)):
            return 0, n_values, NEGATIVE
        if text[first] == 48 and length > 1:
            return 0, n_values, NEGATIVE
        if negative:
            if value > np.uint64(9223372036854775808):
                return 0, n_values, NEGATIVE
            if value > np.uint64(0):
                flags |= NEGATIVE
            value = np.uint64(0) - value
        elif value > np.uint64(9223372036854775807):
            flags |= ABOVE_INT64 | ABOVE_UINT32
        elif value > np.uint64(4294967295):
            flags |= ABOVE_UINT32
        values[n_values] = value
        n_values += 1
        while text[i] == 32 or text[i] == 9 or text[i] == 13:
            i += 1
        if text[i] == 93:
            return i + 1, n_values, flags
        if text[i] != 44:
            return 0, n_values, NEGATIVE
        i += 1

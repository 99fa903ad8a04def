"""Draws that are the same on every machine, each by its own number: SplitMix64 chained over what it is for.

Source: Steele, Lea, Flood 2014, *Fast splittable pseudorandom number generators*.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kvcap.kernels._jit import jit
from kvcap.kernels.arrays import UInt64Array

START: Final = 0
LEAVE: Final = 1
STRETCH: Final = 2
PART: Final = 3
TURNS: Final = 4
DONOR: Final = 5
SAMPLE: Final = 9
"""What a draw is for: these numbers are part of what a seed means."""


@jit
def mix(value):
    """Return the SplitMix64 output of a state: uint64 -> uint64."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@jit
def draw(base, number):
    """Return the draw of a number, from the base that :func:`draws` makes of seed, round and purpose."""
    return mix(base ^ np.uint64(number))


@jit
def _base(seed, round_number, purpose):
    return mix(mix(mix(seed) ^ round_number) ^ purpose)


def draw_base(seed: int, round_number: int, purpose: int) -> np.uint64:
    """Return what all draws of one seed, round and purpose have in common."""
    # What comes out of a kernel is a Python integer, which would go into the next one as signed.
    return np.uint64(_base(np.uint64(seed), np.uint64(round_number), np.uint64(purpose)))


@jit
def _draws(base, numbers):
    drawn = np.empty(numbers.size, np.uint64)
    for at in range(numbers.size):
        drawn[at] = draw(base, numbers[at])
    return drawn


def draws_of(seed: int, round_number: int, purpose: int, numbers: UInt64Array) -> UInt64Array:
    """Return the draw of each number: uint64 (n,) -> uint64 (n,)."""
    drawn: UInt64Array = _draws(draw_base(seed, round_number, purpose), np.ascontiguousarray(numbers))
    return drawn


def draws(seed: int, round_number: int, purpose: int, n: int) -> UInt64Array:
    """Return the draws of the numbers from 0 to n: uint64 (n,)."""
    return draws_of(seed, round_number, purpose, np.arange(n, dtype=np.uint64))

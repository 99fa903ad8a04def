"""A scanner's state is sound as long as a scanner made it; one from elsewhere does no harm."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcap.kernels.keys import chain_keys
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.state_check import state_is_sound
from kvcap.kernels.tree_state import N_NODES, NEXT, NEXT_SLOT, TreeState


def drawn_requests(rng: random.Random, n: int) -> tuple[np.ndarray, np.ndarray]:
    made: list[list[int]] = []
    for _ in range(n):
        earlier = rng.choice(made) if made and rng.random() < 0.7 else []
        made.append(earlier[: rng.randrange(len(earlier) + 1)] + rng.choices(range(50), k=rng.randrange(9)))
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in made])]).astype(np.int64)
    return chain_keys(np.array([b for path in made for b in path], np.uint64), offsets), offsets


def drawn_state(seed: int) -> tuple[random.Random, int | None, TreeState]:
    rng = random.Random(seed)
    bound = rng.choice([None, 5, 40, 400])
    scanner = ReuseRunScanner(bound)
    for _ in range(rng.randrange(6)):
        scanner.feed(*drawn_requests(rng, rng.randrange(1, 40)))
    return rng, bound, TreeState(**{name: array.copy() for name, array in scanner.export_state().items()})


@given(st.integers(0, 1 << 30))
def test_what_a_scanner_leaves_is_sound(seed: int) -> None:
    _, _, state = drawn_state(seed)
    assert state_is_sound(state)


@given(st.integers(0, 1 << 30))
def test_a_changed_state_is_refused_or_does_no_harm(seed: int) -> None:
    rng, bound, state = drawn_state(seed)
    for _ in range(10):
        changed = {name: array.copy() for name, array in state._asdict().items()}
        array = changed[rng.choice([name for name in changed if changed[name].size])].reshape(-1)
        at = rng.randrange(array.size)
        value = rng.choice([-1, 0, 1, int(array[at]) + 1, int(array[at]) - 1, 2**62, rng.randrange(99)])
        array[at] = value % 2**64 if array.dtype == np.uint64 else value
        if state_is_sound(TreeState(**changed)):
            scanner = ReuseRunScanner.from_state(changed, bound)
            runs = scanner.feed(*drawn_requests(rng, 30))
            assert np.all(runs.blocks > 0)
            assert np.all(runs.depth >= 0)
            again = {name: array.copy() for name, array in scanner.export_state().items()}
            assert state_is_sound(TreeState(**again))


def test_a_pass_that_is_under_way_is_sound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcap.kernels.reuse_runs._LEAST_GAPS", 0)
    monkeypatch.setattr("kvcap.kernels.reuse_runs._PACE", 1)
    states = [drawn_state(seed)[2] for seed in range(300)]
    assert any(state.counters[NEXT_SLOT] > 0 for state in states)
    assert all(map(state_is_sound, states))


def test_wrong_types_lengths_and_loops_are_refused() -> None:
    state = next(s for s in (drawn_state(seed)[2] for seed in range(100)) if s.counters[N_NODES] > 3)
    assert not state_is_sound(state._replace(weights=state.weights.astype(np.int32)))
    assert not state_is_sound(state._replace(arena=state.arena[:-1]))
    assert not state_is_sound(state._replace(counters=state.counters[:-1]))
    assert not state_is_sound(state._replace(nodes=state.nodes.reshape(-1)))
    looping = state.nodes.copy()
    looping[:, NEXT] = 0
    assert not state_is_sound(state._replace(nodes=looping))


@pytest.mark.parametrize("bound", [None, 10])
def test_an_empty_state_is_sound(bound: int | None) -> None:
    assert state_is_sound(TreeState(**ReuseRunScanner(bound).export_state()))

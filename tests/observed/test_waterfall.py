"""Every token has the class that its block has in a plain simulation with lists."""

from __future__ import annotations

import random

import numpy as np
import oracles
import oracles_observed as oracle
from hypothesis import given
from hypothesis import strategies as st
from observed_traces import observe, trace_table

from kvcap.formats import open_table
from kvcap.kernels.observed.pieces import NO_LIMIT, Limits, observed_pieces
from kvcap.kernels.observed.waterfall import CLASSES, waterfall

BLOCK = 4


@st.composite
def logs(draw):
    """Rows of a trace, and what the oracle is told of them."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    n = rng.randint(1, 16)
    paths: list[list[int]] = []
    for _ in range(n):
        start = rng.choice(paths[-5:])[: rng.randint(0, 6)] if paths and rng.random() < 0.9 else []
        paths.append(start + [rng.randrange(3) for _ in range(rng.choice((0, 1, 1, 2, 3)))])
    restarts = rng.random() < 0.3
    shortest = rng.random() < 0.3
    rows, asked, time, epochs = [], [], 0, [0, 0]
    capacities = [rng.choice((oracle.INFINITY, rng.randint(0, 12))) for _ in range(2)]
    for ids, path in zip(paths, oracles.chained(paths), strict=True):
        time += rng.choice((0, 1, 2, 5))
        cache = rng.randrange(2)
        if restarts and rng.random() < 0.2:
            epochs[cache] += 1
        tokens = BLOCK * len(ids) + rng.choice((0, 0, 1, 3))
        duration = rng.choice((0, 1, 4, 8))
        observed = None
        if tokens and rng.random() < 0.8:
            observed = rng.randint(0, tokens) if shortest else rng.randint(0, len(ids)) * BLOCK
        rows.append(
            {
                "timestamp": time,
                "instance": "ab"[cache],
                "input_length": tokens,
                "block_size": BLOCK,
                "hash_ids": ids,
                "observed_cached_tokens": observed,
                "ttft_us": duration,
            }
        )
        asked.append(
            oracle.Asked(
                path, tokens, time, time + duration, observed, cache, capacities[cache], epochs[cache]
            )
        )
    return rows, asked, rng.choice((oracle.INFINITY, rng.randint(0, 10)))


def classified(rows, asked, lifetime, step=0, least=0):
    log = observe(open_table(trace_table(rows)))
    n = len(rows)
    if len(log.cache_names) == 2:
        assert log.caches.tolist() == [r.cache for r in asked]
    limits = Limits(
        np.array([NO_LIMIT if r.capacity == oracle.INFINITY else r.capacity for r in asked], np.int64),
        NO_LIMIT if lifetime == oracle.INFINITY else lifetime,
        np.array([r.epoch for r in asked], np.int64),
    )
    pieces = observed_pieces(log.runs, log.lookups, limits, BLOCK, step, least)
    found = waterfall(pieces, log.lookups, limits, log.prompts, step, least)
    assert found.hit.shape == found.missed.shape == (n, len(CLASSES))
    return found


def cells(array):
    return [dict(zip(CLASSES, row, strict=True)) for row in array.tolist()]


def expected(asked, lifetime, step=0, least=0):
    both = oracle.classified(asked, BLOCK, lifetime, step, least)
    return [hit for hit, _ in both], [missed for _, missed in both]


@given(logs())
def test_every_token_has_the_class_of_its_block(log):
    rows, asked, lifetime = log
    if all(r.observed is None for r in asked):
        return
    found = classified(rows, asked, lifetime)
    assert (cells(found.hit), cells(found.missed)) == expected(asked, lifetime)


@given(logs(), st.sampled_from([4, 8]), st.sampled_from([0, 8, 12]))
def test_what_a_provider_cuts_off_is_below_its_minimum(log, step, least):
    rows, asked, lifetime = log
    if all(r.observed is None for r in asked):
        return
    found = classified(rows, asked, lifetime, step, least)
    assert (cells(found.hit), cells(found.missed)) == expected(asked, lifetime, step, least)


@given(logs())
def test_the_classes_of_a_request_add_up_to_its_prompt(log):
    rows, asked, lifetime = log
    if all(r.observed is None for r in asked):
        return
    found = classified(rows, asked, lifetime)
    for row, hit, missed in zip(rows, found.hit, found.missed, strict=True):
        if row["observed_cached_tokens"] is None:
            assert not hit.any()
            assert not missed.any()
        else:
            assert hit.sum() == row["observed_cached_tokens"]
            assert hit.sum() + missed.sum() == row["input_length"]


def test_a_hit_below_the_last_whole_step_leaves_blocks_open():
    rows = [
        {"timestamp": 0, "input_length": 40, "block_size": BLOCK, "hash_ids": [*range(10)]},
        {
            "timestamp": 1,
            "input_length": 41,
            "block_size": BLOCK,
            "hash_ids": [*range(10)],
            "observed_cached_tokens": 16,
        },
    ]
    log = observe(open_table(trace_table(rows)))
    limits = Limits(np.full(2, NO_LIMIT), NO_LIMIT, np.zeros(2, np.int64))
    pieces = observed_pieces(log.runs, log.lookups, limits, BLOCK, 16, 0)
    assert (pieces.hit_blocks.tolist(), pieces.missed_from.tolist()) == ([4], [7])
    pieces = observed_pieces(log.runs, log.lookups, limits, BLOCK, 0, 36)
    assert (pieces.hit_blocks.tolist(), pieces.missed_from.tolist()) == ([4], [8])

"""Logs with a known truth: capacities, lifetimes, restarts and every missed token come out as expected."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from observed_traces import observe
from shared_data import shared_path

from kvcap.analysis.explain.fitting import fit
from kvcap.analysis.explain.options import ExplainOptions
from kvcap.analysis.explain.survival import survival
from kvcap.formats import ReadOptions, open_trace
from kvcap.formats.fields import FieldOptions
from kvcap.kernels.observed.waterfall import CLASSES, waterfall

NAMES = [
    "01_capacity",
    "02_ttl",
    "03_unlimited",
    "04_running",
    "05_capacity_ttl",
    "06_fleet_sticky",
    "07_fleet_rr_unequal",
    "08_restarts",
    "09_noise",
    "10_missing_warm",
    "11_provider",
    "12_pinned",
    "13_drift",
    "14_sampled",
    "15_prefix_router",
]
PROVIDER = ExplainOptions(step_tokens=128, least_tokens=1024)
NEARER = {"10_missing_warm": ("unexplained", "source running", 896)}
"""Tokens that were unexplained and now have their true cause: what was not observed is predicted."""


def explained(path, options, fields, **blocks):
    trace = open_trace([str(path)], ReadOptions(fields=FieldOptions(**fields)))
    log = observe(trace, **blocks)
    found = fit(log, options)
    cells = waterfall(
        found.pieces, log.lookups, found.limits, log.prompts, found.step_tokens, found.least_tokens
    )
    return log, found, cells


def named_fields(path):
    with gzip.open(path, "rt") as lines:
        first = json.loads(next(lines))
    columns = {"cached": "cached_tokens", "instance": "instance", "ttft": "ttft_ms"}
    return {name: column for name, column in columns.items() if column in first}


@pytest.mark.parametrize("name", NAMES)
def test_limits_and_every_token_come_out_as_expected(name):
    path = shared_path(f"golden/observed/{name}.jsonl.gz")
    expected = json.loads(shared_path("golden/observed/expected.json").read_text())[name]
    options = PROVIDER if name == "11_provider" else ExplainOptions()
    log, found, cells = explained(path, options, named_fields(path))
    chosen = found.fitted.chosen

    capacities = {limit.best for limit in found.fitted.limits}
    assert capacities == {row["low"] for row in expected["capacities"]}
    for limit in found.fitted.limits:
        assert limit.low <= limit.best <= limit.high
    if expected["ttl_interval"] is None:
        assert not chosen.has_lifetime
    else:
        interval = [round(seconds * 1e6) for seconds in expected["ttl_interval"]]
        assert [chosen.lifetime.low, chosen.lifetime.high] == pytest.approx(interval, abs=1)
        assert chosen.lifetime_us == expected["ttl"] * 1e6
    assert chosen.proven_error == chosen.error

    times = log.lookups.arrival_us / 1e6
    assert [
        (log.cache_names[r.cache], pytest.approx(times[r.last_before]), pytest.approx(times[r.first_after]))
        for r in found.restarts
    ] == [(row["instance"], row["after"], row["until"]) for row in expected["restarts"]]

    missed = {"unexplained" if c == "expected" else c.replace("_", " "): 0 for c in CLASSES}
    missed = dict(zip(missed, cells.missed.sum(axis=0).tolist(), strict=True))
    if name in NEARER:
        cause, true_cause, tokens = NEARER[name]
        missed[cause] += tokens
        missed[true_cause] -= tokens
    assert missed == {key: expected["missed"][key] for key in missed}
    hit = cells.hit.sum(axis=0).tolist()
    assert hit[-1] == expected["explained_hits"]
    more = dict(zip(missed, hit, strict=True))
    assert {key: more[key] for key in expected["more_than_expected"]} == expected["more_than_expected"]


@pytest.mark.parametrize("name", NAMES)
def test_restarts_that_are_told_are_true_ones(name):
    path = shared_path(f"golden/observed/{name}.jsonl.gz")
    truth = json.loads(shared_path(f"golden/observed/{name}.truth.json").read_text())["params"]
    options = PROVIDER if name == "11_provider" else ExplainOptions()
    log, found, _ = explained(path, options, named_fields(path))
    times = log.lookups.arrival_us / 1e6 - truth["epoch"]
    for restart in found.restarts:
        instance = int(log.cache_names[restart.cache][1:])
        assert any(
            instance == where and times[restart.last_before] <= time <= times[restart.first_after]
            for time, where in truth["restarts"]
        )


def engine_log(tmp_path, archive, key, name):
    """The log with the hits of an engine's own cache manager as what was observed."""
    with np.load(shared_path(f"golden/engines/{archive}_{name}.npz")) as arrays:
        hits = arrays[key].tolist()
    log = tmp_path / "log.jsonl"
    with (
        gzip.open(shared_path(f"traces/mooncake_{name}.jsonl.gz"), "rb") as lines,
        log.open("wb") as written,
    ):
        for line, blocks in zip(lines, hits, strict=True):
            written.write(line.rstrip()[:-1] + b',"block_size":512,"cached_tokens":%d}\n' % (512 * blocks))
    return log


CAPACITIES = [500, 2000, 11602, 46410]
NODES = 0.978
"""SGLang evicts whole nodes: so much of the pool is what it is seen to keep, at least."""


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_the_pool_of_vllm_is_found_and_nothing_is_left_unexplained(tmp_path, name, capacity):
    log = engine_log(tmp_path, "vllm", f"c{capacity}", name)
    check_vllm(*explained(log, ExplainOptions(), {"cached": "cached_tokens"}), capacity)


@pytest.mark.parametrize("capacity", [2000, 11602])
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_generated_tokens_take_their_part_of_the_pool_of_vllm(tmp_path, name, capacity):
    log = engine_log(tmp_path, "vllm_outputs", f"c{capacity}", name)
    check_vllm(*explained(log, ExplainOptions(), {"cached": "cached_tokens"}, output_blocks=True), capacity)


def check_vllm(log, found, cells, capacity):
    assert cells.missed[:, -1].sum() == 0
    assert found.fitted.chosen.error == 0
    if not found.fitted.missed_tokens:
        assert found.fitted.limits == ()
        return
    (limit,) = found.fitted.limits
    # The incomplete last block of a running request takes one.
    assert limit.low <= capacity - 1 <= limit.high


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_the_pool_of_sglang_is_found_within_what_its_nodes_allow(tmp_path, name, capacity):
    log, found, cells = explained(
        engine_log(tmp_path, "sglang", f"c{capacity}", name), ExplainOptions(), {"cached": "cached_tokens"}
    )
    assert cells.missed[:, -1].sum() <= 0.003 * log.prompts.input_tokens.sum()
    if not found.fitted.limits:
        assert found.fitted.missed_tokens < 0.001 * found.fitted.known_tokens
        return
    (limit,) = found.fitted.limits
    assert limit.high >= NODES * capacity
    assert limit.low <= capacity


def test_a_real_transcript_shows_no_limit_and_how_hits_fade_with_age():
    path = shared_path("cases/samples/real_pi_usage_471_calls.jsonl.gz")
    log = observe(open_trace([str(path)], ReadOptions()))
    found = fit(log, ExplainOptions())
    assert log.n_requests == 471
    assert found.fitted.chosen.parameters == 0
    rows = survival(log, found, by_depth=False)
    shares = [round(100 * row.share, 1) for row in rows]
    assert [row.age_from_seconds for row in rows] == [0, 30, 60, 120, 300]
    # All or nothing: what was measured by hand on the same calls.
    assert shares == [99.7, 100.0, 79.0, 46.2, 0.0]

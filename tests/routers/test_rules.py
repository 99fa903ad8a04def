"""Rules of routers over prefix segments, against the same rules over texts."""

from __future__ import annotations

import numpy as np
import oracles_routers as plain
import pytest
import routers_recorded as recorded
from hypothesis import given
from hypothesis import strategies as st

from kvcap.errors import UsageError
from kvcap.routers import cache_aware
from kvcap.routers.catalog import ROUTERS, parameters_of
from kvcap.routers.clock import Times, run, seeded
from kvcap.routers.dynamo import DynamoKv
from kvcap.routers.rule import Instances, Prompts, Rule
from kvcap.routers.rules import RULES

TEXTS = st.lists(
    st.one_of(st.text("ab", max_size=8), st.text("abc", max_size=4).map("abababab".__add__)),
    min_size=1,
    max_size=14,
)


def prompts_of(texts: list[str], kind: str = "characters") -> Prompts:
    paths = recorded.paths_of(texts)
    return recorded.prompts(paths, kind, [len(text) for text in texts])


def of_catalog(name: str, prompts: Prompts, n: int) -> Rule:
    return RULES[name](prompts, Instances(n, 1), ROUTERS[name].defaults)


def test_every_router_of_the_catalog_has_a_rule() -> None:
    assert list(RULES) == list(ROUTERS)


def agree(rule: Rule, plain_rule: object, texts: list[str], n: int, data: st.DataObject) -> None:
    """Take the same instance in both, whichever is drawn, and compare what they allow."""
    for request, text in enumerate(texts):
        loads = data.draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
        allowed = rule.options(request, loads)
        assert allowed == plain_rule.options(text, loads)  # type: ignore[attr-defined]
        # Real routers may be restarted, or told where to send: any instance may take a prompt.
        taken = data.draw(st.integers(0, n - 1))
        rule.take(request, taken)
        plain_rule.take(text, taken)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "router"),
    [("sglang", "sglang-cache-aware"), ("vllm", "vllm-router-cache-aware"), ("smg", "smg-cache-aware")],
)
@given(
    texts=TEXTS,
    n=st.integers(1, 4),
    threshold=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    absolute=st.sampled_from([1, 3, 64]),
    relative=st.sampled_from([1.0, 1.1, 1.5]),
    data=st.data(),
)
def test_cache_aware_routers_decide_by_their_radix_tree(
    name: str,
    router: str,
    texts: list[str],
    n: int,
    threshold: float,
    absolute: int,
    relative: float,
    data: st.DataObject,
) -> None:
    parameters = {
        "cache-threshold": threshold,
        "balance-abs-threshold": absolute,
        "balance-rel-threshold": relative,
    }
    rule = RULES[router](prompts_of(texts), Instances(n, 1), parameters)
    agree(rule, plain.CacheAware(name, n, threshold, absolute, relative), texts, n, data)


@given(
    texts=TEXTS,
    n=st.integers(1, 4),
    imbalanced=st.sampled_from([2, float("inf")]),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    data=st.data(),
)
def test_ray_takes_the_shortest_queue_among_holders_or_the_emptiest(
    texts: list[str], n: int, imbalanced: float, share: float, data: st.DataObject
) -> None:
    parameters = {"imbalanced_threshold": imbalanced, "match_rate_threshold": share}
    rule = cache_aware.RayPrefix(prompts_of(texts), Instances(n, 1), parameters)
    agree(rule, plain.Ray(n, imbalanced, share), texts, n, data)


@given(texts=TEXTS, n=st.integers(1, 4), least=st.sampled_from([0, 128, 300]), data=st.data())
def test_production_stack_takes_anyone_who_got_the_longest_prefix_in_chunks(
    texts: list[str], n: int, least: int, data: st.DataObject
) -> None:
    long = [text * 50 for text in texts]
    rule = cache_aware.ProductionStackPrefix(
        prompts_of(long), Instances(n, 1), {"prefix-min-match-length": least}
    )
    agree(rule, plain.Stack(n, least, 128), long, n, data)


@given(
    texts=TEXTS,
    n=st.integers(1, 3),
    tails=st.lists(st.integers(0, 3), min_size=14, max_size=14),
    weights=st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * 4),
    data=st.data(),
)
def test_dynamo_weighs_prefill_overlap_and_running_blocks(
    texts: list[str],
    n: int,
    tails: list[int],
    weights: tuple[float, float, float, float],
    data: st.DataObject,
) -> None:
    names = (
        "overlap-score-credit",
        "overlap-score-credit-decay",
        "prefill-load-scale",
        "decode-active-request-weight",
    )
    tokens = [4 * len(text) + tail for text, tail in zip(texts, tails, strict=False)]
    stream = recorded.prompts(recorded.paths_of(texts), "blocks4", tokens)
    rule = DynamoKv(stream, Instances(n, 1 << 40), dict(zip(names, weights, strict=True)))
    other = plain.Dynamo(n, 4, *weights)
    waiting: list[int] = []
    running: list[int] = []
    for request, text in enumerate(texts):
        for started in data.draw(st.sets(st.sampled_from(waiting))) if waiting else ():
            rule.see_first_token(started)
            other.first_token(started)
            waiting.remove(started)
            running.append(started)
        for ended in data.draw(st.sets(st.sampled_from(running))) if running else ():
            rule.see_end(ended)
            other.end(ended)
            running.remove(ended)
        allowed = rule.options(request, [0] * n)
        assert allowed == other.options(text, tokens[request])
        taken = data.draw(st.integers(0, n - 1))
        rule.take(request, taken)
        other.take(request, text, tokens[request], taken)
        waiting.append(request)


def test_an_incomplete_last_block_neither_overlaps_nor_runs() -> None:
    texts = ["abc", "abc", "ab"]
    stream = recorded.prompts(recorded.paths_of(texts), "blocks4", [10, 10, 8])
    rule = DynamoKv(stream, Instances(2, 1 << 40), ROUTERS["dynamo-kv"].defaults)
    rule.take(0, 0)
    assert rule.options(1, [0, 0]) == [1]
    rule.see_first_token(0)
    assert rule.overlap(1, 0) == rule.overlap(2, 0) == 2


def test_answers_of_a_moment_come_before_the_requests_that_arrive_then() -> None:
    stream = prompts_of(["", "", ""])
    rule = of_catalog("sglang-cache-aware", stream, 2)
    arrivals = np.array([0, 5, 5], np.int64)
    ended = run(rule, Times(arrivals, arrivals, np.array([5, 5, 9], np.int64)), seeded(0))
    # The second takes no time at all, and has gone when the third arrives at the same moment.
    assert ended.instances.tolist() == [0, 0, 0]
    assert ended.peak_in_flight == 1
    rule = of_catalog("sglang-cache-aware", stream, 2)
    overlapping = run(rule, Times(arrivals, arrivals, np.array([6, 7, 9], np.int64)), seeded(0))
    assert overlapping.instances.tolist() == [0, 1, 0]
    assert overlapping.peak_in_flight == 2


def test_draws_are_counted_and_follow_their_seed() -> None:
    stream = prompts_of(["a", "ab", "b"] * 20)
    times = recorded.one_at_a_time(60)
    one, same, other = (run(of_catalog("ray-prefix", stream, 4), times, seeded(seed)) for seed in (1, 1, 2))
    assert one.instances.tolist() == same.instances.tolist() != other.instances.tolist()
    assert 0 < one.drawn_requests < 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"threshold": "1"}, "has no 'threshold', expected some of cache-threshold, balance-abs-threshold"),
        ({"cache-threshold": "x"}, "cache-threshold of sglang-cache-aware is 'x', expected a number from 0"),
        ({"cache-threshold": "-1"}, "is '-1', expected a number from 0"),
    ],
)
def test_a_parameter_that_a_router_does_not_have_or_take_is_named(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        parameters_of(ROUTERS["sglang-cache-aware"], given, "--policy")

"""Decisions of real routers, recorded from their own code, against the rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import routers_recorded as recorded
from shared_data import shared_path

from kvcap.kernels.arrays import Int64Array
from kvcap.routers.catalog import ROUTERS, parameters_of
from kvcap.routers.clock import Times, run
from kvcap.routers.dynamo import DynamoKv
from kvcap.routers.rule import Instances, Prompts, Rule
from kvcap.routers.rules import RULES

SMALL = json.loads((Path(__file__).parents[1] / "golden" / "routers.json").read_text())
TRACE = "traces/mooncake_conversation.jsonl.gz"

EXACT = (
    "sglang-cache_aware-overlap",
    "sglang-cache_aware-tight",
    "vllmrouter-tokens",
    "stack-prefixaware-min",
)
"""Recordings of routers that draw nothing."""


def rule_of(name: str, recording: dict[str, Any], prompts: Prompts) -> Rule:
    router = next(router for begin, router in recorded.ROUTER_OF.items() if name.startswith(begin))
    parameters = parameters_of(ROUTERS[router], recording["parameters"], "parameters")
    return RULES[router](prompts, Instances(recording["n"], 1 << 40), parameters)


def times_of(recording: dict[str, Any], sent: Sequence[recorded.Request]) -> Times:
    if "first" in recording:
        return Times(*(np.array(recording[key], np.int64) for key in ("arrival", "first", "end")))
    return recorded.one_at_a_time(len(sent)) if recording["mode"] == "seq" else recorded.overlapping(sent)


class Forced:
    """A rule that takes what the real router took, and counts what it would have allowed."""

    def __init__(self, rule: Rule, instances: Sequence[int]) -> None:
        self.rule, self.n_instances, self.instances = rule, rule.n_instances, instances
        self.allowed: list[list[int]] = []
        self.take, self.see_first_token, self.see_end = rule.take, rule.see_first_token, rule.see_end

    def options(self, request: int, loads: Sequence[int]) -> list[int]:
        self.allowed.append(self.rule.options(request, loads))
        return [self.instances[request]]

    def outside(self) -> list[int]:
        return [r for r, allowed in enumerate(self.allowed) if self.instances[r] not in allowed]


def forced(name: str, recording: dict[str, Any], prompts: Prompts, times: Times) -> Forced:
    rule = Forced(rule_of(name, recording, prompts), recording["instances"])
    run(rule, times, lambda request, options: options[0])  # type: ignore[arg-type]
    return rule


def renamed(ours: Int64Array, theirs: Sequence[int]) -> list[int]:
    """Return our decisions under the names of theirs, each as it is called where it first appears."""
    names: dict[int, int] = {}
    for own, real in zip(ours.tolist(), theirs, strict=True):
        names.setdefault(own, real)
    assert len(set(names.values())) == len(names)
    return [names[own] for own in ours.tolist()]


def small_stream(name: str) -> tuple[Prompts, list[recorded.Request]]:
    kind = recorded.kind_of(name)
    trie = SMALL["tries"][kind]
    paths = recorded.paths_from(trie["parents"], trie["blocks"], trie["last"])
    columns = zip(SMALL["tokens"], SMALL["output"], SMALL["arrival_us"], strict=True)
    return recorded.prompts(paths, kind, SMALL["tokens"]), [recorded.Request([], *row) for row in columns]


@pytest.mark.parametrize("name", [n for n in SMALL["recordings"] if n.startswith(EXACT)])
def test_a_router_that_draws_nothing_is_followed_to_the_letter(name: str) -> None:
    prompts, sent = small_stream(name)
    recording = SMALL["recordings"][name]
    decisions = run(rule_of(name, recording, prompts), times_of(recording, sent), lambda r, options: -1)
    assert renamed(decisions.instances, recording["instances"]) == recording["instances"]
    assert decisions.drawn_requests == 0


# How many of 1,000 decisions leave one instance: a rule that allowed too many would leave fewer.
@pytest.mark.parametrize(
    ("name", "determined"),
    [
        ("smg-cache_aware-seq-4", 273),
        ("smg-cache_aware-tight-overlap-4", 656),
        ("ray-prefix-overlap-4", 956),
        ("ray-prefix-seq-8", 836),
        ("stack-prefixaware-4", 999),
        ("dynamo-kv-events-4", 917),
        ("dynamo-kv-block64-4", 928),
    ],
)
def test_a_router_that_draws_took_one_of_the_instances_that_the_rule_allows(
    name: str, determined: int
) -> None:
    prompts, sent = small_stream(name)
    recording = SMALL["recordings"][name]
    rule = forced(name, recording, prompts, times_of(recording, sent))
    assert rule.outside() == []
    assert sum(len(allowed) == 1 for allowed in rule.allowed) == determined
    if "options" in recording:
        assert [sorted(allowed) for allowed in rule.allowed] == [sorted(o) for o in recording["options"]]


@pytest.mark.parametrize("name", ["dynamo-kv-events-4", "dynamo-kv-block64-4"])
def test_the_blocks_that_dynamo_finds_are_those_that_it_logged(name: str) -> None:
    prompts, sent = small_stream(name)
    recording = SMALL["recordings"][name]
    rule = rule_of(name, recording, prompts)
    assert isinstance(rule, DynamoKv)
    found = []

    class Looking(Forced):
        def options(self, request: int, loads: Sequence[int]) -> list[int]:
            found.append(rule.overlap(request, self.instances[request]))
            return [self.instances[request]]

    looking = Looking(rule, recording["instances"])
    run(looking, times_of(recording, sent), lambda r, options: -1)  # type: ignore[arg-type]
    assert found == recording["selected"]


@pytest.fixture(scope="module")
def public_streams() -> dict[str, tuple[Prompts, list[recorded.Request]]]:
    """Return the streams of whole recordings, by what routers compare."""
    sent = recorded.requests(shared_path(TRACE), 3000)
    streams = {}
    for kind in ("characters", "tokens", "blocks64", "blocks512"):
        paths = recorded.paths_of(recorded.texts_of(sent, kind))
        streams[kind] = (recorded.prompts(paths, kind, [r.tokens for r in sent]), sent)
    return streams


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "draws"), [(begin, not begin.startswith(("sglang", "vllm"))) for begin in recorded.ROUTER_OF]
)
def test_whole_recordings(
    begin: str, draws: bool, public_streams: dict[str, tuple[Prompts, list[recorded.Request]]]
) -> None:
    unlike = ("evict", "tau")  # evictions of the router itself or of engines, and another trace
    files = [
        path
        for path in sorted(shared_path("golden/routers").glob(f"{begin}*.jsonl.gz"))
        if not any(word in path.name for word in unlike)
    ]
    assert files
    for path in files:
        recording = recorded.recorded(path)
        recording |= {"parameters": recorded.parameters(recording), "mode": recording.get("mode", "seq")}
        recording |= {
            key: [round(1000 * t) for t in recording[key]]
            for key in ("arrival", "first", "end")
            if key in recording
        }
        n = len(recording["instances"])
        whole, everyone = public_streams[recorded.kind_of(path.name)]
        sent = everyone[:n]
        prompts = Prompts(
            whole.paths._replace(path_offsets=whole.paths.path_offsets[: n + 1]),
            1,
            whole.characters[:n],
            whole.tokens[:n],
            whole.block_tokens,
        )
        times = times_of(recording, sent)
        if draws:
            assert forced(path.name, recording, prompts, times).outside() == [], path.name
        else:
            ours = run(rule_of(path.name, recording, prompts), times, lambda r, options: -1)
            assert renamed(ours.instances, recording["instances"]) == recording["instances"], path.name

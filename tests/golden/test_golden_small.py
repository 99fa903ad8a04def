"""A log of 160 requests against what the plain oracles wrote down, through the public interface."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import kvcap

HERE = Path(__file__).parent
LOG = HERE / "small.jsonl"
BLOCK = 16


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / "small.json").read_text())
    return values


def test_the_values_are_those_that_the_script_makes(
    golden: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import make_small

    lines = make_small.log()
    assert [json.loads(line) for line in LOG.read_text().splitlines()] == lines
    shorter = lines[:40]
    assert make_small.expected(shorter)["policies"]["64"]["fifo"] == golden["policies"]["64"]["fifo"][:40]
    del sys.modules["make_small"]


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
def test_hits_and_required_blocks(golden: dict[str, Any], order: str) -> None:
    options = kvcap.ReplayOptions.of(block_size=BLOCK, touch_order=order, target=Fraction(9, 10))
    with kvcap.replay(LOG, options) as results:
        rows = results.query("hit_rate_curve", capacities_blocks=[*map(int, golden[order]["hits"])])
        required = results.table("requests")["required_blocks"].to_pylist()
        at_100 = results.query("hit_rate", capacity_blocks=100).to_pylist()[0]
    found = {str(row["capacity_blocks"]): [row["hit_blocks"], row["hit_tokens"]] for row in rows.to_pylist()}
    assert found == golden[order]["hits"]
    assert [at_100["hit_blocks"], at_100["hit_tokens"]] == golden[order]["hits"]["100"]
    assert required == golden[order]["required_blocks"]


@pytest.mark.parametrize("policy", ["lru", "fifo", "optimal", "vllm-lru", "sglang-lru"])
def test_every_request_hits_as_the_policy_says(golden: dict[str, Any], policy: str) -> None:
    capacities = ",".join(f"{capacity}blocks" for capacity in golden["policies"])
    engine = policy.removesuffix("-lru")
    if engine in ("vllm", "sglang"):
        options = kvcap.engine_options(engine, block_size=BLOCK, capacities=capacities, request_hits=True)
    else:
        options = kvcap.ReplayOptions.of(
            block_size=BLOCK, policies=(policy,), capacities=capacities, request_hits=True
        )
    expected = {capacity: values[policy] for capacity, values in golden["policies"].items()}
    reading = kvcap.ReadOptions(block_size=BLOCK, max_requests=len(next(iter(expected.values()))))
    with kvcap.replay(LOG, options, reading=reading) as results:
        rows = results.sql(
            f"SELECT capacity_blocks, hit_blocks FROM policy_requests WHERE policy = '{policy}' "
            "ORDER BY capacity_blocks, request_id"
        )
    found: dict[str, list[int]] = {}
    for capacity, hits in zip(
        rows["capacity_blocks"].to_pylist(), rows["hit_blocks"].to_pylist(), strict=True
    ):
        found.setdefault(str(capacity), []).append(hits)
    assert found == expected

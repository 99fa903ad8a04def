"""Hit blocks equal those of the engines' own cache managers, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import shared_path

import kvcap

NAMES = ["conversation", "synthetic"]
BLOCK_SIZE = 512


def expected_hits(archive):
    with np.load(shared_path(f"golden/engines/{archive}.npz")) as arrays:
        return {key: arrays[key] for key in arrays.files}


def predicted_hits(name, engine, capacities, **overrides):
    """Return every request's hits by capacity, and the table ``policies``."""
    options = kvcap.engine_options(
        engine,
        block_size=BLOCK_SIZE,
        capacities=",".join(f"{capacity}blocks" for capacity in capacities),
        request_hits=True,
        **overrides,
    )
    with kvcap.replay(shared_path(f"traces/mooncake_{name}.jsonl.gz"), options) as results:
        rows = results.sql(
            "SELECT capacity_blocks, hit_blocks FROM policy_requests "
            f"WHERE reserved_blocks = {options.rules.reserve_blocks} ORDER BY capacity_blocks, request_id"
        )
        policies = results.table("policies").to_pylist()
    hits = rows["hit_blocks"].to_numpy().reshape(len(capacities), -1)
    return dict(zip(sorted(capacities), hits, strict=True)), policies


ONE_PASS = {"policies": ("lru",), "reserve_blocks": 1, "oversize": "drop"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rules", [{}, ONE_PASS], ids=["simulated", "one pass"])
@pytest.mark.parametrize(("archive", "output_blocks"), [("vllm", False), ("vllm_outputs", True)])
def test_hits_equal_vllm(archive, output_blocks, rules, name):
    expected = expected_hits(f"{archive}_{name}")
    capacities = tuple(int(key[1:]) for key in expected)
    hits, policies = predicted_hits(name, "vllm", capacities, output_blocks=output_blocks, **rules)
    assert len(hits) == len(expected) >= 2
    for key, array in expected.items():
        assert np.count_nonzero(hits[int(key[1:])] != array) == 0
    reserve = rules.get("reserve_blocks", 0)
    summed = {
        row["capacity_blocks"]: row["hit_blocks"] for row in policies if row["reserved_blocks"] == reserve
    }
    assert summed == {int(key[1:]): array.sum() for key, array in expected.items()}


@pytest.mark.parametrize("name", NAMES)
def test_node_eviction_equals_sglang(name):
    expected = expected_hits(f"sglang_{name}")
    hits, _ = predicted_hits(name, "sglang", tuple(int(key[1:]) for key in expected))
    assert len(hits) == 4
    for key, array in expected.items():
        assert np.count_nonzero(hits[int(key[1:])] != array) == 0


@pytest.mark.parametrize("name", NAMES)
def test_other_policies_equal_sglang(name):
    expected = expected_hits(f"sglang_policies_{name}")
    policies = [key.split("_")[0] for key in expected]
    assert sorted(policies) == ["fifo", "filo", "lfu", "mru", "slru"]
    for policy in policies:
        hits, _ = predicted_hits(name, "sglang", (5801,), policies=(f"sglang-{policy}",))
        assert np.count_nonzero(hits[5801] != expected[f"{policy}_c5801"]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_write_through_host_tier_finds_what_one_tier_of_the_larger_size_would(name):
    expected = expected_hits(f"sglang_hicache_write_through_{name}")
    pairs = {key.rsplit("_", 1)[0] for key in expected}
    assert len(pairs) == 2
    for pair in pairs:
        device, host = (int(part[1:]) for part in pair.split("_"))
        hits, _ = predicted_hits(name, "sglang", tuple({device, max(device, host)}))
        assert np.count_nonzero(hits[device] != expected[f"{pair}_l1"]) == 0
        both = expected[f"{pair}_l1"] + expected[f"{pair}_l2"]
        assert np.count_nonzero(hits[max(device, host)] != both) == 0

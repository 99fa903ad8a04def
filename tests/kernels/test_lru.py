from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from oracles import chained, lru_hits
from policy_cases import prompts, scanned

from kvcap.kernels.lru import lru_hit_blocks


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
@given(trace=prompts())
def test_hits_follow_from_depths_at_every_capacity(order, trace):
    runs, _ = scanned(trace)
    capacities = np.arange(-1, 12)
    found = lru_hit_blocks(runs, len(trace), capacities, tail_first=order == "tail-first")
    expected = [lru_hits(chained(trace), max(0, int(capacity)), order) for capacity in capacities]
    assert found.tolist() == expected

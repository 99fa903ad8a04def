"""Prefix caches of hybrid models from groups and pools alone, without a catalog or a trace on disk."""

from __future__ import annotations

import numpy as np
import pytest
from hybrid_cases import id_paths
from oracles_hybrid import Group, Prompt
from oracles_hybrid_sglang import SglangHybrid as PlainSglang
from oracles_hybrid_vllm import VllmHybrid as PlainVllm

from kvcap.engines.hybrid import IdRequests, VllmHybrid
from kvcap.engines.hybrid_options import HybridOptions
from kvcap.engines.sglang_hybrid import SglangHybrid
from kvcap.errors import UsageError
from kvcap.models.pools import CacheGroup, SglangSizes

ID_TOKENS = 64
PROMPTS = [
    Prompt(
        (*range(2 + place % 4), 100 + place, *range(200 + place // 3, 203 + place // 3)), 64 * (4 + place % 3)
    )
    for place in range(18)
]
"""Prompts that leave a common one in several places, some of them cut short."""


def requests():
    lengths = np.array([prompt.tokens for prompt in PROMPTS])
    return IdRequests(id_paths(PROMPTS), ID_TOKENS, lengths, np.full_like(lengths, 20))


WINDOW = CacheGroup("window", "window", 6, 16, 4096, window_tokens=128)
FULL = CacheGroup("full", "full", 6, 16, 4096)
STATE = CacheGroup("state", "state", 6, 16, 4096)
RING = CacheGroup("tails", "ring", 6, 16, 4096, prefix_cached=False)


@pytest.mark.parametrize("retention", ["0", "none", "64"])
def test_groups_of_a_model_that_no_catalog_has_are_simulated_as_vllm_does(retention):
    given = requests()
    options = HybridOptions(prefix_cache_retention_interval=retention, max_num_batched_tokens=256)
    cache = VllmHybrid((WINDOW, FULL), options)
    pool = [Group("window", 16, 128), Group("full", 16)]
    kept = None if retention == "none" else int(retention)
    found = cache.hit_tokens(given, [150, 400])
    assert found.max() > 0
    for capacity, row in zip((150, 400), found.tolist(), strict=True):
        plain = PlainVllm(pool, 16, capacity, ID_TOKENS, kept, 256, True)
        assert row == [plain.request(prompt._replace(generated=19)) for prompt in PROMPTS]
    assert np.all(cache.ceiling_tokens(given) >= found.max(axis=0))


def test_the_ceiling_is_what_an_endless_pool_finds():
    given = requests()
    cache = VllmHybrid((STATE, FULL))
    assert cache.ceiling_tokens(given).tolist() == cache.hit_tokens(given, [10**6])[0].tolist()
    windows = SglangHybrid(window_tokens=127)
    endless = [SglangSizes(10**8, 10**8)]
    assert windows.ceiling_tokens(given).tolist() == windows.hit_tokens(given, endless)[0].tolist()


def test_groups_are_simulated_as_sglang_does():
    given = requests()
    sglang = (
        CacheGroup("full", "full", 6, 1, 4096),
        CacheGroup("window", "window", 6, 1, 4096, window_tokens=128),
    )
    found = SglangHybrid.of_groups(sglang).hit_tokens(given, [SglangSizes(4000, 900)])
    plain = PlainSglang(4000, ID_TOKENS, window=127, window_pool=900)
    assert found[0].tolist() == [plain.request(prompt, 20) for prompt in PROMPTS]
    states = SglangHybrid(has_states=True).hit_tokens(given, [SglangSizes(4000, None, 12)])
    plain = PlainSglang(4000, ID_TOKENS, states=12)
    assert found.max() > 0
    assert states.max() > 0
    assert states[0].tolist() == [plain.request(prompt, 20) for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VllmHybrid((FULL, RING)), "tails of this model is no prefix cache"),
        (lambda: SglangHybrid.of_groups((FULL, RING)), "tails of this model is not simulated"),
        (lambda: SglangHybrid(window_tokens=127, has_states=True), "windows and states at once"),
        (lambda: SglangHybrid(page_tokens=64, chunked_prefill_size=100), "expected a multiple of the page"),
        (
            lambda: SglangHybrid(window_tokens=127).hit_tokens(requests(), [SglangSizes(4000)]),
            "lack windows or states",
        ),
        (lambda: HybridOptions(prefix_cache_retention_interval="all"), "expected none, 0 or a number"),
    ],
)
def test_what_is_not_simulated_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()

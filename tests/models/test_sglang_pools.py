"""SGLang's pools: tokens of full attention, of windows, and slots of states."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcap.errors import UsageError
from kvcap.models import ModelBytesOptions, resolve_model
from kvcap.models.pools import SglangOptions, SglangPool, SglangSizes, sglang_pool

GIB = 1 << 30


def pool(name: str, deployment: dict[str, object], **options: object) -> SglangPool:
    return sglang_pool(
        resolve_model(name),
        ModelBytesOptions(**deployment),  # type: ignore[arg-type]
        SglangOptions(**options),  # type: ignore[arg-type]
    )


def test_tokens_are_memory_over_the_cell_in_whole_pages() -> None:
    assert pool("qwen3-235b-a22b", {"tp": 4}).sizes(48_128 * 1000 + 48_127) == SglangSizes(1000)
    sparse = pool("glm-5.2", {"kv_precision": "fp8"})
    assert sparse.page_tokens == 64
    assert sparse.sizes(53_940 * 128 - 1) == SglangSizes(64)


def test_windows_get_tokens_in_proportion_to_full_attention() -> None:
    found = pool("mimo-v2.5", {"tp": 4}, page_tokens=64)
    assert (found.token_bytes, found.window_token_bytes) == (9 * 640, 39 * 1280)
    memory = 375_360 * (9 * 640) + 300_288 * (39 * 1280)
    assert found.sizes(memory) == SglangSizes(375_360, 300_288)
    small = pool("mimo-v2.5", {"tp": 4}, window_ratio=Fraction(1, 10))
    assert small.sizes(1000 * 9 * 640 + 100 * 39 * 1280) == SglangSizes(1000, 100)


def test_states_take_their_share_of_memory_and_one_spare_slot() -> None:
    found = pool("qwen3.5-9b", {"tp": 2})
    state = 24 * (3 * 8192 // 2 * 2 + 16 * 128 * 128 * 4)
    assert found.state_bytes == state
    memory = 187 * state + 327_310 * 16_384
    assert found.sizes(memory) == SglangSizes(327_310, None, 186)
    given = pool("qwen3.5-9b", {"tp": 2}, state_slots=10)
    assert given.sizes(11 * state + 50 * 16_384) == SglangSizes(50, None, 10)


def test_models_without_a_pool_of_windows_keep_every_token() -> None:
    found = pool("cohere-command-r7b-12-2024", {})
    assert (found.token_bytes, found.window_token_bytes) == (32 * 4096, 0)
    assert found.notes == ("SGLang keeps every token of window layers",)
    assert [group.kind for group in found.groups] == ["full", "full"]


def test_deepseek_v4_pads_pages_and_reserves_states_for_every_running_request() -> None:
    found = pool("deepseek-v4-flash", {}, max_running_requests=64)
    page = 256
    full = (21 * (37_440 + 64 * 132) + 20 * 1728) / Fraction(page)
    overlapping = Fraction(8, page) * 21 * (4 * 512 + 4 * 128) * 4
    window = 43 * Fraction(149_760, page) + overlapping
    assert (found.token_bytes, found.window_token_bytes) == (full, window)
    reserved = (64 + 3) * 20 * 128 * 1024 * 4
    memory = reserved + int(512 * (full + window / 10))
    assert found.sizes(memory + 1) == SglangSizes(512, 0)
    estimated = pool("deepseek-v4-flash", {}).sizes(100 * GIB)
    assert estimated.max_total_num_tokens < found.sizes(100 * GIB).max_total_num_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_ratio": Fraction(2)}, "window ratio is 2, expected above 0 and at most 1"),
        ({"state_ratio": Fraction(0)}, "state ratio is 0, expected above 0"),
        ({"page_tokens": 0}, "page tokens is 0, expected a whole number from 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pool("mimo-v2.5", {}, **options)


def test_a_memory_without_room_for_a_page_is_refused() -> None:
    with pytest.raises(UsageError, match="too few for a page of tokens"):
        pool("qwen3.5-9b", {"tp": 2}).sizes(1000)

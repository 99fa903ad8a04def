"""vLLM's pool: groups of layers, bytes of a block, and the figures that the engine prints."""

from __future__ import annotations

import pytest

from kvcap.errors import UsageError
from kvcap.models import ModelBytesOptions, resolve_model
from kvcap.models.pools import CacheLayers, VllmOptions, VllmPool, group_layers, pool_block_bytes, vllm_pool

GIB = 1 << 30


def heads(kind: str, layers: int, block: int, token_bytes: int, window: int | None = None) -> CacheLayers:
    return CacheLayers(kind, kind, layers, block, block * token_bytes, window)  # type: ignore[arg-type]


def state(layers: int, block: int, page: int, checkpoint: int = 0) -> CacheLayers:
    return CacheLayers("state", "state", layers, block, page, checkpoint_blocks=checkpoint)


def row(name: str, kind: str, layers: int, block: int, page: int, window: int | None = None) -> CacheLayers:
    return CacheLayers(name, kind, layers, block, page, window, paddable=False)  # type: ignore[arg-type]


GPT_OSS_20B = [heads("window", 12, 64, 2048, 128), heads("full", 12, 64, 2048)]
GPT_OSS_120B = [heads("window", 18, 16, 2048, 128), heads("full", 18, 16, 2048)]
GEMMA3_27B = [heads("window", 52, 64, 8192, 1024), heads("full", 10, 64, 8192)]
GEMMA3_12B = [heads("window", 40, 16, 8192, 1024), heads("full", 8, 16, 8192)]
LLAMA4_SCOUT = [heads("chunked", 36, 64, 4096, 8192), heads("full", 12, 64, 4096)]
QWEN3_NEXT = [state(36, 544, 544 * 2048), heads("full", 12, 544, 2048)]
KIMI_LINEAR = [state(20, 1920, 1920 * 1152), row("latents", "full", 7, 1920, 1920 * 1152)]
DEEPSEEK_V4 = [
    row("windows", "window", 61, 64, 37_440, 128),
    row("1:4 latents", "full", 30, 256, 37_440),
    row("1:128 latents", "full", 29, 256, 1728),
    row("index keys", "full", 30, 256, 8640),
    row("compressor", "window", 30, 4, 32_832, 8),
    row("index compressor", "window", 30, 4, 8640, 8),
    row("1:128 compressor", "window", 29, 8, 32_832, 128),
]


@pytest.mark.parametrize(
    ("layers", "block_by_block", "groups", "block_bytes"),
    [
        (GPT_OSS_20B, False, [("window", 12, 64), ("full", 12, 64)], 24_576 * 64),
        (GPT_OSS_120B, False, [("window", 18, 16), ("full", 18, 16)], 589_824),
        (
            GEMMA3_27B,
            False,
            [("window", n, 64) for n in (9, 9, 9, 9, 8, 8)] + [("full", 10, 64)],
            81_920 * 64,
        ),
        (GEMMA3_12B, False, [("window", 8, 16)] * 5 + [("full", 8, 16)], 1_048_576),
        (LLAMA4_SCOUT, False, [("chunked", 12, 64)] * 3 + [("full", 12, 64)], 49_152 * 64),
        (QWEN3_NEXT, False, [("state", 12, 544)] * 3 + [("full", 12, 544)], 13_369_344),
        (KIMI_LINEAR, False, [("state", n, 1920) for n in (7, 7, 6)] + [("full", 7, 1920)], 15_482_880),
        (
            DEEPSEEK_V4,
            True,
            [("window", 31, 64), ("window", 30, 64), ("full", 89, 256), ("window", 60, 4), ("window", 29, 8)],
            1_432_512,
        ),
    ],
)
def test_layers_are_grouped_as_by_the_engine(
    layers: list[CacheLayers], block_by_block: bool, groups: list[tuple[str, int, int]], block_bytes: int
) -> None:
    found = group_layers(layers, block_outermost=block_by_block)
    assert [(group.kind, group.layers, group.block_tokens) for group in found] == groups
    assert pool_block_bytes(found) == block_bytes


def test_pages_of_small_layers_are_made_equal_by_longer_blocks_or_padding() -> None:
    longer = group_layers([heads("window", 4, 64, 2048, 1024), heads("full", 4, 64, 4096)])
    assert [(group.block_tokens, group.group_bytes) for group in longer] == [
        (128, 4 * 64 * 4096),
        (64, 4 * 64 * 4096),
    ]
    padded = group_layers([heads("window", 4, 64, 3000, 1024), heads("full", 4, 64, 4096)])
    assert [(group.block_tokens, group.group_bytes) for group in padded] == [(64, 4 * 64 * 4096)] * 2
    with pytest.raises(UsageError, match="vLLM cannot pad latents"):
        group_layers([row("latents", "full", 4, 64, 3000), heads("window", 4, 64, 4096, 1024)])


def test_counts_that_are_near_make_one_group_each_with_padding() -> None:
    drafted = group_layers([heads("window", 12, 16, 2048, 128), heads("full", 13, 16, 2048)])
    assert [group.layers for group in drafted] == [12, 13]
    assert pool_block_bytes(drafted) == 13 * 16 * 2048


def pool(name: str, deployment: dict[str, object], **options: object) -> VllmPool:
    return vllm_pool(
        resolve_model(name),
        ModelBytesOptions(**deployment),  # type: ignore[arg-type]
        VllmOptions(**options),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("name", "block_tokens", "block_bytes"),
    [
        ("gpt-oss-20b", 64, 24_576 * 64),
        ("gpt-oss-120b", 16, 589_824),
        ("gemma-3-27b", 16, 81_920 * 16),
        ("gemma-3-12b", 16, 1_048_576),
        ("llama-4-scout", 64, 49_152 * 64),
        ("qwen3-next-80b-a3b", None, 13_369_344),
        ("kimi-linear-48b-a3b", None, 15_482_880),
    ],
)
def test_models_make_the_blocks_of_the_engines_own_grouping(
    name: str, block_tokens: int | None, block_bytes: int
) -> None:
    found = pool(name, {}, block_tokens=block_tokens)
    assert found.block_bytes == block_bytes
    assert found.groups[-1].kind == "full"
    assert found.alignment_tokens == found.groups[-1].block_tokens


def test_mamba_2_takes_a_block_more_for_the_state_inside_the_last_chunk() -> None:
    found = pool("granite-4-h-small", {})
    states = [
        blocks
        for group, blocks in zip(found.groups, found.group_request_blocks, strict=True)
        if group.kind == "state"
    ]
    assert states == [3] * 9
    plain = pool("qwen3-next-80b-a3b", {}).group_request_blocks
    assert plain[:3] == (2, 2, 2)


def printed(found: VllmPool, gib: float) -> int:
    return found.printed_tokens(found.pool_blocks(int(gib * GIB)))


@pytest.mark.parametrize(
    ("name", "deployment", "options", "gib", "tokens", "concurrency"),
    [
        ("qwen3.6-35b-a3b", {"kv_precision": "fp8"}, {"max_model_len": 131072}, 5.98, 567_978, "4.33"),
        ("qwen3.8-27b", {"kv_precision": "fp8", "tp": 2}, {"max_model_len": 131072}, 4.99, 302_921, "2.31"),
        (
            "glm-5.3-flash",
            {"tp": 8},
            {"max_model_len": 262144, "prefix_caching": False},
            28.73,
            2_618_281,
            "9.99",
        ),
        (
            "qwen3.5-35b-a3b",
            {"kv_precision": "fp8", "engine_version": "0.17"},
            {"max_model_len": 32768},
            5.69,
            148_816,
            "12.91",
        ),
        (
            "qwen3.6-27b",
            {"tp": 2, "num_speculative_tokens": 2},
            {"max_model_len": 184320},
            110.59,
            3_233_564,
            "17.54",
        ),
        ("llama-3.1-8b", {"kv_precision": "fp32"}, {"max_model_len": 8192}, 42.8, 175_296, "21.40"),
        ("qwen3-30b-a3b", {}, {"max_model_len": 16384}, 4.85, 52_960, "3.23"),
    ],
)
def test_the_figures_are_those_that_an_engine_printed(
    name: str,
    deployment: dict[str, object],
    options: dict[str, object],
    gib: float,
    tokens: int,
    concurrency: str,
) -> None:
    found = pool(name, deployment, **options)
    assert printed(found, gib) == tokens
    assert f"{found.concurrency(found.pool_blocks(int(gib * GIB))):.2f}" == concurrency


@pytest.mark.parametrize(
    ("name", "deployment", "options", "gib", "tokens"),
    [
        ("deepseek-v4-flash", {"tp": 8}, {"max_model_len": 131072}, 77.53, 1_513_358),
        ("deepseek-v4.1-flash", {"tp": 8}, {"max_model_len": 262144}, 29.14, 9_092_347),
        ("mimo-v2.5", {"tp": 8}, {"max_model_len": 262144}, 49.18, 6_969_972),
        ("kimi-k2.5", {"tp": 8, "dcp": 8}, {"max_model_len": 262144}, 46.8, 5_721_088),
    ],
)
def test_rounded_memory_explains_printed_tokens_to_the_rounding(
    name: str, deployment: dict[str, object], options: dict[str, object], gib: float, tokens: int
) -> None:
    found = pool(name, deployment, **options)
    assert printed(found, gib - 0.005) <= tokens <= printed(found, gib + 0.005)


def test_a_smaller_step_holds_more_of_a_compressed_model() -> None:
    small, large = (
        pool("deepseek-v4-flash", {"tp": 8}, max_model_len=262144, max_num_batched_tokens=step)
        for step in (2048, 8192)
    )
    assert printed(large, 47.425) <= 1_728_531 <= printed(large, 47.435)
    assert round(printed(small, 47.43), -4) == 4_910_000


def test_a_block_holds_a_state_in_steps_of_the_kernels_block() -> None:
    for block_tokens, expected in ((None, 1568), (64, 1600), (2048, 2048)):
        found = pool("qwen3.8-27b", {"kv_precision": "fp8", "tp": 2}, block_tokens=block_tokens)
        assert {group.block_tokens for group in found.groups} == {expected}
        assert found.alignment_tokens == expected


def test_printed_tokens_lead_back_to_the_blocks_of_the_pool() -> None:
    for name, deployment in (
        ("qwen3.6-35b-a3b", {}),
        ("deepseek-v4-pro", {"tp": 8}),
        ("qwen3.5-9b", {"engine_version": "0.17"}),
        ("qwen3-32b", {}),
    ):
        found = pool(name, deployment)
        for blocks in (1, 2, 3, 57, 1000, 123_457):
            assert blocks in found.blocks_from_printed(found.printed_tokens(blocks))


def test_stages_hold_their_share_of_every_group_and_keep_a_batch_each_in_flight() -> None:
    whole, staged = (pool("mimo-v2.5", {"tp": 8, "pp": pp}, max_model_len=65536) for pp in (1, 3))
    assert (whole.block_bytes, staged.block_bytes) == (9 * 16 * 640, 3 * 16 * 640)
    assert staged.request_blocks - whole.request_blocks == 5 * 2 * 8192 // 16
    assert staged.notes == ("every group's layers are taken as spread evenly over 3 stages",)


@pytest.mark.parametrize(
    ("deployment", "options", "message"),
    [
        ({"tp": 2, "dcp": 2}, {}, "dcp is 2 for layers with windows, expected 1"),
        ({}, {"max_model_len": 0}, "max model len is 0, expected a whole number from 1"),
        ({"tp": 3}, {}, "tensor parallelism is 3 for 4 KV heads"),
    ],
)
def test_what_cannot_be_is_refused(
    deployment: dict[str, object], options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pool("mimo-v2.5", deployment, **options)

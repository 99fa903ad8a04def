"""Where the settings of the service come from, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kvcap.errors import UsageError
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.settings import serve_options


def options(
    config: str | None = None, environment: dict[str, str] | None = None, **flags: Any
) -> ServeOptions:
    return serve_options({"kv_bytes_per_token": "1000", **flags}, environment or {}, config)


def test_flags_go_before_the_environment_and_that_before_the_file() -> None:
    config = '{"port": 1, "host": "file", "slide_window_size": 7}'
    found = options(config, {"KVCAP_PORT": "2", "KVCAP_HOST": "environment"}, port="3")
    assert (found.port, found.host, found.window_requests) == (3, "environment", 7)


def test_the_file_knows_the_fields_of_the_simulator_it_succeeds(tmp_path: Path) -> None:
    file = tmp_path / "capacity.toml"
    file.write_text(
        "kv_bytes_per_token = 61505.5\npage_size = 32\ncapacities = ['1GiB', 2_000_000_000]\n"
        "target_hit_rate_ratio = 0.95\nslide_window_size = 10\ninclude_partial_page = true\n"
        "output_path = 'out'\n"
    )
    found = serve_options({}, {}, str(file))
    assert found.kv_bytes_per_token == Fraction(123011, 2)
    assert found.block_size == 32
    assert found.capacities_bytes == (2**30, 2_000_000_000)
    assert found.max_capacity_bytes == 2_000_000_000
    assert found.target == Fraction(95, 100)
    assert found.blocks.partial_block == "keep"
    assert (found.output_path, found.record) == ("out", "out.log")


def test_capacities_in_blocks_and_tokens_become_bytes() -> None:
    found = options(capacities="10blocks,64tokens,1GB")
    assert found.capacities_bytes == (64_000, 640_000, 1_000_000_000)
    assert found.estimator.capacities_blocks == (1, 10, 15625)


def test_a_key_is_taken_from_the_environment() -> None:
    assert options(environment={"KVCAP_API_KEY": "secret"}).api_key == "secret"


def test_an_engine_url_means_the_engine_backend() -> None:
    tokenize = options(engine_url="http://localhost:1").tokenize
    assert tokenize is not None
    assert tokenize.backend == "engine"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"kv_bytes": 1}', "kv_bytes, expected only"),
        ('{"page_size": 1, "block_size": 1}', "both"),
        ("{", "does not parse"),
        ('{"port": 70000}', "65535"),
        ('{"port": true}', "65535"),
        ('{"block_size": 1.5}', "whole number"),
        ('{"block_size": "x"}', "whole number from 1"),
        ('{"target_hit_rate_ratio": 1.5}', "at most 1"),
        ('{"include_partial_page": "maybe"}', "true or false"),
        ('{"touch_order": "sideways"}', "tail-first or head-first"),
        ('{"capacities": []}', "expected sizes"),
        ('{"capacities": "1"}', "expected a size"),
        ('{"host": ""}', "expected text"),
        ('{"max_capacity": "1KiB", "capacities": "1GiB"}', "the bound"),
        ('{"kv_bytes_per_token": 0}', "above 0"),
        ('{"tokenize_backend": "engine"}', "--engine-url"),
    ],
)
def test_what_a_setting_cannot_be_is_refused(config: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _ = serve_options(
            {"kv_bytes_per_token": None}, {"KVCAP_KV_BYTES_PER_TOKEN": ""}, _with_bytes(config)
        ).estimator


def _with_bytes(config: str) -> str:
    if "kv_bytes_per_token" in config or config == "{":
        return config
    return config.replace("{", '{"kv_bytes_per_token": 1000, ', 1)


def test_bytes_per_token_must_be_given() -> None:
    with pytest.raises(UsageError, match="--kv-bytes-per-token"):
        serve_options({}, {}, None)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text("[1]")
    with pytest.raises(UsageError, match="no object"):
        serve_options({}, {}, str(file))

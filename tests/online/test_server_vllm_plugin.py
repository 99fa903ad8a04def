"""The vLLM plugin without vLLM: what it hooks, what it counts, and that it never harms the engine."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kvcap.online import vllm_plugin
from kvcap.online.vllm_plugin import EngineObserver, observer_options


@pytest.fixture
def input_processor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the class that the plugin hooks, and a registry of its own."""

    class InputProcessor:
        def __init__(self, block_size: int) -> None:
            config = types.SimpleNamespace(block_size=block_size)
            self.vllm_config = types.SimpleNamespace(cache_config=config)

        def process_inputs(self, prompt: Any) -> Any:
            return types.SimpleNamespace(prompt_token_ids=prompt)

    module = types.ModuleType("vllm.v1.engine.input_processor")
    module.InputProcessor = InputProcessor  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.v1", "vllm.v1.engine"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("prometheus_client.REGISTRY", CollectorRegistry())
    monkeypatch.setattr(vllm_plugin, "_installed", vllm_plugin.threading.Lock())
    monkeypatch.setenv("KVCAP_KV_BYTES_PER_TOKEN", "1000")
    return InputProcessor


def exported() -> dict[str, float]:
    import prometheus_client

    lines = generate_latest(prometheus_client.REGISTRY).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_prompts_that_the_engine_takes_are_counted_in_blocks_of_the_engine(input_processor: Any) -> None:
    vllm_plugin.register()
    vllm_plugin.register()
    processor = input_processor(8)
    for _ in range(2):
        assert processor.process_inputs(list(range(20))).prompt_token_ids == list(range(20))
    processor.process_inputs(None)
    found = exported()
    assert found["kvcap_block_accesses_total"] == 4
    assert found["kvcap_reusable_block_accesses_total"] == 2
    assert found['kvcap_requests_total{status="refused"}'] == 1


def test_without_its_variable_the_plugin_touches_nothing(
    input_processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVCAP_KV_BYTES_PER_TOKEN")
    untouched = input_processor.process_inputs
    vllm_plugin.register()
    assert input_processor.process_inputs is untouched


def test_wrong_settings_end_the_observing_and_not_the_engine(
    input_processor: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KVCAP_CAPACITIES", "much")
    vllm_plugin.register()
    assert input_processor(8).process_inputs([1]).prompt_token_ids == [1]
    assert "cannot observe" in caplog.text


def test_a_failure_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KVCAP_KV_BYTES_PER_TOKEN", "1000")
    observer = EngineObserver(observer_options(8))
    for _ in range(3):
        observer.observe([-1])
    assert caplog.text.count("stopped observing") == 1


def test_the_environment_goes_before_the_engine_s_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVCAP_KV_BYTES_PER_TOKEN", "1000")
    assert observer_options(8).block_size == 8
    monkeypatch.setenv("KVCAP_BLOCK_SIZE", "32")
    assert observer_options(8).block_size == 32


def test_an_engine_s_workers_load_nothing_heavy() -> None:
    heavy = "{'numba', 'polars', 'pyarrow', 'starlette'}"
    code = f"import sys, kvcap.online.vllm_plugin; print({heavy} & set(sys.modules) or 'none')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "none"

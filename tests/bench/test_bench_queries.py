"""Named queries on the results of a large trace: each within two seconds, a first answer within one.

``pytest -m bench tests/bench/test_bench_queries.py -s`` prints the best of three runs of each.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from shared_data import shared_path

import kvcap
from kvcap.queries import list_queries, open_results

pytestmark = pytest.mark.bench

QUERY_SECONDS = 2.0
ANSWER_SECONDS = 1.0
REQUIRED = {"hit_rate": {"capacity_blocks": "2TiB"}, "tiers": {"tiers": "640GiB, 2TiB, 16TiB"}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agentic") / "results"
    options = kvcap.ReplayOptions.of(
        kv_bytes_per_token=Fraction(70_000),
        warm_up=Fraction(1, 5),
        policies=("fifo",),
        capacities="640GiB",
    )
    kvcap.replay(shared_path("traces/agentic_coding.jsonl.xz"), options, out=path).close()
    return path


@pytest.fixture(scope="module")
def results(directory: Path) -> Iterator[kvcap.Results]:
    with open_results(directory) as opened:
        yield opened


def best_of_three(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


@pytest.mark.parametrize("name", [query.name for query in list_queries()])
def test_a_named_query(results: kvcap.Results, name: str) -> None:
    taken = best_of_three(lambda: results.query(name, **REQUIRED.get(name, {})))
    print(f"\n{name}: {taken:.3f} s")
    assert taken < QUERY_SECONDS


@pytest.mark.parametrize(
    "asking", [["--query", "hit_rate_curve"], ["FROM ttl_surface"]], ids=["named", "text"]
)
def test_opening_and_answering_from_a_new_process(directory: Path, asking: list[str]) -> None:
    command = [sys.executable, "-m", "kvcap", "sql", str(directory), *asking]
    taken = best_of_three(lambda: subprocess.run(command, check=True, capture_output=True))
    print(f"\nkvcap sql {' '.join(asking)}: {taken:.3f} s, process start included")
    assert taken < ANSWER_SECONDS

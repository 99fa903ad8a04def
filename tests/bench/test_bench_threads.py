"""Two cores against one: the main job from one plain file and from eight compressed ones.

``pytest -m bench tests/bench/test_bench_threads.py -s`` prints medians; runs are interleaved.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shared_data import shared_path

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]

N_FILES = 8
RUNS = 7
MAX_RATIO = 0.65


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """A real log of 1 GB, plain and in eight parts compressed as gzip does by default."""
    directory = tmp_path_factory.mktemp("bench")
    plain = directory / "log.jsonl"
    with lzma.open(shared_path("traces/agentic_coding.jsonl.xz")) as packed, plain.open("wb") as stream:
        while data := packed.read(1 << 24):
            stream.write(data)
    with plain.open("rb") as lines:
        n_lines = sum(1 for _ in lines)
    parts = [directory / f"part-{number}.jsonl.gz" for number in range(N_FILES)]
    with plain.open("rb") as lines:
        for part in parts:
            with gzip.open(part, "wb", compresslevel=6) as stream:
                stream.writelines(itertools.islice(lines, -(-n_lines // N_FILES)))
    return {"one .jsonl": [plain], "eight .jsonl.gz": parts}


def seconds(inputs: list[Path], threads: int) -> float:
    # As for users, who have the bytecode of what they installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [
        sys.executable,
        "-m",
        "kvcap",
        "replay",
        *map(str, inputs),
        "--threads",
        str(threads),
        "--quiet",
    ]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


@pytest.mark.parametrize("form", ["one .jsonl", "eight .jsonl.gz"])
def test_two_threads_take_at_most_two_thirds_of_the_time(logs: dict[str, list[Path]], form: str) -> None:
    for threads in (1, 2):
        seconds(logs[form], threads)
    rounds = [(seconds(logs[form], 1), seconds(logs[form], 2)) for _ in range(RUNS)]
    one, two = (statistics.median(column) for column in zip(*rounds, strict=True))
    # The two runs of a round share what the rest of the machine does meanwhile.
    ratio = statistics.median(two / one for one, two in rounds)
    print(f"\n{form}: {one:.2f} s with one thread, {two:.2f} s with two, ratio {ratio:.2f}")
    assert ratio <= MAX_RATIO

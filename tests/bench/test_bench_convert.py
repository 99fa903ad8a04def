"""Conversion of a large log of ids: speed beside a plain parser, and memory that does not grow with the log.

``pytest -m bench tests/bench/test_bench_convert.py -s`` prints MB/s of JSON Lines, process start included,
and peak memory.
"""

from __future__ import annotations

import gzip
import lzma
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pytest
from shared_data import shared_path

pytestmark = pytest.mark.bench

LOG_BYTES = 256 << 20
MAX_GROWTH = 1.2
MAX_WORK = 3.0
# Peak memory is asked for inside: what the system tells a parent includes the parent's own at the fork.
MEASURED = """
import sys, time
from kvcap.cli import main
assert main(sys.argv[1:]) == 0
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time(), peak.split()[1])
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first quarter GB of a real log, whole lines."""
    path = tmp_path_factory.mktemp("bench") / "log.jsonl"
    with lzma.open(shared_path("traces/agentic_coding.jsonl.xz")) as packed, path.open("wb") as stream:
        stream.writelines(packed.readlines(LOG_BYTES))
    return path


class Run(NamedTuple):
    """What a process took: seconds on the clock and of all cores, and bytes at its peak."""

    seconds: float
    cpu_seconds: float
    memory: int


def convert(*inputs: Path, out: Path, threads: int | None = None) -> Run:
    """Convert in a process of its own."""
    arguments = ["convert", *map(str, inputs), "-o", str(out), "--force", "--quiet"]
    arguments += ["--threads", str(threads)] if threads else []
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", MEASURED, *arguments], check=True, capture_output=True)
    taken = time.perf_counter() - start
    cpu_seconds, memory_kb = run.stdout.split()
    return Run(taken, float(cpu_seconds), int(memory_kb) * 1024)


def parse_plainly(log: Path) -> Run:
    """Read the ids with orjson and NumPy alone, line by line, and write nothing."""
    start, cpu_start = time.perf_counter(), time.process_time()
    with log.open("rb") as stream:
        for line in stream:
            np.array(orjson.loads(line)["hash_ids"], dtype=np.uint64)
    return Run(time.perf_counter() - start, time.process_time() - cpu_start, 0)


def test_converting_costs_less_than_parsing_line_by_line(log: Path, tmp_path: Path) -> None:
    size_mb = log.stat().st_size / 1e6
    tiny = tmp_path / "tiny.jsonl"
    tiny.write_text('{"hash_ids": [1], "input_length": 1, "block_size": 64}\n')
    convert(log, out=tmp_path / "warm.parquet")
    starting, plain = convert(tiny, out=tmp_path / "tiny.parquet"), parse_plainly(log)
    print(f"\norjson and NumPy line by line, nothing written: {size_mb / plain.seconds:,.0f} MB/s")
    print(f"starting kvcap: {starting.seconds:.2f} s, {starting.memory / 2**20:,.0f} MiB")
    for threads in (1, None):
        run = convert(log, out=tmp_path / "out.parquet", threads=threads)
        cpu_seconds = run.cpu_seconds - starting.cpu_seconds
        name = "one thread" if threads else "a thread per core"
        rate, ratio = size_mb / run.seconds, cpu_seconds / plain.cpu_seconds
        print(
            f"kvcap convert, {name}: {rate:,.0f} MB/s, {ratio:.1f} times the work of plain parsing, "
            f"{run.memory / 2**20:,.0f} MiB"
        )
        # The work, not the time: the machine may be doing something else.
        assert cpu_seconds < MAX_WORK * plain.cpu_seconds
    written = (tmp_path / "out.parquet").stat().st_size
    print(f"written: {written / 2**20:.1f} MiB")


def test_compressed_logs_are_decoded_beside_parsing(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    plain = convert(log, out=tmp_path / "out.parquet")
    packed = {
        "gz": gzip.compress(data, 6),
        "zst": pa.compress(data, "zstd", asbytes=True),
        "xz": lzma.compress(data, preset=1),
    }
    for name, content in packed.items():
        path = tmp_path / f"log.jsonl.{name}"
        path.write_bytes(content)
        run = convert(path, out=tmp_path / "out.parquet")
        rate, ratio = len(data) / 1e6 / run.seconds, run.seconds / plain.seconds
        print(f"\n.{name}: {rate:,.0f} MB/s of JSON Lines, {ratio:.2f} times the plain log")


def test_memory_does_not_grow_with_the_log(log: Path, tmp_path: Path) -> None:
    once = convert(log, out=tmp_path / "out.parquet").memory
    four_times = convert(log, log, log, log, out=tmp_path / "out.parquet").memory
    print(f"\npeak memory: {once / 2**20:,.0f} MiB, four times the log {four_times / 2**20:,.0f} MiB")
    assert four_times < MAX_GROWTH * once

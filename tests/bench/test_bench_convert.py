"""Conversion of a large log of ids: speed beside a plain parser, and memory that does not grow with the log.

``pytest -m bench tests/bench/test_bench_convert.py -s`` prints MB/s of JSON Lines, process start included,
and peak memory.
"""

from __future__ import annotations

import gzip
import lzma
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest
from shared_data import shared_path

pytestmark = pytest.mark.bench

LOG_BYTES = 256 << 20
MIN_MB_PER_SECOND = 150
MAX_GROWTH = 1.2


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first quarter GB of a real log, whole lines."""
    path = tmp_path_factory.mktemp("bench") / "log.jsonl"
    with lzma.open(shared_path("traces/agentic_coding.jsonl.xz")) as packed, path.open("wb") as stream:
        stream.writelines(packed.readlines(LOG_BYTES))
    return path


def convert(*inputs: Path, out: Path, threads: int | None = None) -> tuple[float, int]:
    """Convert in a process of its own; return seconds and peak memory in bytes."""
    command = [
        sys.executable,
        "-m",
        "kvcap",
        "convert",
        *map(str, inputs),
        "-o",
        str(out),
        "--force",
        "--quiet",
    ]
    start = time.perf_counter()
    process = subprocess.Popen([*command, *(["--threads", str(threads)] if threads else [])])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def plain_parser_seconds(log: Path) -> float:
    """Return how long it takes to read the ids with orjson and NumPy alone."""
    start = time.perf_counter()
    with log.open("rb") as stream:
        for line in stream:
            np.array(orjson.loads(line)["hash_ids"], dtype=np.uint64)
    return time.perf_counter() - start


def test_converting_is_faster_than_parsing_line_by_line(log: Path, tmp_path: Path) -> None:
    size_mb = log.stat().st_size / 1e6
    convert(log, out=tmp_path / "warm.parquet")
    plain = plain_parser_seconds(log)
    print(f"\norjson and NumPy line by line, nothing written: {size_mb / plain:,.0f} MB/s")
    fastest = 0.0
    for threads in (1, None):
        taken, memory = convert(log, out=tmp_path / "out.parquet", threads=threads)
        fastest = max(fastest, size_mb / taken)
        name = "one thread" if threads else "a thread per core"
        print(
            f"kvcap convert, {name}: {size_mb / taken:,.0f} MB/s, {plain / taken:.1f} times, "
            f"{memory / 2**20:,.0f} MiB"
        )
    written = (tmp_path / "out.parquet").stat().st_size
    print(f"written: {written / 2**20:.1f} MiB")
    # On a machine that does something else, too, only the ratio says anything.
    assert fastest > min(MIN_MB_PER_SECOND, size_mb / plain)


def test_compressed_logs_are_decoded_beside_parsing(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    plain, _ = convert(log, out=tmp_path / "out.parquet")
    packed = {
        "gz": gzip.compress(data, 6),
        "zst": pa.compress(data, "zstd", asbytes=True),
        "xz": lzma.compress(data, preset=1),
    }
    for name, content in packed.items():
        path = tmp_path / f"log.jsonl.{name}"
        path.write_bytes(content)
        taken, _ = convert(path, out=tmp_path / "out.parquet")
        rate = len(data) / 1e6 / taken
        print(f"\n.{name}: {rate:,.0f} MB/s of JSON Lines, {taken / plain:.2f} times the plain log")


def test_memory_does_not_grow_with_the_log(log: Path, tmp_path: Path) -> None:
    _, once = convert(log, out=tmp_path / "out.parquet")
    _, four_times = convert(log, log, log, log, out=tmp_path / "out.parquet")
    print(f"\npeak memory: {once / 2**20:,.0f} MiB, four times the log {four_times / 2**20:,.0f} MiB")
    assert four_times < MAX_GROWTH * once

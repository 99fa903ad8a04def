"""Run kvcap beside other simulators on the same traces and write a Markdown table.

::

    python tests/bench/compare_peers.py conversation.jsonl agentic.jsonl.gz --runs 5 -o table.md

Contenders run one after the other, round after round, each time as a fresh process, so that whatever else
the machine does falls on all of them alike. A row is the median of its rounds. Peers that are not there are
left out:

* kvcache-simulator: ``--simulator`` or $KVCAP_PEER_SIMULATOR, the path of its command; both its backends.
* libcachesim: ``--libcachesim`` or $KVCAP_PEER_LIBCACHESIM, a Python that imports it; one LRU per capacity,
  over block accesses that are laid out in its binary format before the clock starts.

Only the standard library is imported here, so that a child's peak memory is its own.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[2]
# GLM-5.2 with FP8 keys and values and an FP4 indexer, as both tools count it.
KV_BYTES_PER_TOKEN: Final = 46_272
SIMULATOR_MODEL: Final = (
    "--model", "glm-5.2", "--kv-precision", "fp8_int8", "--indexer-precision", "fp4_int4",
)  # fmt: skip
CAPACITIES_GIB: Final = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

LIBCACHESIM: Final = """
import json, sys
import libcachesim as lcs
path, capacities = sys.argv[1], json.loads(sys.argv[2])
for capacity in capacities:
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE)
    print(capacity, *lcs.LRU(cache_size=capacity).process_trace(reader))
"""


@dataclass(frozen=True)
class Contender:
    """One way of answering: what to run, and what is said about it."""

    name: str
    capacities: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    compiles: bool = False
    fresh_cache: bool = False


@dataclass(frozen=True)
class Run:
    """Seconds on the clock, and the peak memory of the process."""

    seconds: float
    peak_bytes: int


def open_text(path: Path) -> IO[str]:
    """Open JSON Lines, compressed by gzip or plain."""
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def block_size_of(path: Path, default: int) -> int:
    """Return the block size that a trace declares."""
    with open_text(path) as lines:
        return int(json.loads(next(lines)).get("block_size", default))


def write_oracle_general(path: Path, out: Path) -> int:
    """Write block accesses in libcachesim's binary format, each of size 1, and return how many."""
    record = struct.Struct("<IQIq")
    accesses = 0
    with open_text(path) as lines, out.open("wb") as stream:
        for number, line in enumerate(lines):
            ids = json.loads(line)["hash_ids"]
            stream.write(b"".join(record.pack(number, block, 1, -1) for block in ids))
            accesses += len(ids)
    return accesses


def kvcap_contenders(trace: Path, block_size: int) -> Iterator[Contender]:
    """Yield kvcap as a user runs it: all capacities, one, one thread, and the first run on a machine."""
    base = [
        sys.executable, "-m", "kvcap", "replay", str(trace), "--block-size", str(block_size),
        "--kv-bytes-per-token", str(KV_BYTES_PER_TOKEN), "--warm-up-percent", "50", "--quiet",
        "--format", "json",
    ]  # fmt: skip
    environment = {"PYTHONPATH": str(ROOT)}
    many = [*base, "--capacities", ",".join(f"{size}GiB" for size in CAPACITIES_GIB)]
    one = [*base, "--capacities", f"{CAPACITIES_GIB[-1]}GiB"]
    yield Contender("kvcap", "every one", many, environment, compiles=True)
    yield Contender("kvcap --threads 1", "every one", [*many, "--threads", "1"], environment)
    yield Contender("kvcap", "every one, 1 shown", one, environment)
    yield Contender("kvcap, first run ever (compiles)", "every one", many, environment, fresh_cache=True)


def simulator_contenders(
    command: str, trace: Path, block_size: int, backends: Sequence[str]
) -> Iterator[Contender]:
    """Yield kvcache-simulator with each backend, for many capacities and for one."""
    for backend in backends:
        for sizes in (CAPACITIES_GIB, CAPACITIES_GIB[-1:]):
            arguments = [
                command, "run", "--trace", str(trace), *SIMULATOR_MODEL, "--block-size", str(block_size),
                "--budgets-gib", ",".join(map(str, sizes)), "--policies", "lru", "--backend", backend,
                "--no-progress", "--format", "json",
            ]  # fmt: skip
            yield Contender(f"kvcache-simulator, {backend}", str(len(sizes)), arguments)


def libcachesim_contenders(
    python: str, accesses: Path, block_size: int, *, many: bool
) -> Iterator[Contender]:
    """Yield libcachesim's LRU for many capacities, each of which costs as much as one, and for one."""
    block_bytes = KV_BYTES_PER_TOKEN * block_size
    blocks = [size * 2**30 // block_bytes for size in CAPACITIES_GIB]
    for chosen in (blocks, blocks[-1:]) if many else (blocks[-1:],):
        command = [python, "-c", LIBCACHESIM, str(accesses), json.dumps(chosen)]
        yield Contender("libcachesim, LRU (without parsing)", str(len(chosen)), command)


def run(contender: Contender) -> Run:
    """Run a contender in a process of its own."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile() as errors:
        environment = {**os.environ, **contender.environment}
        if contender.fresh_cache:
            environment["NUMBA_CACHE_DIR"] = cache
        start = time.perf_counter()
        process = subprocess.Popen(
            contender.command, stdout=subprocess.DEVNULL, stderr=errors, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip().splitlines()
            sys.exit(f"{contender.name} failed: {message[-1] if message else process.returncode}")
    return Run(seconds, usage.ru_maxrss * 1024)


def rounds(contenders: Sequence[Contender], runs: int) -> list[list[Run]]:
    """Run every contender once a round, after those that leave compiled code behind for all."""
    for contender in contenders:
        if contender.compiles:
            run(contender)
    by_round = [[run(contender) for contender in contenders] for _ in range(runs)]
    return [list(own) for own in zip(*by_round, strict=True)]


def table(trace: Path, contenders: Sequence[Contender], results: Sequence[Sequence[Run]]) -> list[str]:
    """Return a Markdown table of one trace."""
    lines = [
        f"### {trace.name}, {trace.stat().st_size / 1e6:,.1f} MB",
        "",
        "| tool | capacities | median s | fastest to slowest | peak MiB |",
        "|---|---|---:|---:|---:|",
    ]
    for contender, own in zip(contenders, results, strict=True):
        seconds = sorted(result.seconds for result in own)
        peak = max(result.peak_bytes for result in own) / 2**20
        spread = f"{seconds[0]:.2f} to {seconds[-1]:.2f}"
        median = statistics.median(seconds)
        lines.append(f"| {contender.name} | {contender.capacities} | {median:.2f} | {spread} | {peak:,.0f} |")
    return [*lines, ""]


def version_of(python: str, package: str) -> str:
    """Return the version of a package in another Python."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def heading(simulator: str | None, libcachesim: str | None, runs: int) -> list[str]:
    """Return what was run, on what, and when."""
    versions = [f"kvcap {kvcap_version()}", f"numba {importlib.metadata.version('numba')}"]
    if simulator:
        versions.append(f"kvcache-simulator {version_of(beside(simulator), 'kvcache-simulator')}")
    if libcachesim:
        versions.append(f"libcachesim {version_of(libcachesim, 'libcachesim')}")
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"{date.today()}; {', '.join(versions)}; Python {platform.python_version()}; {processor()}, "
        f"{cores} cores, {memory:.0f} GiB; medians of {runs} interleaved runs, process start included.",
        "",
    ]


def kvcap_version() -> str:
    """Return the version of this checkout."""
    scope: dict[str, str] = {}
    exec((ROOT / "kvcap" / "_version.py").read_text(), scope)
    return scope["__version__"]


def beside(command: str) -> str:
    """Return the Python that stands beside an installed command."""
    return str(Path(command).with_name("python"))


def processor() -> str:
    """Return the model of the processor, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def compare(args: argparse.Namespace) -> list[str]:
    """Return the whole report."""
    lines = heading(args.simulator, args.libcachesim, args.runs)
    with tempfile.TemporaryDirectory() as directory:
        for trace in args.traces:
            block_size = block_size_of(trace, args.block_size)
            contenders = list(kvcap_contenders(trace, block_size))
            small = trace.stat().st_size <= args.small_mb * 1e6
            if args.simulator:
                backends = ("cpp", "python") if small else ("cpp",)
                contenders += simulator_contenders(args.simulator, trace, block_size, backends)
            if args.libcachesim:
                accesses = Path(directory, f"{trace.name}.oracleGeneral.bin")
                write_oracle_general(trace, accesses)
                contenders += libcachesim_contenders(args.libcachesim, accesses, block_size, many=small)
            lines += table(trace, contenders, rounds(contenders, args.runs))
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(description="Compare kvcap with other simulators on the same traces.")
    options.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="hash ids as .jsonl or .jsonl.gz"
    )
    options.add_argument("--runs", type=int, default=5, help="rounds that count (default: %(default)s)")
    options.add_argument("--block-size", type=int, default=512, help="where a trace declares none")
    options.add_argument("--simulator", default=os.environ.get("KVCAP_PEER_SIMULATOR"))
    options.add_argument("--libcachesim", default=os.environ.get("KVCAP_PEER_LIBCACHESIM"))
    options.add_argument(
        "--small-mb",
        type=float,
        default=50,
        help="largest trace for the Python backend and for ten LRUs of libcachesim",
    )
    options.add_argument("-o", "--output", type=Path, help="where the table goes (default: stdout)")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything and write the table."""
    args = parser().parse_args(argv)
    report = "\n".join(compare(args))
    if args.output is None:
        print(report)
    else:
        args.output.write_text(report, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

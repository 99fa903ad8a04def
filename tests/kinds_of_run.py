"""Every kind of run there is: a small log, the options that it is replayed with, and what it lacks.

Whatever is asked of results is asked of all of them in ``tests/analysis/test_every_question.py``. A new kind
is one entry of :data:`KINDS`; a new question is one entry there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK_TOKENS = 4
GIB_PER_BLOCK = ("--kv-bytes-per-token", str((1 << 30) // BLOCK_TOKENS))

EVERY_REUSE, AGES, BYTES, MEASURED_BLOCKS, POLICIES = "every reuse", "ages", "bytes", "blocks", "policies"
ONE_STREAM, EXPLAINED, OBSERVED = "one stream", "explained", "observed"

REQUESTS = [[i % 7, i % 5, i] for i in range(120)]


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes
    ----------
    options
        Arguments of ``kvcap replay``.
    requests, seconds, columns
        The log: block ids, arrival times (None: no column; an entry may be None), further columns.
    lacks
        What questions may need and this run does not have: they are refused.
    command
        What makes its results.
    """

    options: Sequence[str] = ()
    requests: Sequence[Sequence[int]] = field(default_factory=lambda: REQUESTS)
    seconds: Sequence[float | None] | None = range(0, 1200, 10)
    columns: dict[str, Sequence[str | int | None]] = field(default_factory=dict)
    in_bytes: bool = True
    lacks: frozenset[str] = frozenset()
    command: str = "replay"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the records of the log."""
        for index, request in enumerate(self.requests):
            row = {"hash_ids": request, "input_length": BLOCK_TOKENS * len(request), "output_length": 6}
            if self.seconds is not None:
                time = self.seconds[index]
                row["timestamp"] = None if time is None else round(1000 * time)
            yield {**row, **{name: values[index] for name, values in self.columns.items()}}

    def write_log(self, path: Path) -> None:
        """Write the log."""
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows()), encoding="utf-8")

    def arguments(self) -> list[str]:
        """Return the options of a replay of it."""
        in_bytes = GIB_PER_BLOCK if self.in_bytes else ()
        return ["--block-size", str(BLOCK_TOKENS), "--quiet", *in_bytes, *self.options]


_ROUTED = {"--cached-field", "--instance-field", "--keep", "--touch-order", "--warm-up-percent", "--coarsen"}
"""The options below that `kvcap route` takes as well."""


def _kind(*options: str, lacks: Sequence[str] = (), **log: Any) -> Kind:
    missing = set(lacks)
    if log.get("command") != "explain":
        missing |= {EXPLAINED, OBSERVED}
    if not {"--policies", "--engine"} & set(options):
        missing.add(POLICIES)
    if not _ROUTED.issuperset(option for option in options if option.startswith("--")):
        missing.add(ONE_STREAM)
    return Kind(options=options, lacks=frozenset(missing), **log)


_TENANTS = {"tenant": ["a", "b"] * 60}
_OBSERVED = {"cached": [0, None, 4, 8] * 30, "worker": ["x", "y", None] * 40}
_BOUNDED = {"lacks": [EVERY_REUSE]}
_SIMULATED = ("--capacities", "4GiB,8GiB,30GiB", "--policies", "lru,fifo,optimal")
_HYBRID = ("--engine", "vllm", "--model", "gpt-oss-20b", "--capacities", "20blocks,1MiB,1GiB")

KINDS = {
    "plain": _kind(),
    "last token computed": _kind("--compute-last-token", lacks=[EVERY_REUSE]),
    "generated blocks": _kind("--output-blocks", "on", "--partial-block", "drop", lacks=[EVERY_REUSE]),
    "engine": _kind("--engine", "vllm", "--capacities", "4GiB,8GiB", lacks=[EVERY_REUSE]),
    "hybrid": _kind(*_HYBRID, in_bytes=False, lacks=[EVERY_REUSE]),
    "hybrid pools": _kind(
        *_HYBRID, "--pool", "tenant", in_bytes=False, columns=_TENANTS, lacks=[EVERY_REUSE]
    ),
    "policies": _kind(*_SIMULATED),
    "policies under rules": _kind(*_SIMULATED, "--reserve-blocks", "2", "--oversize", "drop"),
    "bounded to nothing": _kind("--max-capacity", "1GiB", **_BOUNDED),
    "bounded": _kind("--max-capacity", "4GiB", **_BOUNDED),
    "bounded within reuse": _kind("--max-capacity", "20GiB", **_BOUNDED),
    "bounded beyond reuse": _kind("--max-capacity", "4TiB"),
    "bounded policies": _kind(
        "--policies", "lru", "--max-capacity", "30GiB", "--capacities", "4GiB", **_BOUNDED
    ),
    "bounded without times": _kind("--max-capacity", "20GiB", seconds=None, lacks=[EVERY_REUSE, AGES]),
    "unsorted": _kind(seconds=[(37 * i) % 1200 for i in range(120)]),
    "no times": _kind(seconds=None, lacks=[AGES]),
    "some times": _kind(seconds=[None if i % 3 == 0 else 10 * i for i in range(120)]),
    "same time": _kind(seconds=[5] * 120),
    "pools": _kind("--pool", "tenant", columns=_TENANTS),
    "bounded pools": _kind("--pool", "tenant", "--max-capacity", "4GiB", columns=_TENANTS, **_BOUNDED),
    "pools of one request": _kind("--pool", "tenant", columns={"tenant": [f"t{i}" for i in range(120)]}),
    "kept column": _kind("--keep", "tenant", columns={"tenant": [None, "b"] * 60}),
    "sessions": _kind(columns={"session_id": [str(i % 9) for i in range(120)]}),
    "some sessions under rules": _kind(
        "--compute-last-token", columns={"session_id": [None, "x", "y"] * 40}, lacks=[EVERY_REUSE]
    ),
    "head-first": _kind("--touch-order", "head-first"),
    "bounded head-first": _kind("--touch-order", "head-first", "--max-capacity", "4GiB", **_BOUNDED),
    "no bytes": _kind(in_bytes=False, lacks=[BYTES]),
    "bounded without bytes": _kind("--max-capacity", "8blocks", in_bytes=False, lacks=[EVERY_REUSE, BYTES]),
    "some warm-up": _kind("--warm-up-percent", "20"),
    "all warm-up": _kind("--warm-up-percent", "100", lacks=[MEASURED_BLOCKS]),
    "coarsened": _kind("--coarsen", "2"),
    "explained": _kind(
        *("--cached-field", "cached", "--instance-field", "worker"),
        columns=_OBSERVED,
        command="explain",
        lacks=[EVERY_REUSE],
    ),
    "explained without times": _kind(
        *("--cached-field", "cached"),
        seconds=None,
        columns=_OBSERVED,
        command="explain",
        lacks=[EVERY_REUSE, AGES],
    ),
    "one request": _kind(requests=[[1, 2, 3]], seconds=[7]),
    "nothing reused": _kind(requests=[[i] for i in range(10)], seconds=range(10)),
    "no block": _kind(requests=[[], []], seconds=[0, 1], lacks=[MEASURED_BLOCKS]),
}
